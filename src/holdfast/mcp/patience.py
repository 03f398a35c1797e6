"""How long an answer may take; the time of a person who is asked in between does not count."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator


class Patience:
    """The limit of one request to a server; it stands still while `pause` is open."""

    def __init__(self, seconds: float) -> None:
        """Allow so many seconds; nothing runs before `limit`."""
        self.seconds = seconds
        self._scope: asyncio.Timeout | None = None
        self._pauses = 0

    @contextlib.asynccontextmanager
    async def limit(self) -> AsyncIterator[None]:
        """End what is inside with TimeoutError when the time is over."""
        async with asyncio.timeout(self.seconds) as self._scope:
            yield

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Stop the time; afterwards all of it is allowed again."""
        self._pauses += 1
        self._reschedule(None)
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                self._reschedule(asyncio.get_running_loop().time() + self.seconds)

    def _reschedule(self, when: float | None) -> None:
        scope = self._scope
        if scope is None or scope.expired():
            return
        with contextlib.suppress(RuntimeError):  # it has been left in the meantime
            scope.reschedule(when)


__all__ = ["Patience"]
