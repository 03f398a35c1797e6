"""Group commit: who shares a transaction, and who has one alone without waiting."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.journal import Journal, SqliteStore
from holdfast.testing._store_samples import Mark, Note

_MANY = 20
_STEPS = 3


@pytest.fixture
async def journal(tmp_path: Path):
    async with Journal(SqliteStore(tmp_path / "journal.db")) as opened:
        for number in range(_MANY):
            await opened.append(f"s{number}", [Note()], must_be_new=True)
        yield opened


class _Commits:
    """Counts the transactions, and single statements outside of one, of a journal's writer."""

    def __init__(self, journal: Journal) -> None:
        assert isinstance(journal.store, SqliteStore) and journal.store._writer is not None
        self.connection = journal.store._writer._connection
        self.count = 0
        self.connection.set_trace_callback(self._note)

    def _note(self, statement: str) -> None:
        is_single = statement.startswith("INSERT") and not self.connection.in_transaction
        self.count += statement == "BEGIN IMMEDIATE" or is_single


async def test_tasks_that_write_in_step_share_every_commit_from_the_first_one_on(journal) -> None:
    commits = _Commits(journal)

    async def work(number: int) -> None:
        for _ in range(_STEPS):
            await journal.append(f"s{number}", [Mark()])

    await asyncio.gather(*(work(number) for number in range(_MANY)))
    assert commits.count == _STEPS


async def test_a_task_that_writes_alone_is_served_without_a_trip_around_the_loop(journal) -> None:
    await journal.append("s0", [Mark()])
    trips = 0

    def turn() -> None:
        nonlocal trips
        trips += 1

    asyncio.get_running_loop().call_soon(turn)
    for _ in range(_STEPS):
        await journal.append("s0", [Mark()])
    assert trips == 0


async def test_a_task_beside_one_that_was_alone_is_served_and_both_are_grouped_then(
    journal,
) -> None:
    await journal.append("s0", [Mark()])

    async def work() -> None:
        for _ in range(_STEPS):
            await journal.append("s1", [Mark()])

    commits = _Commits(journal)
    beside = asyncio.create_task(work())
    await asyncio.sleep(0)
    for _ in range(_STEPS):
        await journal.append("s0", [Mark()])
    await beside
    # The first that comes is served as before; from then on both are in step.
    assert commits.count <= _STEPS + 1
    assert len(await journal.read("s0")) == len(await journal.read("s1")) + 1


class _Disk:
    """A clock by which every commit takes as long as the disk does."""

    def __init__(self) -> None:
        self.takes_s = 0.0
        self._at = 0.0

    def now(self) -> float:
        return 1_000.0

    def monotonic(self) -> float:
        self._at += self.takes_s
        return self._at


async def _trips_for(journal: Journal, count: int) -> int:
    """Append facts that must reach the disk; return how often the loop went on meanwhile."""
    trips = 0

    def turn() -> None:
        nonlocal trips
        trips += 1

    for _ in range(count):
        asyncio.get_running_loop().call_soon(turn)
        await journal.append("s", [Mark()], is_synced=True)
    return trips


async def test_the_loop_waits_for_a_disk_only_once_it_is_known_to_be_quick(tmp_path: Path) -> None:
    disk = _Disk()
    async with Journal(SqliteStore(tmp_path / "journal.db", clock=disk)) as journal:
        await journal.append("s", [Note()], must_be_new=True)
        assert await _trips_for(journal, 4) == 4
        assert await _trips_for(journal, 3) == 0
        disk.takes_s = 1.0
        # One commit is all that a disk which has become slow holds the loop up for.
        assert await _trips_for(journal, 1) == 0
        assert await _trips_for(journal, 3) == 3
        disk.takes_s = 0.0
        assert await _trips_for(journal, 4) == 4
        assert await _trips_for(journal, 3) == 0
        assert len(await journal.read("s", limit=100)) == 1 + 4 + 3 + 1 + 3 + 4 + 3


async def test_tasks_that_must_reach_a_quick_disk_share_a_commit(tmp_path: Path) -> None:
    async with Journal(SqliteStore(tmp_path / "journal.db", clock=_Disk())) as journal:
        for number in range(_MANY):
            await journal.append(f"s{number}", [Note()], must_be_new=True, is_synced=True)
        commits = _Commits(journal)
        await asyncio.gather(
            *(journal.append(f"s{n}", [Mark()], is_synced=True) for n in range(_MANY))
        )
        assert commits.count == 1
