"""Every store keeps every promise of the protocol."""

from __future__ import annotations

from holdfast.journal import MemoryStore, SqliteStore
from holdfast.testing.store_conformance import StoreConformance


class TestMemoryStore(StoreConformance):
    is_kept = False

    def make_store(self, place, *, projections, clock):
        return MemoryStore(projections=projections, clock=clock)


class TestSqliteStore(StoreConformance):
    def make_store(self, place, *, projections, clock):
        return SqliteStore(place / "journal.db", projections=projections, clock=clock)


class TestSqliteStoreThatSurvivesPowerCuts(StoreConformance):
    def make_store(self, place, *, projections, clock):
        path = place / "journal.db"
        return SqliteStore(path, projections=projections, clock=clock, durability="power")
