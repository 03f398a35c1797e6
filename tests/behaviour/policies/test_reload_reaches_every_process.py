"""A reload in one process reaches all others on the same records; a refused one says so in all."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import AsyncClient
from holdfast.errors import PolicyInvalid
from holdfast.journal import SYSTEM_SESSION
from holdfast.policy import PolicyStore
from holdfast.server import create_app
from holdfast.server.process import make_server
from holdfast.settings import Settings, load_settings

OLD = "agents: {build: {allowed_tools: [read]}}\n"
NEW = "agents: {build: {allowed_tools: [bash]}}\n"
WRONG = "agents: [\n"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    (tmp_path / "policies").mkdir()
    path = tmp_path / "policies" / "tools.yaml"
    path.write_text(OLD)
    return path


@pytest.fixture
def settings(tmp_path: Path, rules: Path) -> Settings:
    chosen = {
        "storage.state_dir": str(tmp_path / "state"),
        "workspace": str(tmp_path),
        "policies.dir": str(rules.parent),
        "server.port": 0,
    }
    return load_settings(overrides=chosen).settings


async def wait_until(is_there: Callable[[], bool]) -> None:
    """Look until it holds; what is looked at has no event to wait for."""
    for _ in range(400):
        if is_there():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not become true in time")


def hear(store: PolicyStore) -> asyncio.Event:
    changed = asyncio.Event()
    store.on_change(lambda _: changed.set())
    return changed


async def call_cli(tmp_path: Path, *words: str) -> int:
    """Run `holdfast` in a process of its own; returns how it ended."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast", *words),
        cwd=tmp_path,
        env={
            **os.environ,
            "AGENT_STATE_DIR": str(tmp_path / "state"),
            "HOLDFAST_POLICIES__DIR": str(tmp_path / "policies"),
            "AGENT_WORKSPACE": str(tmp_path),
        },
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    return await process.wait()


async def test_open_client_follows_policies_reload_of_another_process(
    tmp_path: Path, rules: Path, settings: Settings
) -> None:
    async with AsyncClient(settings=settings) as client:
        store = await client.policies.store()
        before = (await client.policies.status()).version
        changed = hear(store)
        rules.write_text(NEW)
        assert await call_cli(tmp_path, "policies", "reload") == 0
        async with asyncio.timeout(20):
            await changed.wait()
        status = await client.policies.status()
        assert status.version == store.bundle.version != before
        assert status.refused == ()
        # Wrong files: the command refuses, and so does every process that is open.
        rules.write_text(WRONG)
        assert await call_cli(tmp_path, "policies", "reload") == 3
        await wait_until(lambda: bool(store.refused))
        status = await client.policies.status()
        assert status.version == store.bundle.version
        assert "tools.yaml" in status.refused[0]


async def test_clients_follow_each_other_within_a_second_and_tell_once(
    rules: Path, settings: Settings
) -> None:
    async with (
        AsyncClient(settings=settings) as one,
        AsyncClient(settings=settings) as two,
        AsyncClient(settings=settings) as three,
    ):
        stores = [await client.policies.store() for client in (one, two, three)]
        heard = [hear(store) for store in stores]
        rules.write_text(NEW)
        begun = time.monotonic()
        done = await one.policies.reload(asked_by="operator")
        async with asyncio.timeout(20):
            await asyncio.gather(*(changed.wait() for changed in heard))
        # Half a second between looks; the rest is for a busy machine.
        assert time.monotonic() - begun < 5
        assert {store.bundle.version for store in stores} == {done.version}
        rules.write_text(WRONG)
        assert not (await two.policies.reload()).is_accepted
        await wait_until(lambda: all(store.refused for store in stores))
        rules.write_text(OLD)
        for changed in heard:
            changed.clear()
        assert (await three.policies.reload()).is_accepted
        async with asyncio.timeout(20):
            await asyncio.gather(*(changed.wait() for changed in heard))
        assert not any(store.refused for store in stores)
        journal = await one.storage.journal()
        facts = [event.kind for event in await journal.read("system")]
        # Three starts, then one fact of each process per change; the refusal was told once.
        assert facts.count("policy.loaded") == 9
        assert facts.count("policy.rejected") == 1


async def test_server_and_its_tenants_follow_a_hangup(
    tmp_path: Path, rules: Path, settings: Settings
) -> None:
    app = create_app(settings)
    server = make_server(app)
    serving = asyncio.create_task(server.serve())
    await wait_until(lambda: server.started)
    try:
        operator = app.runtimes.operator
        await operator.control.tenants.create("north")
        tenant = (await app.runtimes._open("north")).runtime
        stores = [await one.load_policies_once() for one in (operator, tenant)]
        heard = [hear(store) for store in stores]
        rules.write_text(NEW)
        os.kill(os.getpid(), signal.SIGHUP)
        async with asyncio.timeout(20):
            await asyncio.gather(*(changed.wait() for changed in heard))
        assert stores[0].bundle.version == stores[1].bundle.version
    finally:
        server.handle_exit(signal.SIGTERM, None)
        async with asyncio.timeout(20):
            await serving


async def test_status_of_files_that_were_wrong_from_the_start_is_refused(
    rules: Path, settings: Settings
) -> None:
    rules.write_text(WRONG)
    async with AsyncClient(settings=settings) as client:
        with pytest.raises(PolicyInvalid):
            await client.policies.status()


async def test_many_first_runs_at_once_read_the_policies_once(settings: Settings) -> None:
    async with AsyncClient(settings=settings) as client:
        await asyncio.gather(*(client.runs.execute("build", "", "2 + 2") for _ in range(5)))
        journal = await client.storage.journal()
        loaded = await journal.read(SYSTEM_SESSION, kinds=frozenset({"policy.loaded"}))
    assert len(loaded) == 1
