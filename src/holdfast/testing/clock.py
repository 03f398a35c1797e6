"""A clock that stands still until it is moved."""

from __future__ import annotations


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
