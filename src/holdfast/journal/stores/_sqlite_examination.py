"""Is a database sound, and does every table follow from the log?

Nothing is compared by example: all projections are made anew in a scratch database, and every row
of every table is held against them.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import HoldfastError, StorageDamaged
from holdfast.journal.envelope import SYSTEM_SESSION
from holdfast.journal.projection import AnyProjection
from holdfast.journal.store import Finding
from holdfast.journal.stores import _sqlite_file as file
from holdfast.journal.stores._sqlite_chains import EVENTS, compute_place, read_events
from holdfast.journal.stores._sqlite_rows import RowTables, SessionRows

_MOST_PROBLEMS = 20
_MOST_FINDINGS = 1_000
_WHOLE_CHECK_BYTES = 512 * 1024 * 1024
"""Up to this size a file is examined whole before it is opened, indexes against their tables
too; a larger one only page by page, which takes half as long."""
_IN_ORDER = (
    f"{EVENTS} WHERE (e.stream, e.session_seq) > (?, ?) ORDER BY e.stream, e.session_seq LIMIT 1000"
)
_EMPTY_STREAMS = (
    "SELECT session_id FROM streams s "
    "WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.stream = s.stream)"
)
_LOST_STREAMS = "SELECT count(*) FROM events WHERE stream NOT IN (SELECT stream FROM streams)"
_EPOCHS = """
SELECT s.session_id FROM streams s
WHERE s.epoch < (SELECT max(e.epoch) FROM events e WHERE e.stream = s.stream)
"""
_PLACES = """
SELECT seq, stream, CAST(session_seq AS INT), hex(substr(CAST(hash AS BLOB), 1, 4)), place
FROM events ORDER BY seq
"""


def require_sound(path: Path) -> None:
    """Refuse a file whose pages or indexes are damaged.

    Raises:
        StorageDamaged: it says what SQLite found first.
    """
    is_large = path.stat().st_size > _WHOLE_CHECK_BYTES
    with file.open_for_reading(path) as connection:
        problems = _check(connection, "quick_check" if is_large else "integrity_check", 1)
    if problems:
        raise StorageDamaged(path=str(path), detail=problems[0])


def examine(path: Path, tables: RowTables) -> list[Finding]:
    """Return what is wrong with a database besides its chains; [] if nothing is."""
    with file.open_for_reading(path) as connection:
        # One moment of the database, however long this takes and whoever writes meanwhile.
        connection.execute("BEGIN")
        findings = examine_file(connection)
        if not findings:
            findings += _compare_tables(connection, tables)
        return findings


def examine_file(connection: sqlite3.Connection) -> list[Finding]:
    """Return what is wrong with the file itself, and with the numbers in it."""
    findings = [
        _make_finding("", f"the file is damaged: {problem}")
        for problem in _check(connection, "integrity_check", _MOST_PROBLEMS)
    ]
    if findings:
        return findings
    for (name,) in connection.execute(_EMPTY_STREAMS):
        findings.append(_make_finding(name, "the session has no events left"))
    lost = connection.execute(_LOST_STREAMS).fetchone()[0]
    if lost:
        findings.append(_make_finding("", f"{lost} events belong to no session"))
    for (name,) in connection.execute(_EPOCHS):
        findings.append(_make_finding(name, "its epoch is lower than that of its events"))
    return findings + _check_places(connection)


def _check_places(connection: sqlite3.Connection) -> list[Finding]:
    """Return the events whose store-wide number is not the one that they were given."""
    names = dict(connection.execute("SELECT stream, session_id FROM streams"))
    findings: list[Finding] = []
    has_begun = False
    for seq, stream, session_seq, code, place in connection.execute(_PLACES):
        if place is None and not has_begun:
            continue  # of an older version
        has_begun = True
        if not code or place != compute_place(code, seq):
            problem = f"its store-wide number is not {seq}: numbers were changed or exchanged"
            name = names.get(stream, SYSTEM_SESSION)
            findings.append(Finding(session_id=name, session_seq=session_seq, problem=problem))
            if len(findings) >= _MOST_FINDINGS:
                break
    return findings


def _check(connection: sqlite3.Connection, pragma: str, most: int) -> list[str]:
    # What is wrong may be told with text of the file that is none.
    connection.text_factory = _as_text
    found = [str(row[0]) for row in connection.execute(f"PRAGMA {pragma}({most})")]
    return [] if found == ["ok"] else found


def _as_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _compare_tables(connection: sqlite3.Connection, tables: RowTables) -> list[Finding]:
    names = dict(connection.execute("SELECT stream, session_id FROM streams"))
    with contextlib.closing(sqlite3.connect("", isolation_level=None)) as scratch:
        scratch.execute("PRAGMA journal_mode = OFF")
        scratch.execute("PRAGMA synchronous = OFF")
        tables.prepare_scratch(scratch)
        _fold_log(connection, scratch, tables)
        findings: list[Finding] = []
        for projection in tables.projections:
            for stream, key, problem in _list_differences(connection, scratch, tables, projection):
                text = f"table {projection.name}: the row {key[:80]!r} {problem}"
                findings.append(_make_finding(names.get(stream, ""), text))
                if len(findings) >= _MOST_FINDINGS:
                    return findings
    return findings


def _fold_log(
    connection: sqlite3.Connection, scratch: sqlite3.Connection, tables: RowTables
) -> None:
    """Make all rows anew from the log, as far as they have been written by now."""
    waiting = dict(connection.execute("SELECT stream, rows_from FROM streams WHERE rows_from > 0"))
    streams = dict(connection.execute("SELECT session_id, stream FROM streams"))
    place = (-1, 0)
    while chunk := read_events(connection, _IN_ORDER, list(place)):
        rows: dict[int, SessionRows] = {}
        before = place
        scratch.execute("BEGIN")
        for event in chunk:
            stream = streams[event.session_id]
            place = (stream, event.session_seq)
            if not tables.folds(event.kind):
                continue
            of_session = rows.setdefault(stream, SessionRows(stream))
            try:
                tables.fold(scratch, of_session, [(event, event.decode())])
            except HoldfastError:
                continue  # what cannot be read is found when the chains are checked
            if 0 < waiting.get(stream, 0) <= event.session_seq and of_session.unfolded:
                # Somebody holds the session: rows of lazy projections are not written yet.
                if of_session.unfolded[-1][0].session_seq == event.session_seq:
                    of_session.unfolded.pop()
        for of_session in rows.values():
            tables.write(scratch, of_session, also_lazy=True)
        scratch.execute("COMMIT")
        if place <= before:
            return  # a number that was tampered with must not send us round in circles


def _list_differences(
    connection: sqlite3.Connection,
    scratch: sqlite3.Connection,
    tables: RowTables,
    projection: AnyProjection,
) -> Iterator[tuple[int, str, str]]:
    """Yield the rows in which a table and the log differ: number of the session, key, how."""
    sql = tables.select_all(projection.name)
    decode = msgspec.json.Decoder(projection.row_type).decode
    stored, made = connection.execute(sql), scratch.execute(sql)
    one, other = stored.fetchone(), made.fetchone()
    while one is not None or other is not None:
        here, there = _place(one), _place(other)
        if here == there:
            if one != other and not _is_same(one, other, decode):
                yield *here, "is not what the log says"
            one, other = stored.fetchone(), made.fetchone()
        elif there is None or (here is not None and here < there):
            yield *here, "does not follow from the log"
            one = stored.fetchone()
        else:
            yield *there, "is missing"
            other = made.fetchone()


def _place(row: tuple[Any, ...] | None) -> Any:  # noqa: ANN401 - what SQLite gives
    return None if row is None else (row[0], str(row[1]))


def _is_same(one: tuple[Any, ...], other: tuple[Any, ...], decode: Any) -> bool:  # noqa: ANN401
    """Say whether two rows mean the same: an older Holdfast has left out what is not set."""
    if one[3:] != other[3:]:
        return False
    try:
        same: bool = decode(one[2]) == decode(other[2])
    except (msgspec.MsgspecError, TypeError):
        return False
    return same


def _make_finding(session_id: str, problem: str) -> Finding:
    return Finding(session_id=session_id or SYSTEM_SESSION, session_seq=0, problem=problem)
