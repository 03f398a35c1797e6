"""Every storage of memories keeps every promise of the protocol."""

from __future__ import annotations

import pytest
from postgres_server import PostgresServer

from holdfast.memory import InMemoryStorage, SqliteMemoryStorage, open_memory_storage
from holdfast.testing.memory_conformance import MemoryStorageConformance


class TestInMemoryStorage(MemoryStorageConformance):
    is_kept = False

    def make_storage(self, place):
        return InMemoryStorage()


class TestSqliteStorage(MemoryStorageConformance):
    def make_storage(self, place):
        return SqliteMemoryStorage(place / "memory.db")


class TestSyncedSqliteStorage(MemoryStorageConformance):
    def make_storage(self, place):
        return SqliteMemoryStorage(place / "memory.db", is_synced=True)


class TestPostgresStorage(MemoryStorageConformance):
    @pytest.fixture(autouse=True)
    def server(self, postgres: PostgresServer) -> None:
        self.postgres = postgres

    def make_storage(self, place):
        url = self.postgres.url(self.postgres.find_database(place))
        return open_memory_storage(url, base_dir=place)
