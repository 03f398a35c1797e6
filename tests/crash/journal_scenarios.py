"""What is killed: work on a journal that can be taken up again."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from holdfast.errors import AlreadyExists
from holdfast.journal import Journal, RowQuery, SqliteStore, verify
from holdfast.testing._store_samples import SAMPLE_TABLES, TOPICS, Note, SampleStep

TARGET = 24


def acknowledge(directory: str, number: int) -> None:
    """Say that an append has returned, in a way that survives this process."""
    handle = os.open(f"{directory}/acknowledged", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.write(handle, b"%d\n" % number)
    os.close(handle)


def acknowledged(directory: Path) -> list[int]:
    path = directory / "acknowledged"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def append_in_process(directory: str) -> None:
    asyncio.run(_append(directory, "process"))


def append_for_power_cuts(directory: str) -> None:
    asyncio.run(_append(directory, "power"))


async def _append(directory: str, durability) -> None:
    """Append single events, batches, synced steps and large payloads, up to a target."""
    path = Path(directory) / "journal.db"
    store = SqliteStore(path, projections=SAMPLE_TABLES, durability=durability)
    async with Journal(store) as journal:
        try:
            await journal.append("s1", [Note(text="first")], must_be_new=True)
            acknowledge(directory, 1)
        except AlreadyExists:
            [head] = await store.heads("s1")
            await store.release("s1", head.epoch)
        lease = await store.acquire("s1", "me", 60)
        assert lease is not None
        number = lease.session_seq
        while number < TARGET:
            payloads = [Note(text="n", rank=number), SampleStep(number=number)][number % 2 :]
            if number % 7 == 0:
                payloads = [Note(text="x" * 40_000)]
            events = await journal.append("s1", payloads, epoch=lease.epoch)
            number = events[-1].session_seq
            acknowledge(directory, number)
        if not (await store.read("s1", seqs=[1]))[0].is_redacted:
            await journal.redact("s1", [1, 3, 15], reason="test")
        await store.collect()


async def check_journal(directory: Path) -> None:
    """Nothing acknowledged is lost, numbers have no gaps, the chain is valid, rows are true."""
    store = SqliteStore(directory / "journal.db", projections=SAMPLE_TABLES)
    async with Journal(store) as journal:
        assert await verify(store) == []
        events = await journal.read_all("s1")
        assert [event.session_seq for event in events] == list(range(1, len(events) + 1))
        told = acknowledged(directory)
        assert told == sorted(set(told))
        assert told[-1] <= len(events)
        assert len(events) > TARGET
        rows = await journal.rows(RowQuery(projection=TOPICS))
        await journal.rebuild()
        assert await journal.rows(RowQuery(projection=TOPICS)) == rows


def append_many(directory: str) -> None:
    """Append without end; somebody will put an end to it."""
    asyncio.run(_append_many(directory))


async def _append_many(directory: str) -> None:
    path = Path(directory) / "journal.db"
    store = SqliteStore(path, projections=SAMPLE_TABLES)
    async with Journal(store) as journal:
        if not await store.heads("s1"):
            await journal.append("s1", [Note(text="first")], must_be_new=True)
        [head] = await store.heads("s1")
        await store.release("s1", head.epoch)
        lease = await store.acquire("s1", "me", 60)
        assert lease is not None

        async def write(rest: int) -> None:
            while True:
                large = [Note(text="x" * 40_000)] if rest == 3 else [Note()]
                events = await journal.append("s1", large, epoch=lease.epoch)
                acknowledge(directory, events[-1].session_seq)
                await asyncio.sleep(0)

        # Alone and in groups: both ways of committing are under way when the end comes.
        for rest in range(40):
            event = await journal.append("s1", [Note(rank=rest)], epoch=lease.epoch)
            acknowledge(directory, event[0].session_seq)
        await asyncio.gather(*[write(rest) for rest in range(4)])
