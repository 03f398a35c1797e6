"""Turns under way in this process, and what other processes ask of them."""

from __future__ import annotations

import asyncio
import contextlib

from holdfast.errors import StorageError
from holdfast.journal.journal import Journal
from holdfast.journal.projection import Condition, RowQuery
from holdfast.sessions.projections import RUNS
from holdfast.turns.turn import Turn

_LOOK_FOR_SIGNALS_S = 0.2


class ActiveTurns:
    """Knows the turns that are executed here, and tells each when somebody wants it to end.

    Who asks in this process tells the turn itself; what others ask is looked for in the
    journal, as long as there is a turn.
    """

    def __init__(self, journal: Journal) -> None:
        """Look into this journal; nothing is under way yet."""
        self._journal = journal
        self._turns: dict[str, Turn] = {}
        self._watcher: asyncio.Task[None] | None = None

    def find(self, run_id: str) -> Turn | None:
        """Return the turn of a run that is executed here now."""
        return self._turns.get(run_id)

    def add(self, turn: Turn) -> None:
        """Count a turn as under way."""
        self._turns[turn.run.id] = turn
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(self._look_for_cancellation())

    def remove(self, turn: Turn) -> None:
        """Count a turn as under way no longer."""
        del self._turns[turn.run.id]

    async def close(self) -> None:
        """Stop looking."""
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
        self._watcher = None

    async def _look_for_cancellation(self) -> None:
        wanted = (Condition("status", "=", "running"), Condition("is_cancel_requested", "=", True))
        query = RowQuery(projection=RUNS, where=wanted, limit=250)
        while self._turns:
            with contextlib.suppress(StorageError):
                asked = {found.key: found.row for found in await self._journal.rows(query)}
                for run_id in asked.keys() & self._turns.keys():
                    run = asked[run_id]
                    self._turns[run_id].ask_to_end(run.reason, run.stopped_by)
            await asyncio.sleep(_LOOK_FOR_SIGNALS_S)
