"""Everything but the workers' own connections works behind PgBouncer in transaction mode."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import machine
import psycopg
import pytest
from postgres_server import OWNER, PostgresServer

from holdfast import Agent, AsyncClient
from holdfast.errors import LeaseLost
from holdfast.journal import Journal, open_store, verify
from holdfast.settings import load_settings
from holdfast.testing import ScriptedModel
from holdfast.testing._store_samples import SAMPLE_TABLES, Note

CONNECTIONS = 3
"""To the server, for all clients together: fewer than these alone would hold."""


@pytest.fixture(scope="module")
def pooler(postgres: PostgresServer) -> Iterator[str]:
    """A PgBouncer before the server; its address without a database."""
    known = psycopg.conninfo.conninfo_to_dict(postgres.uri)
    with tempfile.TemporaryDirectory(prefix="hf-bouncer-") as made:
        folder = Path(made)
        (folder / "users.txt").write_text(f'"{OWNER}" ""\n')
        (folder / "bouncer.ini").write_text(
            f"[databases]\n* = host={known['host']}\n[pgbouncer]\nlisten_addr =\n"
            f"unix_socket_dir = {folder}\nlisten_port = 6432\nauth_type = trust\n"
            f"auth_file = {folder}/users.txt\npool_mode = transaction\n"
            f"default_pool_size = {CONNECTIONS}\nmax_client_conn = 200\n"
        )
        command = [machine.program("pgbouncer", "pgbouncer"), str(folder / "bouncer.ini")]
        options: dict[str, object] = {}
        if os.geteuid() == 0:  # it refuses to be root
            user = pwd.getpwnam(str(postgres.server.system_user))
            for path in (folder, *folder.iterdir()):
                os.chown(path, user.pw_uid, user.pw_gid)
            options = {"user": user.pw_uid, "group": user.pw_gid}
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options) as process:  # type: ignore[call-overload]
            assert process.stderr is not None
            told = []
            for line in process.stderr:
                told.append(line)
                if "process up" in line:
                    break
            else:
                pytest.fail("".join(told))
            yield f"postgresql://{OWNER}@/{{}}?host={folder}&port=6432&holdfast_pooler=yes"
            process.send_signal(signal.SIGINT)
            process.stderr.read()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()


async def test_many_stores_share_few_connections_and_keep_every_promise(
    postgres: PostgresServer, pooler: str, tmp_path: Path
) -> None:
    url = pooler.format(postgres.make_database())
    journals = [
        Journal(open_store(url, base_dir=tmp_path, projections=SAMPLE_TABLES)) for _ in range(6)
    ]
    for journal in journals:
        await journal.open()
    first, second = journals[:2]
    await first.append("s1", [Note()], must_be_new=True)
    held = await first.store.acquire("s1", "me", 60)
    assert held is not None
    assert await asyncio.to_thread(first.store.renew, {"s1": held.epoch}, "me", 60.0) == set()
    assert await second.store.acquire("s1", "you", 60) is None

    async def write(number: int) -> None:
        name = f"t{number}"
        await journals[number].append(name, [Note()], must_be_new=True)
        for count in range(15):  # more often than a statement is prepared by itself
            await journals[number].append(name, [Note(text=str(count))], after=count + 1)
            await journals[(number + 1) % 6].store.heads(name)

    async with asyncio.timeout(60):
        await asyncio.gather(*(write(number) for number in range(6)))
        # Told or not: who waits finds it within the poll.
        before = await second.read_last_seq()
        waiting = asyncio.create_task(second.store.changed(before, 30))
        await first.append("s1", [Note()], epoch=held.epoch)
        while not await waiting or await second.read_last_seq() == before:
            waiting = asyncio.create_task(second.store.changed(before, 30))
    with pytest.raises(LeaseLost):
        await second.append("s1", [Note()], epoch=held.epoch + 1)
    assert await verify(first.store) == []
    async with first.store.alone("x"):  # type: ignore[attr-defined]
        await second.append("t0", [Note()])
    for journal in journals:
        await journal.close()


async def test_a_run_and_its_worker_behind_a_pooler(
    postgres: PostgresServer, pooler: str, tmp_path: Path
) -> None:
    """Workers listen, so they go around it; all else goes through."""
    name = postgres.make_database()
    overrides = {
        "storage.url": pooler.format(name),
        "storage.wakeups_url": postgres.url(name),
        "workspace": str(tmp_path),
    }
    settings = load_settings(overrides=overrides).settings
    async with AsyncClient(tmp_path / "state", settings=settings) as client:
        await client.agents.register(Agent("a", model=ScriptedModel("fine")))
        stop = asyncio.Event()
        working = asyncio.create_task(client.workers.run(stop))
        run = await client.runs.submit("a", "", "hi")
        async with asyncio.timeout(60):
            assert (await client.runs.wait(run.id)).status == "completed"
            stop.set()
            await working
