"""Who waits for events in Postgres: told by LISTEN/NOTIFY, and asked for every second beside it.

One connection per process listens for all who wait. What is told is empty: it only says that
a process has committed something. Should it be lost (behind a pooler, or while the connection is
made anew), the question that follows every second finds the event.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

import psycopg

from holdfast.errors import HoldfastError
from holdfast.journal.stores._postgres_append import CHANNEL
from holdfast.journal.stores._postgres_connections import Connection, Connections, run_one

_SAFETY_POLL_S = 1.0
_LAST = "SELECT last FROM holdfast.counters WHERE tenant = %s"
_log = logging.getLogger(__name__)


class FeedWatch:
    """Knows the highest number that was seen, and wakes all who wait for a higher one."""

    def __init__(self, connections: Connections) -> None:
        """Listen to nothing yet."""
        self._connections = connections
        self._seq = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to listen, on a connection of its own."""
        self._seq = 0
        self._task = asyncio.create_task(self._listen_forever())

    async def stop(self) -> None:
        """Listen no more; all who wait are woken."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self.wake()

    def note(self, seq: int) -> None:
        """Take note of an event that is stored."""
        if seq > self._seq:
            self._seq = seq
            self.wake()

    def wake(self) -> None:
        """Wake all who wait now."""
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self, after: int, timeout_s: float) -> bool:
        """Wait until an event beyond `after` exists, or something else was told."""
        if self._seq > after:
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            # Another process may have stored it before this one listened.
            rows = await self._connections.read(_LAST, [self._connections.target.tenant])
            self.note(int(rows[0][0]) if rows else 0)
            if self._seq > after:
                return True
            # Not `wait_for`: before Python 3.12 it can lose a cancellation.
            woken, _ = await asyncio.wait([future], timeout=timeout_s)
            return bool(woken) or self._seq > after
        finally:
            self._waiting.discard(future)

    async def _listen_forever(self) -> None:
        while True:
            try:
                connection = await self._connections.connect()
                async with connection:
                    await self._listen(connection)
            except (psycopg.Error, HoldfastError) as error:
                # Those who wait ask for themselves, and are told when it is back.
                _log.warning("postgres: the listener is cut off: %s", type(error).__name__)
                await asyncio.sleep(_SAFETY_POLL_S)

    async def _listen(self, connection: Connection) -> None:
        await connection.execute(f"LISTEN {CHANNEL}")
        while True:
            await self._look(connection)
            async for _ in connection.notifies(timeout=_SAFETY_POLL_S, stop_after=1):
                self.wake()

    async def _look(self, connection: Connection) -> None:
        tenant = self._connections.target.tenant
        rows = await run_one(connection, tenant, _LAST, [tenant])
        self.note(int(rows[0][0]) if rows else 0)
