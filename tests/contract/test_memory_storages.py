"""Every storage of memories keeps every promise of the protocol."""

from __future__ import annotations

from holdfast.memory import InMemoryStorage, SqliteMemoryStorage
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
