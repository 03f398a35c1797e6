"""Time limits on an answer that is being read."""

from __future__ import annotations

import asyncio
from typing import Protocol

WHOLE = "the whole answer"


class Closable(Protocol):
    """Something whose closing wakes whoever waits for it."""

    def close(self) -> None:
        """Close at once."""
        ...


class Watchdog:
    """Closes a response when the reader waits longer than it may.

    One timer serves all waits: a wait costs two assignments, and only when the timer
    goes off it is looked up whether the limit really passed. Closing the response
    wakes the reader, which then asks `expired`; no task is cancelled.
    """

    __slots__ = ("_closable", "_due", "_handle", "_limit", "_loop", "_phase", "_total", "expired")

    def __init__(self, closable: Closable, *, total_at: float, total_s: float) -> None:
        """Watch until `total_at`, a time of the running loop."""
        self._loop = asyncio.get_running_loop()
        self._closable = closable
        self._total = (total_at, total_s)
        self._due = total_at
        self._phase = WHOLE
        self._limit = total_s
        self._handle: asyncio.TimerHandle | None = None
        self.expired: tuple[str, float] | None = None

    def wait(self, phase: str, limit_s: float, *, due: float | None = None) -> None:
        """The reader begins to wait: close when it still waits after `limit_s`, or at `due`."""
        if due is None:
            due = self._loop.time() + limit_s
        if due < self._total[0]:
            self._due, self._phase, self._limit = due, phase, limit_s
        else:
            self.rest()
        handle = self._handle
        if handle is None or handle.when() > self._due:
            if handle is not None:
                handle.cancel()
            self._handle = self._loop.call_at(self._due, self._look)

    def rest(self) -> None:
        """The reader does not wait; only the total limit counts."""
        self._due, self._limit = self._total
        self._phase = WHOLE

    def stop(self) -> None:
        """Watch no longer."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _look(self) -> None:
        if self._loop.time() < self._due:
            self._handle = self._loop.call_at(self._due, self._look)
            return
        self._handle = None
        self.expired = (self._phase, self._limit)
        self._closable.close()
