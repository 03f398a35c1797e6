"""`audit verify` compares the file and every table with the log, not examples of them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import Client, tool
from holdfast.errors import StorageDamaged
from holdfast.journal import Event, Finding, Journal, Payload, SqliteStore, verify
from holdfast.journal.stores import _sqlite_examination
from holdfast.journal.stores._sqlite_rows import RowTables
from holdfast.testing._store_samples import (
    LAZY_TOPICS,
    SAMPLE_TABLES,
    Mark,
    Note,
    Topic,
    Topics,
)


def fill(place: Path) -> str:
    with Client(base_dir=place) as client:
        session = client.sessions.create("as it was")
        client.runs.execute("build", session.id, "What is 15 times 23?")
        other = client.sessions.create("another")
        client.runs.execute("build", other.id, "What is 16 times 23?")
        assert client.audit.verify() == []
        return session.id


def forge(place: Path, *statements: str) -> list[Finding]:
    connection = sqlite3.connect(place / "journal.db", isolation_level=None)
    connection.create_function("casefold", 1, str)
    for statement in statements:
        assert connection.execute(statement).rowcount != 0, statement
    connection.close()
    with Client(base_dir=place) as client:
        return client.audit.verify()


def tables(place: Path, projection: str = "*") -> list[str]:
    connection = sqlite3.connect(place / "journal.db")
    found = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB ?",
        (f"p_{projection}_v[0-9]*",),
    ).fetchall()
    connection.close()
    return [name for (name,) in found]


def table(place: Path, projection: str) -> str:
    [found] = tables(place, projection)
    return found


def test_a_forged_title_is_found(tmp_path: Path) -> None:
    session_id = fill(tmp_path)
    [found] = forge(
        tmp_path,
        f"UPDATE {table(tmp_path, 'sessions')} SET data = "
        "CAST(replace(CAST(data AS TEXT), 'as it was', 'forged') AS BLOB) "
        "WHERE instr(CAST(data AS TEXT), 'as it was')",
    )
    assert (found.session_id, "sessions" in found.problem) == (session_id, True)


def test_a_forged_column_is_found(tmp_path: Path) -> None:
    fill(tmp_path)
    name = table(tmp_path, "sessions")
    [found] = forge(tmp_path, f"UPDATE {name} SET c_title = 'x' WHERE c_title = 'another'")
    assert "is not what the log says" in found.problem


def test_an_emptied_table_is_found_whichever_it_is(tmp_path: Path) -> None:
    fill(tmp_path)
    emptied = 0
    for name in tables(tmp_path):
        connection = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
        count = connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
        connection.close()
        if count:
            emptied += 1
            found = forge(tmp_path, f"DELETE FROM {name}")
            assert len(found) == count, name
            with Client(base_dir=tmp_path) as client:
                client.storage.rebuild()
                assert client.audit.verify() == []
    assert emptied >= 3


def test_a_row_that_does_not_follow_from_the_log_is_found(tmp_path: Path) -> None:
    fill(tmp_path)
    name = table(tmp_path, "messages")
    [found] = forge(
        tmp_path,
        f"INSERT INTO {name} SELECT stream, 'msg_forged', data, c_session_seq FROM {name} LIMIT 1",
    )
    assert "does not follow from the log" in found.problem


def swap(one: str, other: str) -> tuple[str, ...]:
    return (
        f"UPDATE events SET seq = -1 WHERE seq = ({one})",
        f"UPDATE events SET seq = ({one}) + 0 WHERE seq = ({other})",
        f"UPDATE events SET seq = ({other}) WHERE seq = -1",
    )


@pytest.mark.parametrize(("one", "other"), [("3", "4"), ("2", "6"), ("4", "12")])
def test_swapped_store_wide_numbers_are_found(tmp_path: Path, one: str, other: str) -> None:
    fill(tmp_path)
    found = forge(tmp_path, *swap(one, other))
    assert any("store-wide number" in finding.problem for finding in found)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE streams SET epoch = 0 WHERE epoch > 0",
        "DELETE FROM events WHERE stream = (SELECT max(stream) FROM streams)",
        "DELETE FROM streams WHERE stream = (SELECT max(stream) FROM streams)",
    ],
)
def test_changed_sessions_are_found(tmp_path: Path, statement: str) -> None:
    fill(tmp_path)
    assert forge(tmp_path, statement)


def test_only_what_concerns_the_session_is_told_when_one_is_asked_for(tmp_path: Path) -> None:
    session_id = fill(tmp_path)
    name = table(tmp_path, "sessions")
    forge(tmp_path, f"UPDATE {name} SET c_title = 'x' WHERE c_title = 'another'")
    with Client(base_dir=tmp_path) as client:
        assert client.audit.verify(session_id=session_id) == []


def test_a_session_at_work_is_no_finding(tmp_path: Path) -> None:
    seen: list[list[Finding]] = []
    with Client(base_dir=tmp_path) as outer:

        @tool(permission="allow")
        def look() -> str:
            """Look at the records while a turn is under way."""
            with Client(base_dir=tmp_path) as inner:
                seen.append(inner.audit.verify())
            return "looked"

        outer.tools.register(look)
        outer.tools.call("look", {})
    assert seen == [[]]


def damage_an_index(path: Path) -> None:
    """Leave an index that does not fit its table: SQLite reads on as if nothing were."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA writable_schema = ON")
    named = "FROM sqlite_master WHERE name = 'events_by_session'"
    row = connection.execute(f"SELECT * {named}").fetchone()
    connection.execute(f"DELETE {named}")
    connection.close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE events SET session_seq = session_seq + 1000")
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", row)
    connection.close()


@pytest.mark.parametrize("largest", [0, 1 << 40])
async def test_a_file_that_is_damaged_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest: int
) -> None:
    """A large file is looked at page by page only; its indexes are examined by the audit."""
    path = tmp_path / "journal.db"
    async with Journal(SqliteStore(path)) as journal:
        await journal.append("s1", [Note()], must_be_new=True)
    damage_an_index(path)
    monkeypatch.setattr(_sqlite_examination, "_WHOLE_CHECK_BYTES", largest)
    store = SqliteStore(path)
    if largest:
        with pytest.raises(StorageDamaged):
            await store.open()
        return
    await store.open()
    found = await store.examine()
    await store.close()
    assert found and all("the file is damaged" in finding.problem for finding in found)


async def test_rows_are_held_against_what_they_mean(tmp_path: Path) -> None:
    """An older version left out what is not set; what cannot be read means nothing."""
    path = tmp_path / "journal.db"
    name = "p_testing_topics_v1"
    async with Journal(SqliteStore(path, projections=SAMPLE_TABLES)) as journal:
        await journal.append("s1", [Note(topic=topic) for topic in "abc"], must_be_new=True)
        for sql, problems in (
            (f"UPDATE {name} SET data = CAST(' ' || CAST(data AS TEXT) AS BLOB)", 0),
            (f"UPDATE {name} SET data = X'7b' WHERE key = 'a'", 1),
            (f"UPDATE {name} SET data = 5 WHERE key = 'a'", 1),
            (f"UPDATE {name} SET c_rank = 7 WHERE key = 'b'", 2),
            (f"DELETE FROM {name} WHERE key = 'c'", 3),
        ):
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute(sql)
            assert len(await journal.store.examine()) == problems, sql


async def test_so_many_findings_are_told_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_sqlite_examination, "_MOST_FINDINGS", 2)
    path = tmp_path / "journal.db"
    async with Journal(SqliteStore(path, projections=SAMPLE_TABLES)) as journal:
        await journal.append("s1", [Note(topic=topic) for topic in "abc"], must_be_new=True)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("DELETE FROM p_testing_topics_v1")
        assert len(await journal.store.examine()) == 2


async def test_an_event_that_cannot_be_read_is_named_by_its_chain_and_the_rest_compared(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.db"
    async with Journal(SqliteStore(path, projections=SAMPLE_TABLES)) as journal:
        await journal.append("s1", [Note(topic=topic) for topic in "abc"], must_be_new=True)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE events SET payload = X'5b' WHERE session_seq = 2")
        found = await verify(journal.store)
    assert [(finding.session_seq, finding.problem) for finding in found] == [
        (0, "table testing_topics: the row 'b' does not follow from the log"),
        (2, "the payload was edited"),
    ]


class Marks(Topics):
    """A table that is written with its events, of a kind that no lazy one follows."""

    name = "testing_marks"
    kinds = frozenset({Mark.kind})

    def key(self, event: Event, payload: Payload) -> str:
        return "mark"

    def apply(self, row: Topic | None, event: Event, payload: Payload) -> Topic:
        return Topic(topic="mark", text="", rank=event.session_seq)


async def test_rows_that_wait_while_a_session_is_held_are_no_finding(tmp_path: Path) -> None:
    """Also to a reader that looks between two writes, and does not have them written."""
    path = tmp_path / "journal.db"
    tables = (Marks(), LAZY_TOPICS)
    async with Journal(SqliteStore(path, projections=tables)) as journal:
        await journal.append("s1", [Note(topic="first"), Mark()], must_be_new=True)
        await journal.store.acquire("s1", "me", 60)
        await journal.append("s1", [Mark()], epoch=1)
        await journal.append("s1", [Note(topic="waits")], epoch=1)
        await journal.append("s1", [Mark()], epoch=1)
        with closing(sqlite3.connect(path)) as connection:
            rows = connection.execute("SELECT key FROM p_testing_lazy_topics_v1").fetchall()
        assert rows == [("first",)]
        assert _sqlite_examination.examine(path, RowTables(tables)) == []
        assert await journal.store.examine() == []


SWAP = (
    "UPDATE events SET seq = -1 WHERE seq = {0}",
    "UPDATE events SET seq = {0} WHERE seq = {1}",
    "UPDATE events SET seq = {1} WHERE seq = -1",
)


async def fill_side_by_side(path: Path) -> None:
    """Two sessions that grow in turns, so that numbers can be exchanged in the order of both."""
    async with Journal(SqliteStore(path)) as journal:
        for name in ("s1", "s2"):
            await journal.append(name, [Note()], must_be_new=True)
        for _ in range(3):
            await journal.append("s1", [Note(text="large" * 10_000)])
            await journal.append("s2", [Mark(), Mark()])
            assert await journal.redact("s2", [1], reason="test") in (0, 1)
        assert await verify(journal.store) == []


def write(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            assert connection.execute(statement).rowcount == 1, statement


async def check(path: Path) -> list[Finding]:
    async with Journal(SqliteStore(path)) as journal:
        return await verify(journal.store)


@pytest.mark.parametrize(("one", "other"), [(1, 2), (3, 4), (7, 6), (6, 99)])
async def test_store_wide_numbers_that_were_exchanged_across_sessions_are_found(
    tmp_path: Path, one: int, other: int
) -> None:
    path = tmp_path / "journal.db"
    await fill_side_by_side(path)
    with closing(sqlite3.connect(path)) as connection:
        exists = connection.execute("SELECT 1 FROM events WHERE seq = ?", (other,)).fetchone()
    if exists:
        write(path, *[statement.format(one, other) for statement in SWAP])
    else:
        write(path, f"UPDATE events SET seq = {other} WHERE seq = {one}")
    findings = await check(path)
    numbers = {number for number in (one, other) if f"number is not {number}:" in str(findings)}
    assert numbers == ({one, other} if exists else {other})
    await SqliteStore(path).mend()
    assert await check(path) == []


async def test_numbers_that_cannot_be_given_back_are_given_anew(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await fill_side_by_side(path)
    with closing(sqlite3.connect(path)) as connection:
        [last] = connection.execute("SELECT max(seq) FROM events").fetchone()
    write(path, f"UPDATE events SET place = 0 WHERE seq = {last}")
    assert f"number is not {last}:" in str(await check(path))
    await SqliteStore(path).mend()
    assert await check(path) == []


async def test_events_of_an_older_version_have_no_place_and_later_ones_must(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.db"
    await fill_side_by_side(path)
    for number in (1, 2):
        write(path, f"UPDATE events SET place = NULL WHERE seq = {number}")
    assert await check(path) == []
    for number in (5, 6):
        write(path, f"UPDATE events SET place = NULL WHERE seq = {number}")
    assert len(await check(path)) == 2
    monkeypatch.setattr(_sqlite_examination, "_MOST_FINDINGS", 1)
    assert len(await check(path)) == 1
