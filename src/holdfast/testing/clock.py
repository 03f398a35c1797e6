"""A clock that stands still until it is moved."""

from __future__ import annotations

import asyncio


class FakeClock:
    """Time under the test's control; all kinds of time move together, unless it is stepped."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        """Start at a fixed moment."""
        self._now = start
        self._since_boot = start
        self._boots = 1

    def now(self) -> float:
        """Seconds since the epoch, as last set."""
        return self._now

    def monotonic(self) -> float:
        """Seconds that only `advance` moves; only differences mean something."""
        return self._since_boot

    def boottime(self) -> float:
        """Seconds that only `advance` moves."""
        return self._since_boot

    def boot_id(self) -> str:
        """Name the boot clock; another one after `reboot`."""
        return f"boot {self._boots}"

    def advance(self, seconds: float) -> None:
        """Move time forward, as waiting does, or a sleep of the whole machine."""
        self._now += seconds
        self._since_boot += seconds

    def step(self, seconds: float) -> None:
        """Set the wall clock forward or back; no time passes."""
        self._now += seconds

    def reboot(self) -> None:
        """Start the boot clock anew, under another id."""
        self._boots += 1
        self._since_boot = 1.0

    async def sleep(self, seconds: float) -> None:
        """Stand in for `asyncio.sleep`: time moves, nobody waits, other tasks get a turn."""
        self.advance(max(seconds, 0.0))
        await asyncio.sleep(0)
