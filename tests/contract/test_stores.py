"""Every store keeps every promise of the protocol."""

from __future__ import annotations

from pathlib import Path

import pytest
from postgres_server import PostgresServer, ServerClock

from holdfast.journal import MemoryStore, SqliteStore, open_store
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


class TestPostgresStore(StoreConformance):
    server: PostgresServer

    @pytest.fixture(autouse=True)
    def _use(self, postgres: PostgresServer, tmp_path: Path) -> None:
        self.server = postgres
        self.place = tmp_path

    def make_clock(self):
        return ServerClock(self.server.url(self.server.find_database(self.place)))

    def make_store(self, place, *, projections, clock):
        url = self.server.url(self.server.find_database(place))
        return open_store(url, base_dir=place, projections=projections, clock=clock)
