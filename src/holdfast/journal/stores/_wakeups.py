"""Waiting for a change: told at once by this process, found by asking for the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_FIRST_POLL_S = 0.01
_LONGEST_POLL_S = 0.1


class Wakeups:
    """Wakes everyone who waits whenever this process has changed something."""

    def __init__(self) -> None:
        """Start with no waiter."""
        self.waiting: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        """Wake all who wait now."""
        for future in self.waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self, is_there: Callable[[], bool], timeout_s: float) -> bool:
        """Return as soon as `is_there` holds or something changed here; say which by time.

        Returns `False` only when the time is up and nothing was seen.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        pause = _FIRST_POLL_S
        while not is_there():
            left = deadline - loop.time()
            if left <= 0:
                return False
            future: asyncio.Future[None] = loop.create_future()
            self.waiting.add(future)
            try:
                # Not `wait_for`: before Python 3.12 it loses a cancellation that comes together
                # with the wake-up, and the task that was cancelled goes on forever.
                woken, _ = await asyncio.wait([future], timeout=min(pause, left))
            finally:
                self.waiting.discard(future)
            if woken:
                return True
            pause = min(pause * 1.5, _LONGEST_POLL_S)
        return True
