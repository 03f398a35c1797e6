"""Warns of a queue that grows: more runs wait than the processes of these records can take."""

from __future__ import annotations

import asyncio
from typing import Final

from holdfast.errors import StorageError
from holdfast.journal import Condition, Journal, RowQuery
from holdfast.observability import Logger
from holdfast.sessions import RUNS
from holdfast.settings import Settings

_LOOK_S: Final = 10.0
_MOST_ROWS: Final = 10_000
_log = Logger("holdfast.queue")


class LoadWatch:
    """Looks at the queue of one state directory."""

    def __init__(self, settings: Settings, journal: Journal, tenant: str) -> None:
        """Warn from `log.long_queue` runs on."""
        self._journal = journal
        self._tenant = tenant
        self._first = settings.log.long_queue
        self._next = self._first

    async def follow(self) -> None:
        """Look every ten seconds, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self.look()
            except StorageError as error:
                _log.warning("queue.unknown", tenant=self._tenant, error=error.code)

    async def look(self) -> int:
        """Count who waits, warn where it is many or twice as many, and say when it is over."""
        where = (Condition("status", "=", "queued"),)
        query = RowQuery(projection=RUNS, where=where, limit=_MOST_ROWS)
        waiting = [found.row for found in await self._journal.rows(query)]
        count = len(waiting)
        if count >= self._next:
            self._next = count * 2
            oldest = self._journal.clock.now() - min(run.time_queued for run in waiting)
            _log.warning(
                "queue.grows",
                waiting=count,
                oldest_s=max(oldest, 0.0),
                tenant=self._tenant,
                reason="more runs are started than are executed; add workers or slots",
            )
        elif count < self._first <= self._next // 2:
            self._next = self._first
            _log.note("queue.short", waiting=count, tenant=self._tenant)
        return count


__all__ = ["LoadWatch"]
