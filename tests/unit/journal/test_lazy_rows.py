"""Rows that wait: not in the database while a lease is held, and never missed by anybody."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.errors import StorageError
from holdfast.journal import Journal, RowQuery, SqliteStore, verify
from holdfast.journal.events import SessionDeleted
from holdfast.journal.stores import _sqlite_chains, _sqlite_rows
from holdfast.testing._store_samples import LAZY_TOPICS, TOPICS, Mark, Note, SampleStep

BOTH = (TOPICS, LAZY_TOPICS)
ALONE = (LAZY_TOPICS,)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture(params=[ALONE, BOTH], ids=["alone", "both"])
async def journal(path: Path, request: pytest.FixtureRequest):
    """A session whose lease is held, with a row that waits."""
    async with Journal(SqliteStore(path, projections=request.param)) as opened:
        await opened.append("s1", [Note(topic="first")], must_be_new=True)
        await opened.store.acquire("s1", "me", 60)
        await opened.append("s1", [Mark()], epoch=1)
        await opened.append("s1", [Note(topic="a", rank=1)], epoch=1)
        yield opened


def another(journal: Journal, path: Path) -> Journal:
    """A journal as another process has it."""
    return Journal(SqliteStore(path, projections=journal.store._tables.projections))


def written(path: Path) -> list[str]:
    """The keys of the lazy rows that are in the database."""
    with closing(sqlite3.connect(path)) as connection:
        sql = "SELECT key FROM p_testing_lazy_topics_v1 ORDER BY key"
        return [key for (key,) in connection.execute(sql)]


async def seen(journal: Journal) -> dict[str, int]:
    """The keys of the lazy rows that a query finds, with their counts; the others are alike."""
    lazy = await journal.rows(RowQuery(projection=LAZY_TOPICS))
    if TOPICS in journal.store._tables.projections:
        assert lazy == await journal.rows(RowQuery(projection=TOPICS))
    return {row.key: row.row.count for row in lazy}


async def test_rows_wait_until_they_are_asked_for(journal, path) -> None:
    assert written(path) == ["first"]
    assert await seen(journal) == {"a": 1, "first": 1}
    assert written(path) == ["a", "first"]
    # Nothing waits now, so that asking again writes nothing.
    before = writes_of(journal)
    await seen(journal)
    await journal.append("s1", [Mark()], epoch=1)
    await seen(journal)
    assert writes_of(journal) == before + 1


def writes_of(journal: Journal) -> int:
    return journal.store._writer._connection.total_changes


@pytest.mark.parametrize("way", ["with the last append", "alone"])
async def test_rows_are_written_when_the_lease_is_given_back(journal, path, way) -> None:
    if way == "alone":
        await journal.store.release("s1", 7)  # not this one
        assert written(path) == ["first"]
        await journal.store.release("s1", 1)
    else:
        await journal.append("s1", [Note(topic="b", text="")], epoch=1, release=True)
    assert written(path) == ["a", "first"]
    # Without a lease nothing waits.
    await journal.append("s1", [Note(topic="c")])
    assert written(path) == ["a", "c", "first"]
    assert await seen(journal) == {"a": 1, "c": 1, "first": 1}


async def test_an_event_that_changes_an_eager_row_is_stored_with_it(path) -> None:
    async with Journal(SqliteStore(path, projections=BOTH)) as journal:
        await journal.append("s1", [Note()], must_be_new=True)
        await journal.store.acquire("s1", "me", 60)
        await journal.append("s1", [Note(topic="a"), Note(topic="b")], epoch=1)
        with closing(sqlite3.connect(path)) as connection:
            found = connection.execute("SELECT count(*) FROM p_testing_topics_v1").fetchone()
        assert found == (2,)
        assert written(path) == ["a"]


async def test_rows_of_a_process_that_died_are_made_from_the_log(journal, path) -> None:
    await journal.close()
    assert written(path) == ["first"]
    async with another(journal, path) as other:
        assert await seen(other) == {"a": 1, "first": 1}
    await journal.open()


async def test_whoever_takes_over_a_session_writes_what_waits_first(journal, path) -> None:
    journal.store.renew({"s1": 1}, "me", 0.0)
    async with another(journal, path) as other:
        head = await other.store.acquire("s1", "you", 60)
        assert head is not None and head.epoch == 2
        await other.append("s1", [Note(topic="a")], epoch=2)
        assert await seen(other) == {"a": 2, "first": 1}
        await other.store.release("s1", 2)
    assert await seen(journal) == {"a": 2, "first": 1}


async def test_others_who_read_and_write_meanwhile_confuse_nobody(journal, path) -> None:
    async with another(journal, path) as other:
        assert await seen(other) == {"a": 1, "first": 1}
        await journal.append("s1", [Note(topic="a")], epoch=1)
        await journal.append("s1", [Note(topic="b", text="x"), Note(topic="b", text="")], epoch=1)
        assert await seen(other) == {"a": 2, "first": 1}
        await other.append("s1", [Note(topic="a"), Note(topic="c")])
        assert await seen(journal) == {"a": 3, "c": 1, "first": 1}
        await journal.append("s1", [Note(topic="c", text="")], epoch=1)
        assert await seen(other) == {"a": 3, "first": 1}
    assert await verify(journal.store) == []


async def test_numbers_are_right_when_another_chain_grew_meanwhile(journal, path) -> None:
    async with another(journal, path) as other:
        await other.append("s2", [Note()], must_be_new=True)
        [first] = await journal.append("s1", [Mark()], epoch=1)
        await other.append("s2", [Mark()])
        second = await journal.append("s1", [Mark(), Mark()], epoch=1)
    assert [event.seq for event in (first, *second)] == [5, 7, 8]
    assert await journal.read("s1", after=3) == [first, *second]


async def test_only_so_many_events_wait(journal, path, monkeypatch) -> None:
    monkeypatch.setattr(_sqlite_chains, "_MOST_BEHIND", 4)
    for number in range(3):
        await journal.append("s1", [Note(topic="a", rank=number)], epoch=1)
    assert written(path) == ["a", "first"]
    await journal.append("s1", [Note(topic="b")], epoch=1)
    assert written(path) == ["a", "first"]
    assert await seen(journal) == {"a": 4, "b": 1, "first": 1}


async def test_only_so_many_rows_are_remembered(journal, monkeypatch) -> None:
    monkeypatch.setattr(_sqlite_rows, "_MOST_KNOWN", 2)
    for number in range(12):
        await journal.append("s1", [Note(topic=f"t{number % 4}")], epoch=1)
        if number % 5 == 0:
            await seen(journal)
    assert await seen(journal) == {"a": 1, "first": 1, "t0": 3, "t1": 3, "t2": 3, "t3": 3}


async def test_a_store_without_the_projection_leaves_its_rows_to_others(journal, path) -> None:
    journal.store.renew({"s1": 1}, "me", 0.0)
    eager = [one for one in journal.store._tables.projections if not one.is_lazy]
    async with Journal(SqliteStore(path, projections=eager)) as plain:
        head = await plain.store.acquire("s1", "you", 60)
        assert head is not None
        await plain.append("s1", [Note(topic="b")], epoch=head.epoch)
        await plain.append("s1", [Note(topic="c")], epoch=head.epoch, release=True)
        await plain.append("s2", [Note(topic="d")], must_be_new=True)
    assert await journal.row(LAZY_TOPICS, "s1", "c") is not None
    assert {row.key for row in await journal.rows(RowQuery(projection=LAZY_TOPICS))} == {
        "a",
        "b",
        "c",
        "first",
    }


async def test_what_changes_the_past_leaves_no_row_waiting(journal, path) -> None:
    await journal.redact("s1", [3], reason="asked")
    assert written(path) == ["a", "first"]
    await journal.append("s1", [Note(topic="b")], epoch=1)
    await journal.rebuild()
    assert written(path) == ["a", "b", "first"]
    await journal.append("s1", [Note(topic="c")], epoch=1)
    [head] = await journal.store.heads("s1")
    note = SessionDeleted(session_id="s1", last=head.session_seq, hash=head.hash)
    await journal.store.delete("s1", journal.draft(note), 1)
    assert await seen(journal) == {}
    assert await journal.store.heads("s1") == []
    await journal.store.release("s1", 1)
    await journal.append("s1", [Note(topic="new")], must_be_new=True)
    assert await seen(journal) == {"new": 1}


async def test_a_query_sees_what_a_thread_is_writing(journal, path) -> None:
    stored = asyncio.create_task(journal.append("s1", [SampleStep(), Note(topic="b")], epoch=1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert journal.store._writer.idle is None
    assert await journal.head("s1") is not None
    assert await seen(journal) == {"a": 1, "b": 1, "first": 1}
    await stored


async def test_a_session_that_goes_meanwhile_has_no_rows_to_write(journal) -> None:
    appender = journal.store._appender
    connection = journal.store._writer._connection
    appender.write_waiting(connection, ["gone", "s1"])
    assert not appender.behind(connection, "s1", is_writing=False)


async def test_lost_rows_are_an_error_of_the_store(journal, path) -> None:
    await journal.append("s1", [Mark()], epoch=1)  # who has written alone is served at once
    with closing(sqlite3.connect(path)) as other:
        other.execute("ALTER TABLE p_testing_lazy_topics_v1 RENAME TO elsewhere")
    with pytest.raises(StorageError) as caught:
        await journal.append("s1", [Note(topic="unknown")], epoch=1, release=True)
    assert caught.value.code == "storage.failed"
    events = await journal.read("s1")
    assert [event.kind for event in events[-2:]] == [Note.kind, Mark.kind]


async def test_rows_of_a_session_that_begins_under_a_lease_wait_and_are_seen(journal, path) -> None:
    await journal.begin("s2", [Note(topic="b")], owner="me", ttl_s=60, after=0, must_be_new=True)
    assert written(path) == ["first"]
    async with another(journal, path) as other:
        assert await seen(other) == {"a": 1, "b": 1, "first": 1}
    assert written(path) == ["a", "b", "first"]
    await journal.append("s2", [Note(topic="b")], epoch=1, release=True)
    assert await seen(journal) == {"a": 1, "b": 2, "first": 1}


async def test_rows_of_a_session_that_nobody_holds_do_not_wait(journal, path) -> None:
    await journal.append("s2", [Note(topic="b")], must_be_new=True)
    assert written(path) == ["b", "first"]


async def test_a_row_that_is_remembered_behind_a_lease_is_that_of_the_log(journal, path) -> None:
    """The row under the session's own name outlives the lease in memory, as long as it is true."""
    await journal.append("s1", [Note(topic="s1")], epoch=1, release=True)
    read: list[str] = []
    journal.store._writer._connection.set_trace_callback(
        lambda sql: read.append(sql) if sql.startswith("SELECT data") and "'s1'" in sql else None
    )
    for epoch in (2, 3):
        await journal.store.acquire("s1", "me", 60)
        await journal.append("s1", [Note(topic="s1")], epoch=epoch, release=True)
    assert (await seen(journal))["s1"] == 3
    assert read == []
    async with another(journal, path) as other:
        await other.append("s1", [Note(topic="s1")])
    await journal.store.acquire("s1", "me", 60)
    await journal.append("s1", [Note(topic="s1")], epoch=4, release=True)
    assert (await seen(journal))["s1"] == 5
    assert read
    assert await verify(journal.store) == []
