"""Tenants of a server on Postgres: one database, and the server's own rows of each."""

from __future__ import annotations

from pathlib import Path

import pytest
from postgres_server import APP, OWNER, PostgresServer
from served import running
from test_tenants import add_tenant

from holdfast.journal import grant_role, migrate_store
from holdfast.runtime.runtime import PROJECTIONS


@pytest.fixture
async def url(postgres: PostgresServer, tmp_path: Path) -> str:
    name = postgres.make_database()
    owner = postgres.url(name, role=OWNER)
    await migrate_store(owner, base_dir=tmp_path, projections=PROJECTIONS)
    await grant_role(owner, APP, "records")
    return postgres.url(name, role=APP)


async def test_tenants_of_one_database_do_not_see_each_other(tmp_path: Path, url: str) -> None:
    async with running(tmp_path, settings={"storage.url": url}) as server:
        one, two = await add_tenant(server, "one"), await add_tenant(server, "two")
        runs = {}
        for name, headers in (("one", one), ("two", two)):
            body = {"user_message": "What is 15 times 23?"}
            status, found = await server.ask("POST", "/v1/runs/wait", body, headers=headers)
            assert status == 200, found
            runs[name] = found["run_id"]
        for headers, own, other in ((one, "one", "two"), (two, "two", "one")):
            status, found = await server.ask("GET", "/v1/runs", headers=headers)
            assert [run["id"] for run in found["items"]] == [runs[own]]
            status, _ = await server.ask("GET", f"/v1/runs/{runs[other]}", headers=headers)
            assert status == 404
        status, found = await server.ask("GET", "/v1/runs")
        assert found["items"] == []
        opened = {one.tenant: one for one in server.app.runtimes.list_open()}
        first, second = opened["one"].journal, opened["two"].journal
        assert await first.read_last_seq() == await second.read_last_seq() > 0
        status, _ = await server.ask("DELETE", "/v1/tenants/one?confirm=one")
        assert status == 200
        assert await second.read_last_seq() > 0
    async with running(tmp_path, settings={"storage.url": f"{url}&holdfast_tenant=two"}) as server:
        status, found = await server.ask("GET", "/v1/runs")
        assert [run["id"] for run in found["items"]] == [runs["two"]]


async def test_the_operators_own_rows_are_no_tenants(tmp_path: Path, url: str) -> None:
    settings = {"storage.url": f"{url}&holdfast_tenant=house"}
    async with running(tmp_path, settings=settings) as server:
        headers = await add_tenant(server, "house")
        status, found = await server.ask("GET", "/v1/runs", headers=headers)
        assert (status, found["code"]) == (400, "usage.invalid")
