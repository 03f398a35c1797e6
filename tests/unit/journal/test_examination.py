"""`audit verify` compares the file and every table with the log, not examples of them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from holdfast import Client, tool
from holdfast.journal import Finding


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
