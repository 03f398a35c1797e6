"""Time limits on a connection: an answer that is being read, or the wait for the next request."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Protocol, TypeAlias

WHOLE = "the whole answer"

Limit: TypeAlias = tuple[str, float, float]
"""What is waited for, how many seconds that may take, and the loop's time when they are over."""

_NEVER: Limit = ("", inf, inf)


class Closable(Protocol):
    """Something whose closing wakes whoever waits for it."""

    def cut(self) -> None:
        """Close at once."""
        ...


class Watchdog:
    """Closes a connection when something takes longer than it may.

    One timer serves all waits of all its answers: a wait costs two assignments, and only
    when the timer goes off it is looked up whether the limit really passed. Closing the
    connection wakes the reader, which then asks `expired`; no task is cancelled.
    """

    __slots__ = ("_at", "_closable", "_handle", "_limit", "_loop", "_total", "expired")

    def __init__(self, closable: Closable) -> None:
        """Watch nothing yet."""
        self._loop = asyncio.get_running_loop()
        self._closable = closable
        self._total = self._limit = _NEVER
        self._handle: asyncio.TimerHandle | None = None
        self._at = inf
        self.expired: tuple[str, float] | None = None

    def begin(self, total: Limit) -> None:
        """Something new begins: close when it is not over in time; what was before is over."""
        self.expired = None
        self._total = self._limit = total
        if total[2] < self._at:
            self._set(total[2])

    def wait(self, limit: Limit) -> None:
        """The reader begins to wait: close when it still does when the limit is over."""
        if limit[2] >= self._total[2]:
            limit = self._total
        self._limit = limit
        if limit[2] < self._at:
            self._set(limit[2])

    def rest(self) -> None:
        """The reader does not wait; only the total limit counts."""
        self._limit = self._total

    def stop(self) -> None:
        """Watch no longer."""
        self._total = self._limit = _NEVER
        self._at = inf
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _set(self, at: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._at = at
        self._handle = self._loop.call_at(at, self._look)

    def _look(self) -> None:
        self._handle, self._at = None, inf
        phase, limit_s, due = self._limit
        if self._loop.time() < due:
            self._set(due)
            return
        self.expired = (phase, limit_s)
        self._closable.cut()
