"""Several processes, one file: nobody writes where they may not, nothing is lost or mixed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from two_process_scenarios import SESSION

from holdfast.journal import Journal, SqliteStore, verify
from holdfast.sessions import SESSION_PROJECTIONS
from holdfast.sessions.manager import SessionManager
from holdfast.testing._store_samples import SAMPLE_TABLES, Note
from holdfast.turns.leases import LeaseKeeper

SCENARIOS = Path(__file__).with_name("two_process_scenarios.py")
PATIENCE_S = 120


@contextlib.asynccontextmanager
async def started(*words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a second process with one of the scenarios; it is gone at the end of the block."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(SCENARIOS),
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment,
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


async def stopped(process: asyncio.subprocess.Process) -> None:
    """Wait until a process has stopped itself; the kernel tells its parent."""

    def wait() -> None:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)

    async with asyncio.timeout(PATIENCE_S):
        await asyncio.to_thread(wait)


async def test_a_stopped_writer_cannot_write_after_its_lease_moved(tmp_path: Path) -> None:
    async with Journal(SqliteStore(tmp_path / "journal.db")) as journal:
        await journal.append("s1", [Note()], must_be_new=True)
        async with started("write_after_being_stopped", str(tmp_path)) as zombie:
            assert await hear(zombie) == "ready"
            await stopped(zombie)
            head = None
            async with asyncio.timeout(PATIENCE_S):
                while head is None:
                    head = await journal.store.acquire("s1", "me", 60)
                    await asyncio.sleep(0.01)
            await journal.append("s1", [Note(text="mine")], epoch=head.epoch)
            zombie.send_signal(signal.SIGCONT)
            assert await hear(zombie) == "refused 2, lost ['s1']"
        await journal.append("s1", [Note(text="mine")], epoch=head.epoch)
        texts = [event.expect(Note).text for event in await journal.read("s1")]
        assert texts == ["text", "before", "mine", "mine"]
        assert await verify(journal.store) == []


async def test_a_subscriber_in_another_process_sees_everything_once(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with Journal(SqliteStore(path, projections=SAMPLE_TABLES)) as journal:
        async with (
            started("write_notes", str(tmp_path), "a", "150") as first,
            started("write_notes", str(tmp_path), "b", "150") as second,
        ):
            seen = []
            expected = 2 * sum(1 + number % 3 for number in range(1, 150)) + 2
            async with asyncio.timeout(PATIENCE_S):
                async for event in journal.subscribe(after=0):
                    seen.append(event)
                    if len(seen) == expected:
                        break
            assert await hear(first) == await hear(second) == "done"
        assert [event.seq for event in seen] == list(range(1, expected + 1))
        for name in ("a", "b"):
            numbers = [event.session_seq for event in seen if event.session_id == name]
            assert numbers == list(range(1, expected // 2 + 1))
        assert await journal.read_last_seq() == expected
        assert await verify(journal.store) == []


async def test_two_processes_take_two_hundred_turns_in_one_session(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with Journal(SqliteStore(path, projections=SESSION_PROJECTIONS)) as journal:
        keeper = LeaseKeeper(journal)
        await SessionManager(journal, keeper).create_session("shared", session_id=SESSION)
        async with (
            started("take_turns", str(tmp_path), "left", "100") as left,
            started("take_turns", str(tmp_path), "right", "100") as right,
        ):
            assert await hear(left) == "done"
            assert await hear(right) == "done"
        keeper.close()
        events = await journal.read_all(SESSION)
        assert await verify(journal.store) == []
    assert [event.session_seq for event in events] == list(range(1, len(events) + 1))
    queued = [event.run_id for event in events if event.kind == "run.queued"]
    begun = [event.run_id for event in events if event.kind == "run.started"]
    assert len(queued) == len(set(queued)) == 200
    assert begun == queued
    assert not any(event.kind in ("run.resumed", "run.failed") for event in events)
    inside = [event for event in events if event.kind.startswith(("run.", "message."))]
    inside = [event for event in inside if event.kind != "run.queued"]
    steps = ["run.started", "message.created", "message.created", "run.completed"]
    for number, run_id in enumerate(begun):
        turn = inside[4 * number : 4 * number + 4]
        assert [event.kind for event in turn] == steps
        assert {event.run_id for event in turn} == {run_id}


async def test_eight_processes_create_one_file(tmp_path: Path) -> None:
    names = [f"s{number}" for number in range(8)]
    async with contextlib.AsyncExitStack() as stack:
        processes = [
            await stack.enter_async_context(started("open_and_append", str(tmp_path), name))
            for name in names
        ]
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(b"go\n")
            await process.stdin.drain()
        assert [await hear(process) for process in processes] == ["done"] * 8
    path = tmp_path / "new" / "journal.db"
    async with Journal(SqliteStore(path, projections=SAMPLE_TABLES)) as journal:
        assert sorted(head.session_id for head in await journal.store.heads()) == names
        assert await verify(journal.store) == []
    assert path.stat().st_mode & 0o777 == 0o600
    left = {found.name for found in path.parent.iterdir()}
    assert left == {"journal.db", "journal.db-state"}
