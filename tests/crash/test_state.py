"""State is killed at every moment at which it writes, and counted up by several processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import state_scenarios as scenarios
from postgres_server import APP, PostgresServer

from holdfast.journal import verify

SCENARIOS = Path(__file__).with_name("state_scenarios.py")
PATIENCE_S = 240
TIMES = 1_000


@contextlib.asynccontextmanager
async def started(*words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(SCENARIOS),
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def hear(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        return (await process.stdout.readline()).decode().strip()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A directory, or the address of an empty database: what processes share."""
    if request.param == "sqlite":
        return str(tmp_path)
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.url(server.make_database())


def test_a_kill_at_any_boundary_loses_no_value_and_repeats_none(crash_matrix) -> None:
    report = crash_matrix(scenarios.write_values, scenarios.check_values, most=24)
    assert report.kills >= 20
    assert any("COMMIT" in name for name in report.boundaries)


def test_a_kill_around_any_change_of_a_database_loses_no_value(
    crash_matrix, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = postgres.make_database()
    asyncio.run(scenarios.set_up(postgres.url(name), APP))
    monkeypatch.setenv("TEST_POSTGRES", postgres.url(name, role=APP))
    report = crash_matrix(scenarios.write_rows, scenarios.check_rows, most=10, random_kills=2)
    assert report.kills >= 10
    assert any("INSERT INTO" in name or "EXECUTE" in name for name in report.boundaries)


async def test_two_processes_add_a_thousand_each_and_none_is_lost(
    place: str, request: pytest.FixtureRequest
) -> None:
    is_quick = "://" in place and not request.config.getoption("--crash-all")
    times = TIMES // 10 if is_quick else TIMES
    async with (
        started("count", place, "one", str(times)) as one,
        started("count", place, "two", str(times)) as two,
    ):
        assert await hear(one) == "done"
        assert await hear(two) == "done"
    async with scenarios.open_journal(place) as journal:
        state = scenarios.manager_of(journal)
        assert await state.get("global/count") == 2 * times
        entry = await state.entry("global/count")
        assert entry is not None and entry.version == 2 * times
        assert await state.get("user:one/own") == await state.get("user:two/own") == times
        assert await verify(journal.store) == []


async def test_a_killed_counter_has_counted_what_it_wrote(place: str) -> None:
    async with started("count", place, "one", "1000000") as process:
        async with scenarios.open_journal(place) as journal, asyncio.timeout(PATIENCE_S):
            state = scenarios.manager_of(journal)
            async with contextlib.aclosing(state.watch("user:one/", after=0)) as changes:
                async for change in changes:
                    if change.value >= 20:
                        break
            process.send_signal(signal.SIGKILL)
            await process.wait()
            own, count = await state.get("user:one/own"), await state.get("global/count")
            assert count in (own, own + 1)
            assert await verify(journal.store) == []


async def test_a_watch_hears_of_another_process_at_once_and_without_gaps(place: str) -> None:
    async with started("change_when_told", place, "custom:team/word") as process:
        assert await hear(process) == "ready"
        assert process.stdin is not None
        async with scenarios.open_journal(place) as journal, asyncio.timeout(PATIENCE_S):
            state = scenarios.manager_of(journal)
            seen = []
            async with contextlib.aclosing(state.watch("custom:team/", after=0)) as changes:
                for word in ("one", "two", "three"):
                    process.stdin.write(f"{word}\n".encode())
                    await process.stdin.drain()
                    seen.append((await anext(changes)).value)
            assert seen == ["one", "two", "three"]
