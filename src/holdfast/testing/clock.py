"""A clock that stands still until it is moved."""

from __future__ import annotations

import asyncio


class FakeClock:
    """Time under the test's control; both kinds of time move together."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        """Start at a fixed moment."""
        self._now = start

    def now(self) -> float:
        """Seconds since the epoch, as last set."""
        return self._now

    def monotonic(self) -> float:
        """The same seconds; only differences mean something."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move time forward."""
        self._now += seconds

    async def sleep(self, seconds: float) -> None:
        """Stand in for `asyncio.sleep`: time moves, nobody waits, other tasks get a turn."""
        self._now += max(seconds, 0.0)
        await asyncio.sleep(0)
