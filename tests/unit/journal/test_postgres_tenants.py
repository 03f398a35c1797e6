"""Tenants of one database: kept apart by the server itself, also from a role that forgets to ask.

All of it is asked by roles that row-level security holds; a superuser would pass vacuously.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from postgres_server import APP, OWNER, WORKER, PostgresServer

from holdfast.errors import NotFound, StorageError, UsageError
from holdfast.journal import (
    Journal,
    RowQuery,
    erase_tenant,
    find_tenant_url,
    grant_role,
    migrate_store,
    open_store,
)
from holdfast.runtime.runtime import PROJECTIONS
from holdfast.sessions import RUNS
from holdfast.sessions.events import RunQueued, SessionCreated

BORN = SessionCreated(slug="s", project_id="p", directory="", title="t", version="1")
SCHEMAS = ("holdfast", "holdfast_jobs")


class Shared:
    """A database that its owner has set up, for roles that only serve."""

    def __init__(self, server: PostgresServer, name: str, place: Path) -> None:
        self.server, self.name, self.place = server, name, place

    def url(self, tenant: str = "", role: str = APP) -> str:
        told = {"holdfast_tenant": tenant} if tenant else {}
        return self.server.url(self.name, role=role, **told)

    def open(self, tenant: str = "", role: str = APP) -> Journal:
        store = open_store(self.url(tenant, role), base_dir=self.place, projections=PROJECTIONS)
        return Journal(store)

    def ask(self, statement: str, *, role: str = APP, tenant: str | None = None) -> list[tuple]:
        """Ask as a role that forgot every condition."""
        with psycopg.connect(self.server.url(self.name, role=role)) as connection:
            if tenant is not None:
                connection.execute("SELECT set_config('holdfast.tenant', %s, true)", (tenant,))
            return connection.execute(statement).fetchall()

    def list_tables(self) -> list[str]:
        """Return the tables that hold something of a tenant."""
        found = self.ask(
            "SELECT c.oid::regclass::text FROM pg_class c WHERE relkind = 'r' AND "
            "relnamespace = ANY(array['holdfast', 'holdfast_jobs']::regnamespace[]) AND ("
            "EXISTS (SELECT FROM pg_attribute WHERE attrelid = c.oid AND attname = 'tenant') "
            "OR relname IN ('procrastinate_jobs', 'procrastinate_events'))",
            role="postgres",
        )
        return sorted(row[0] for row in found)


@pytest.fixture
async def shared(postgres: PostgresServer, tmp_path: Path) -> Shared:
    made = Shared(postgres, postgres.make_database(), tmp_path)
    await migrate_store(made.url(role=OWNER), base_dir=tmp_path, projections=PROJECTIONS)
    await grant_role(made.url(role=OWNER), APP, "records")
    await grant_role(made.url(role=OWNER), WORKER, "wakeups")
    return made


@pytest.fixture
def role(postgres: PostgresServer) -> Iterator[str]:
    postgres.execute("CREATE ROLE mighty LOGIN BYPASSRLS")
    yield "mighty"
    postgres.execute("DROP ROLE mighty")


async def _fill(shared: Shared, *tenants: str) -> None:
    for tenant in tenants:
        async with shared.open(tenant) as journal:
            await journal.append("s1", [BORN, RunQueued(run_id=f"run_{tenant}")], must_be_new=True)


async def test_who_forgets_to_ask_for_a_tenant_sees_nothing_of_any(shared: Shared) -> None:
    await _fill(shared, "acme", "zenith")
    tables = shared.list_tables()
    assert len(tables) > 12
    filled = []
    for table in tables:
        count = f"SELECT count(*) FROM {table}"
        role = WORKER if "worker_names" in table else APP
        if shared.ask(count, role="postgres")[0][0]:
            filled.append(table)
            assert shared.ask(count, role=role) == [(0,)], table
            assert shared.ask(count, role=role, tenant="") == [(0,)], table
            assert shared.ask(count, role=OWNER) == [(0,)], table
            assert 0 < shared.ask(count, role=role, tenant="acme")[0][0], table
            both = shared.ask(count, role="postgres")[0][0]
            assert shared.ask(count, role=role, tenant="acme")[0][0] < both, table
    assert {"holdfast.events", "holdfast.streams", "holdfast_jobs.procrastinate_jobs"} <= {*filled}


async def test_nothing_can_be_put_into_another_tenant(shared: Shared) -> None:
    await _fill(shared, "acme", "zenith")
    for statement in (
        "INSERT INTO holdfast.owners VALUES ('zenith', 'me', now()) RETURNING 1",
        "UPDATE holdfast.streams SET tenant = 'zenith' RETURNING 1",
        "INSERT INTO holdfast_jobs.procrastinate_jobs (queue_name, task_name) "
        "VALUES ('holdfast/zenith', 'holdfast.wake') RETURNING 1",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            shared.ask(statement, tenant="acme")
    change = "UPDATE holdfast.events SET kind = 'x' WHERE tenant = 'zenith' RETURNING 1"
    assert shared.ask(change, tenant="acme") == []


async def test_every_table_of_a_tenant_forces_its_owner_too(shared: Shared) -> None:
    found = shared.ask(
        "SELECT relname, relrowsecurity, relforcerowsecurity, (SELECT count(*) FROM pg_policy "
        "WHERE polrelid = c.oid) FROM pg_class c WHERE c.oid = ANY(%s::regclass[])".replace(
            "%s", "array[" + ",".join(f"'{one}'" for one in shared.list_tables()) + "]"
        ),
        role="postgres",
    )
    assert found and all(row[1:] == (True, True, 1) for row in found), found


async def test_tenants_count_their_events_for_themselves(shared: Shared) -> None:
    await _fill(shared, "acme", "zenith")
    async with shared.open("acme") as journal:
        assert await journal.read_last_seq() == 2
        rows = await journal.rows(RowQuery(projection=RUNS))
        assert [row.key for row in rows] == ["run_acme"]
        assert await journal.store.examine() == []
        assert (await journal.store.stats())["sessions"] == 1
        assert await journal.rebuild() == 2


async def test_new_tables_are_filled_for_all_tenants(shared: Shared) -> None:
    """The one who builds them sees all tenants for once, and nobody does afterwards."""
    await _fill(shared, "acme", "zenith")
    name = f"holdfast.p_{RUNS.name}_v{RUNS.version}"
    shared.server.execute(f"DROP TABLE {name}", shared.name)
    shared.server.execute(
        f"DELETE FROM holdfast.projections WHERE name = '{RUNS.name}'", shared.name
    )
    with pytest.raises(StorageError) as raised:
        await shared.open("acme").open()
    assert "holdfast storage migrate" in str(raised.value)
    await migrate_store(shared.url(role=OWNER), base_dir=shared.place, projections=PROJECTIONS)
    assert shared.ask(f"SELECT count(*) FROM {name}", role="postgres") == [(2,)]
    assert shared.ask(f"SELECT count(*) FROM {name}", role=OWNER) == [(0,)]
    async with shared.open("acme") as journal:
        assert len(await journal.rows(RowQuery(projection=RUNS))) == 1


async def test_the_role_of_the_workers_sees_no_record(shared: Shared) -> None:
    await _fill(shared, "acme")
    jobs = "SELECT args->>'session' FROM holdfast_jobs.procrastinate_jobs"
    assert shared.ask(jobs, role=WORKER, tenant="acme") == [("s1",)]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        shared.ask("SELECT 1 FROM holdfast.events", role=WORKER, tenant="acme")


async def test_what_the_server_tells_everybody_names_no_tenant(shared: Shared) -> None:
    """Whoever may connect may listen, so nothing is said but that something happened."""
    url = shared.server.url(shared.name, role="postgres")
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as listening:
        for channel in ("holdfast", "procrastinate_any_queue_v1"):
            await listening.execute(f'LISTEN "{channel}"')
        await _fill(shared, "acme")
        heard = [one async for one in listening.notifies(timeout=10, stop_after=2)]
    assert {one.channel for one in heard} == {"holdfast", "procrastinate_any_queue_v1"}
    assert not [one for one in heard if "acme" in one.payload or "s1" in one.payload]


async def test_a_role_that_nothing_holds_back_serves_no_tenant(shared: Shared, role: str) -> None:
    for mighty in (role, OWNER, "postgres"):
        with pytest.raises(UsageError):
            await grant_role(shared.url(role=OWNER), mighty, "records")
    for mighty in (OWNER, "postgres"):
        with pytest.raises(StorageError) as raised:
            await shared.open("acme", mighty).open()
        assert "storage grant" in str(raised.value)
        async with shared.open("", mighty):
            pass  # what names no tenant is one's own database
    with pytest.raises(NotFound):
        await grant_role(shared.url(role=OWNER), "nobody_of_this_name", "records")
    with pytest.raises(StorageError):
        await grant_role(shared.url(), WORKER, "records")
    with pytest.raises(UsageError):
        await grant_role("sqlite://", WORKER, "records")


async def test_a_tenant_is_erased_whole_and_alone(shared: Shared) -> None:
    await _fill(shared, "acme", "zenith")
    await erase_tenant(shared.url(), "acme")
    everything = " UNION ALL ".join(
        f"SELECT count(*) FROM {one} WHERE tenant = 'acme'"
        for one in shared.list_tables()
        if "procrastinate" not in one
    )
    assert {row[0] for row in shared.ask(everything, role="postgres")} == {0}
    queues = "SELECT queue_name FROM holdfast_jobs.procrastinate_jobs"
    assert shared.ask(queues, role="postgres") == [("holdfast/zenith",)]
    with pytest.raises(UsageError):
        await erase_tenant(shared.url("acme"), "acme")
    assert find_tenant_url("sqlite://", "acme") is None


async def test_tenants_at_once_wait_for_nobody_but_their_own(shared: Shared) -> None:
    await _fill(shared, "acme", "zenith")
    async with shared.open("acme") as one, shared.open("zenith") as two:
        store = one.store
        async with store._connections.begin_separately() as holding:  # type: ignore[attr-defined]
            await holding.execute("SELECT 1 FROM holdfast.counters FOR UPDATE")
            async with asyncio.timeout(20):
                await two.append("s1", [RunQueued(run_id="run_2")])
