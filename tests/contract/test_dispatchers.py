"""Every dispatcher keeps every promise of the protocol."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from postgres_server import PostgresServer

from holdfast.dispatch import open_dispatcher
from holdfast.dispatch.embedded import EmbeddedDispatcher
from holdfast.dispatch.stores.postgres import PostgresDispatcher
from holdfast.testing.dispatch_conformance import DispatcherConformance, WatchedHandler


class TestInOneProcess(DispatcherConformance):
    async def make_dispatcher(self):
        found = open_dispatcher("sqlite://")
        assert isinstance(found, EmbeddedDispatcher)
        return found


class TestOnPostgres(DispatcherConformance):
    @pytest.fixture(autouse=True)
    def _use(self, postgres: PostgresServer, tmp_path) -> None:
        self.url = postgres.url(postgres.find_database(tmp_path))

    async def make_dispatcher(self):
        assert isinstance(open_dispatcher(self.url), PostgresDispatcher)
        return PostgresDispatcher(urlsplit(self.url))

    async def test_tenants_do_not_get_each_others_wakeups(self):
        other = PostgresDispatcher(urlsplit(f"{self.url}&holdfast_tenant=other"))
        async with self.opened() as dispatcher:
            await other.open()
            await other.wake("ses_other")
            await dispatcher.wake("ses_own")
            handler = WatchedHandler()
            async with self.run_worker(dispatcher, handler):
                await handler.wait_until(lambda taken: bool(taken))
                assert await other.list_workers() == []
            assert handler.taken == ["ses_own"]
            await other.close()
