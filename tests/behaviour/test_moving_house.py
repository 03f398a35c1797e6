"""Records move between SQLite and Postgres, and back, and are backed up while in use."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest
from postgres_server import PostgresServer

from holdfast import Agent, AsyncClient
from holdfast.errors import UsageError
from holdfast.journal import Journal, open_store, verify
from holdfast.runtime.runtime import PROJECTIONS
from holdfast.settings import load_settings
from holdfast.testing import ScriptedModel


def client_of(place: Path, url: str = "") -> AsyncClient:
    overrides = {"storage.url": url, "workspace": str(place.parent)}
    return AsyncClient(place, settings=load_settings(overrides=overrides).settings)


async def fill(client: AsyncClient, count: int = 3) -> list[str]:
    """Have some runs, one of them large and one redacted."""
    runs = []
    for number in range(count):
        agent = Agent("a", model=ScriptedModel("x" * 50_000 if number == 1 else "fine"))
        runs.append((await agent.run(f"hi {number}", client=client)).run_id)
    first = await client.runs.get(runs[0])
    await client.sessions.delete(first.session_id)
    return runs[1:]


async def read_feed(url: str, place: Path) -> list[tuple[int, str, str]]:
    store = open_store(url, base_dir=place, projections=PROJECTIONS)
    async with Journal(store) as journal:
        assert await verify(journal.store) == []
        return [(one.seq, one.hash, one.kind) for one in await journal.store.feed(after=0)]


async def test_records_move_to_postgres_and_back_as_they_are(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    here, there = f"sqlite://{tmp_path}/one", postgres.url(postgres.make_database())
    (tmp_path / "two").mkdir()
    back = f"sqlite://{tmp_path}/two"
    async with client_of(tmp_path / "one") as client:
        runs = await fill(client)
    seen: list[tuple[int, int]] = []
    async with client_of(tmp_path / "other") as client:
        report = await client.storage.copy(
            here, there, progress=lambda done, total: seen.append((done, total))
        )
        assert report.events == seen[-1][0] == seen[-1][1] and report.known_sessions == 0
        again = await client.storage.copy(here, there)
        assert (again.sessions, again.known_sessions) == (0, report.sessions)
        assert (await client.storage.copy(there, back)).events == report.events
    feed = await read_feed(here, tmp_path)
    assert feed == await read_feed(there, tmp_path) == await read_feed(back, tmp_path)
    async with client_of(tmp_path / "three", there) as client:
        for run_id in runs:
            assert (await client.runs.get(run_id)).status == "completed"
        # Numbers go on behind those that were copied.
        await fill(client, 1)
        assert await (await client.storage.journal()).read_last_seq() > feed[-1][0]


async def test_an_interrupted_copy_goes_on(tmp_path: Path, postgres: PostgresServer) -> None:
    here, there = f"sqlite://{tmp_path}/one", postgres.url(postgres.make_database())
    async with client_of(tmp_path / "one") as client:
        await fill(client)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    async with client_of(tmp_path / "other") as client:
        with pytest.raises(KeyboardInterrupt):
            await client.storage.copy(here, there, progress=stop)
        report = await client.storage.copy(here, there)
        assert report.known_sessions == 1 and report.sessions >= 1
    assert await read_feed(here, tmp_path) == await read_feed(there, tmp_path)


async def test_a_target_with_records_of_its_own_is_refused(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    here, there = f"sqlite://{tmp_path}/one", postgres.url(postgres.make_database())
    async with client_of(tmp_path / "one") as client:
        await fill(client)
    async with client_of(tmp_path / "own", there) as client:
        await fill(client)
    async with client_of(tmp_path / "other") as client:
        for wrong in ((here, there), (there, here), (here, here)):
            with pytest.raises(UsageError):
                await client.storage.copy(*wrong)


async def test_a_backup_is_taken_while_others_write_and_takes_the_place(tmp_path: Path) -> None:
    async with client_of(tmp_path / "state") as client:
        runs = await fill(client)
        session = (await client.runs.get(runs[0])).session_id
        saved = await client.artifacts.save("a.txt", b"content", session_id=session)
        writing = asyncio.create_task(fill(client, 4))
        report = await client.storage.backup(tmp_path / "copy")
        await writing
        assert "journal.db" in report.databases and report.events > 0
        for wrong in (tmp_path / "copy", tmp_path / "state" / "inside"):
            with pytest.raises(UsageError):
                await client.storage.backup(wrong)
    assert (tmp_path / "copy").stat().st_mode & 0o077 == 0
    async with client_of(tmp_path / "copy") as client:
        for run_id in runs:
            assert (await client.runs.get(run_id)).status == "completed"
        assert await client.artifacts.load(saved.id) == b"content"
        assert await verify((await client.storage.journal()).store) == []


async def test_a_dump_of_postgres_is_restored_with_roles_that_hold(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    """What pg_dump writes, psql brings back: records, chains, walls between tenants."""
    name, other = postgres.make_database(), postgres.make_database()
    async with client_of(tmp_path / "one", postgres.url(name)) as client:
        runs = await fill(client)
        with pytest.raises(UsageError):
            await client.storage.backup(tmp_path / "copy")
    host = {**os.environ, "PGHOST": str(postgres.server.get_uri()).rpartition("host=")[2]}
    tools = Path(postgres.server.bin_path)
    dump = await asyncio.to_thread(
        subprocess.run,
        [tools / "pg_dump", "-U", "postgres", "-Fc", name],
        env=host,
        stdout=subprocess.PIPE,
        check=True,
    )
    await asyncio.to_thread(
        subprocess.run,
        [tools / "pg_restore", "-U", "postgres", "-d", other, "--exit-on-error"],
        env=host,
        input=dump.stdout,
        check=True,
    )
    before = await read_feed(postgres.url(name), tmp_path)
    assert before == await read_feed(postgres.url(other), tmp_path)
    async with client_of(tmp_path / "two", postgres.url(other)) as client:
        assert (await client.runs.get(runs[0])).status == "completed"
        await fill(client, 1)
