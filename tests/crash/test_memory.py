"""Killed while storing: nothing acknowledged is lost, nobody else is disturbed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from holdfast.memory import Identity, MemoryEntry, MemoryManager, SqliteMemoryStorage
from holdfast.memory.static_vectors import make_default_embedder

SCENARIO = Path(__file__).with_name("memory_scenarios.py")
PATIENCE_S = 120
PROCESSES = 4
EACH = 40


async def start(directory: Path, name: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        str(SCENARIO),
        str(directory),
        name,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


async def hear(process: asyncio.subprocess.Process, wanted: int) -> list[str]:
    """Return acknowledged ids; the process is killed in the midst of storing."""
    assert process.stdout is not None and process.stderr is not None
    ids = []
    async with asyncio.timeout(PATIENCE_S):
        while len(ids) < wanted:
            line = await process.stdout.readline()
            assert line, (await process.stderr.read()).decode()
            ids.append(line.decode().strip())
        process.send_signal(signal.SIGKILL)
        rest = (await process.stdout.read()).decode()
        # The last line may be half of one.
        ids += rest.splitlines() if rest.endswith("\n") else rest.splitlines()[:-1]
        await process.wait()
    return ids


async def test_four_killed_processes_lose_nothing_acknowledged(tmp_path: Path) -> None:
    acknowledged: set[str] = set()
    for life in range(2):
        started = [await start(tmp_path, f"p{n}x{life}") for n in range(PROCESSES)]
        for ids in await asyncio.gather(*[hear(process, EACH) for process in started]):
            acknowledged |= set(ids)
    storage = SqliteMemoryStorage(tmp_path / "memory.db")
    identity = Identity(project="shared")
    async with MemoryManager(storage, make_default_embedder(), identity=identity) as manager:
        stored = await manager.list_all_memories(limit=100_000)
        assert acknowledged <= {entry.id for entry in stored}
        assert len(acknowledged) >= 2 * PROCESSES * EACH
        found = await manager.search_memory("", "walnut p0x0 n3", 5)
        assert "Person1: walnut p0x0 n3" in [entry.content for entry in found]
        assert len(await manager.search_memory("", "walnut", 1000)) == min(1000, len(stored))
        await manager.pipeline.settle()
        counts = await manager.stats()
        assert sum(counts.vectors.values()) == sum(counts.tokens.values()) == len(stored)
        # Every process told its lines in order; each follows the one before of its own.
        by_id = {entry.id: entry for entry in stored}
        for entry in stored:
            if entry.previous_id:
                before = by_id[entry.previous_id]
                assert before.session_id == entry.session_id and number(before) < number(entry)
        linked = sum(bool(entry.previous_id) for entry in stored)
        assert linked == len(stored) - 2 * PROCESSES


def number(entry: MemoryEntry) -> int:
    return int(entry.content.rpartition("n")[2])
