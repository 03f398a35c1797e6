"""Where the conformance tests of stores take place."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import ClassVar

from holdfast.journal import AnyProjection, Journal, RowQuery, Store
from holdfast.testing._store_samples import SAMPLE_TABLES, TOPICS
from holdfast.testing.clock import FakeClock


class Setting:
    """An open store with its journal and its clock."""

    def __init__(self, store: Store, clock: FakeClock | None = None) -> None:
        """Put a journal before the store."""
        self.store = store
        self.clock = clock or FakeClock()
        self.journal = Journal(store, clock=self.clock)

    async def state(self) -> object:
        """Return everything that can be seen of the store, for comparison."""
        query = RowQuery(projection=TOPICS, limit=10_000)
        heads = sorted(await self.store.heads(), key=lambda head: head.session_id)
        rows = [(row.session_id, row.key, row.row) for row in await self.store.rows(query)]
        return heads, await self.store.feed(after=0, limit=10_000), sorted(rows, key=str)


class StoreSetting:
    """What a store's author supplies: how to make one."""

    is_kept: ClassVar[bool] = True
    """What is stored outlives the object: a second store made for the same place sees it."""

    def make_store(
        self, place: Path, *, projections: Sequence[AnyProjection], clock: FakeClock
    ) -> Store:
        """Return a store that is not open yet and keeps its data under `place`."""
        raise NotImplementedError

    def make_clock(self) -> FakeClock:
        """Return the clock of a test."""
        return FakeClock()

    @contextlib.asynccontextmanager
    async def opened(
        self, place: Path, projections: Sequence[AnyProjection] = SAMPLE_TABLES
    ) -> AsyncIterator[Setting]:
        """Open a store for the time of a block."""
        clock = self.make_clock()
        at = Setting(self.make_store(place, projections=projections, clock=clock), clock)
        await at.store.open()
        try:
            yield at
        finally:
            await at.store.close()
