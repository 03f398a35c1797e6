"""Make a sound database from a damaged one: all that can be read and proves to be unchanged.

Rows of the log are copied into a new file, each session up to the first event that is missing or
does not fit its chain; tables are made anew from them. The damaged file stays beside the new one.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.clock import Clock
from holdfast.errors import StorageDamaged
from holdfast.journal.envelope import GENESIS, Event, digest_payload, hash_chain, make_header
from holdfast.journal.store import Finding, MendReport
from holdfast.journal.stores import _sqlite_file as file
from holdfast.journal.stores._sqlite_chains import EVENTS, compute_place, read_events

_PAGE = f"{EVENTS} WHERE e.stream = ? AND e.session_seq > ? ORDER BY e.session_seq LIMIT 1000"
_PLACES = "SELECT seq, hex(substr(CAST(hash AS BLOB), 1, 4)), place FROM events"
_UNREADABLE = (sqlite3.Error, UnicodeDecodeError, OverflowError)


def salvage(path: Path, clock: Clock) -> MendReport:
    """Put a sound file in the place of a damaged one that nobody has open.

    Projection tables are left to whoever opens it: they are missing, and made anew.

    Raises:
        StorageDamaged: nothing of it can be read; it is left as it is.
    """
    fresh = path.with_name(f"{path.name}.mended")
    _remove(fresh)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".mending-") as place:
        # Even looking at a database may write to it, and it is evidence.
        copy = Path(place) / path.name
        for end in ("", "-wal"):
            part = path.with_name(path.name + end)
            if part.exists():
                shutil.copyfile(part, copy.with_name(copy.name + end))
        file.prepare(fresh)
        with (
            contextlib.closing(sqlite3.connect(copy)) as damaged,
            file.open_exclusively(fresh) as sound,
        ):
            damaged.text_factory = lambda data: data.decode("utf-8", "replace")
            # A text that became bytes is copied as it is, and read as text again.
            sound.text_factory = damaged.text_factory
            for table in ("streams", "events", "blobs"):
                _copy_rows(damaged, sound, table)
            _name_streams(damaged, sound)
            lost = _cut_chains(sound)
            _restore_places(sound)
            kept = sound.execute("SELECT count(*) FROM events").fetchone()[0]
            sessions = sound.execute("SELECT count(*) FROM streams").fetchone()[0]
    if not kept:
        _remove(fresh)
        raise StorageDamaged(path=str(path), detail="no event of it can be read")
    aside = path.with_name(f"{path.name}.damaged-{int(clock.now())}")
    for end in ("-shm", "-wal", ""):
        part = path.with_name(path.name + end)
        if part.exists():
            part.replace(aside.with_name(aside.name + end))
    fresh.replace(path)
    return MendReport(events=kept, sessions=sessions, lost=tuple(lost), aside=str(aside))


def _copy_rows(damaged: sqlite3.Connection, sound: sqlite3.Connection, table: str) -> None:
    """Copy what can be read of a table, from both of its ends up to where it is broken."""
    info = f"PRAGMA table_info({table})"
    # One that an older version wrote has fewer columns.
    there = {row[1] for row in _read_rows(damaged, info)}
    columns = [row[1] for row in sound.execute(info) if row[1] in there]
    listed = ", ".join(columns)
    marks = ", ".join("?" * len(columns))
    insert = f"INSERT OR IGNORE INTO {table} ({listed}) VALUES ({marks})"
    for direction in ("ASC", "DESC"):
        # Not by an index: those break first, and are made anew.
        sql = f"SELECT {listed} FROM {table} NOT INDEXED ORDER BY rowid {direction}"
        for row in _read_rows(damaged, sql):
            with contextlib.suppress(sqlite3.IntegrityError, sqlite3.InterfaceError):
                sound.execute(insert, row)


def _read_rows(connection: sqlite3.Connection, sql: str) -> Iterator[tuple[Any, ...]]:
    try:
        yield from connection.execute(sql)
    except _UNREADABLE:
        return


def _name_streams(damaged: sqlite3.Connection, sound: sqlite3.Connection) -> None:
    """Find the sessions of events whose own row is lost, in the table of sessions."""
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'p_sessions_v*'"
    for (table,) in list(_read_rows(damaged, tables)):
        for stream, session_id in _read_rows(damaged, f"SELECT stream, key FROM {table}"):
            with contextlib.suppress(sqlite3.IntegrityError):
                sound.execute(
                    "INSERT OR IGNORE INTO streams (stream, session_id) VALUES (?, ?)",
                    (stream, session_id),
                )
    # Whoever held a session is gone; an epoch is never given twice.
    sound.execute(
        "UPDATE streams SET owner = '', lease_expires = 0, rows_from = 0, epoch = 1 + max(epoch, "
        "coalesce((SELECT max(epoch) FROM events e WHERE e.stream = streams.stream), 0))"
    )


def _cut_chains(sound: sqlite3.Connection) -> list[Finding]:
    """Keep of each session what proves to be unchanged, and say where it ends."""
    lost: list[Finding] = []
    for stream, name in sound.execute("SELECT stream, session_id FROM streams").fetchall():
        good = _count_good(sound, stream)
        cut = sound.execute(
            "DELETE FROM events WHERE stream = ? AND session_seq > ?", (stream, good)
        ).rowcount
        if not good:
            sound.execute("DELETE FROM streams WHERE stream = ?", (stream,))
            lost.append(Finding(session_id=name, session_seq=0, problem="the session is lost"))
        elif cut:
            problem = f"what came after this event is lost or changed ({cut} events were left)"
            lost.append(Finding(session_id=name, session_seq=good, problem=problem))
    orphans = sound.execute(
        "DELETE FROM events WHERE stream NOT IN (SELECT stream FROM streams)"
    ).rowcount
    if orphans:
        problem = f"{orphans} events of sessions whose names are lost"
        lost.append(Finding(session_id="system", session_seq=0, problem=problem))
    return lost


def _restore_places(sound: sqlite3.Connection) -> None:
    """Give events the store-wide numbers back that they had, where those were exchanged."""
    wrong = [
        (seq, code, place)
        for seq, code, place in sound.execute(_PLACES).fetchall()
        if place is not None and place != compute_place(code, seq)
    ]
    for seq, _, _ in wrong:
        sound.execute("UPDATE events SET seq = -seq WHERE seq = ?", (seq,))
    for seq, code, place in wrong:
        number = place - compute_place(code, 0)
        is_taken = sound.execute("SELECT 1 FROM events WHERE seq = ?", (number,)).fetchone()
        if number <= 0 or is_taken:
            number = sound.execute("SELECT max(max(seq), ?) + 1 FROM events", (seq,)).fetchone()[0]
        values = (number, compute_place(code, number), -seq)
        sound.execute("UPDATE events SET seq = ?, place = ? WHERE seq = ?", values)


def _count_good(sound: sqlite3.Connection, stream: int) -> int:
    number, previous = 0, GENESIS
    while events := read_events(sound, _PAGE, [stream, number]):
        for event in events:
            if event.session_seq != number + 1 or not _is_good(event, previous):
                return number
            number, previous = event.session_seq, event.hash
    return number


def _is_good(event: Event, previous: str) -> bool:
    if not event.is_redacted and digest_payload(event.payload) != event.payload_digest:
        return False
    return hash_chain(previous, make_header(event)) == event.hash


def _remove(path: Path) -> None:
    for end in ("", "-wal", "-shm", "-state"):
        path.with_name(path.name + end).unlink(missing_ok=True)
