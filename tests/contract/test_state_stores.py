"""Every store of state keeps every promise of the protocol."""

from __future__ import annotations

import contextlib

import pytest
from postgres_server import PostgresServer

from holdfast.journal import Journal, MemoryStore, SqliteStore, open_store
from holdfast.state import STATE, JournalStateStore
from holdfast.testing.state_conformance import StateStoreConformance


class TestStateInMemory(StateStoreConformance):
    is_kept = False

    @contextlib.asynccontextmanager
    async def open_store(self, place, clock):
        async with Journal(MemoryStore(projections=(STATE,), clock=clock), clock=clock) as journal:
            yield JournalStateStore(journal)


class TestStateInSqlite(StateStoreConformance):
    @contextlib.asynccontextmanager
    async def open_store(self, place, clock):
        store = SqliteStore(place / "journal.db", projections=(STATE,), clock=clock)
        async with Journal(store, clock=clock) as journal:
            yield JournalStateStore(journal)


class TestStateInSyncedSqlite(StateStoreConformance):
    @contextlib.asynccontextmanager
    async def open_store(self, place, clock):
        store = SqliteStore(
            place / "journal.db", projections=(STATE,), clock=clock, durability="power"
        )
        async with Journal(store, clock=clock) as journal:
            yield JournalStateStore(journal)


class TestStateInPostgres(StateStoreConformance):
    @pytest.fixture(autouse=True)
    def server(self, postgres: PostgresServer) -> None:
        self.postgres = postgres

    @contextlib.asynccontextmanager
    async def open_store(self, place, clock):
        url = self.postgres.url(self.postgres.find_database(place))
        store = open_store(url, base_dir=place, projections=(STATE,), clock=clock)
        async with Journal(store, clock=clock) as journal:
            yield JournalStateStore(journal)
