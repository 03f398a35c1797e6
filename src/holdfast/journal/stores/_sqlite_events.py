"""Events as rows of SQLite: how they are written and read."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from holdfast.journal.envelope import Event
from holdfast.journal.store import BLOB_THRESHOLD

INLINE, BLOB, REDACTED = 0, 1, 2
MOST_AT_ONCE = 16
"""So many events are written with one statement."""
_VALUES = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
# A stream that is not as the writer knows it is none, and refuses the statement.
_FENCED_VALUES = (
    "(?, (SELECT stream FROM streams WHERE stream = ? AND epoch = ? AND rows_from = ?), "
    "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_INSERT = [
    f"INSERT INTO events VALUES {', '.join([_VALUES] * count)}" for count in range(MOST_AT_ONCE + 1)
]
_INSERT_FENCED = [sql.replace(_VALUES, _FENCED_VALUES, 1) for sql in _INSERT]
_INSERT_BLOB = "INSERT INTO blobs (digest, data) VALUES (?, ?) ON CONFLICT DO NOTHING"
EVENTS = """
SELECT e.seq, s.session_id, CAST(e.session_seq AS INT), CAST(e.kind AS TEXT),
       CAST(e.version AS INT), CAST(e.time AS REAL), CAST(e.run_id AS TEXT),
       CAST(e.agent_path AS TEXT), CAST(e.correlation_id AS TEXT), CAST(e.causation_id AS TEXT),
       CAST(e.epoch AS INT), CAST(e.digest AS BLOB), CAST(e.hash AS BLOB), e.placement,
       CAST(coalesce(e.payload, (SELECT data FROM blobs b WHERE b.digest = e.digest)) AS BLOB)
FROM events e JOIN streams s USING (stream)
"""
# A column of another type than ours can only come from tampering; the casts keep it readable,
# so that `audit verify` can name the event.


blob = bytearray
"""How bytes are handed to `sqlite3`: it asks any other object (`bytes` too) whether it would
rather be something else, which takes five times as long as this copy."""
_code = bytearray.fromhex


def insert(connection: sqlite3.Connection, stream: int, events: Sequence[Event]) -> None:
    """Store events whose place in the log is settled."""
    for start in range(0, len(events), MOST_AT_ONCE):
        chunk = events[start : start + MOST_AT_ONCE]
        for event in chunk:
            if len(event.payload) > BLOB_THRESHOLD and not event.is_redacted:
                connection.execute(_INSERT_BLOB, (_code(event.payload_digest), event.payload))
        connection.execute(*insertion(stream, chunk))


def insertion(
    stream: int, events: Sequence[Event], fence: tuple[int, int] | None = None
) -> tuple[str, list[Any]]:
    """Return the one statement that stores a few events, and its values.

    With a fence it stores small ones if the stream's epoch and `rows_from` are still these, and
    the database chooses their `seq`. A moved chain meets a taken number, another stale writer an
    empty stream: either violates a constraint, and nothing is stored.
    """
    values: list[Any] = []
    for event in events:
        is_large = len(event.payload) > BLOB_THRESHOLD and not event.is_redacted
        values += (
            event.seq if fence is None else None,
            stream,
            event.session_seq,
            event.kind,
            event.version,
            event.time,
            event.run_id,
            event.agent_path,
            event.correlation_id,
            event.causation_id,
            event.epoch,
            _code(event.payload_digest),
            _code(event.hash),
            REDACTED if event.is_redacted else BLOB if is_large else INLINE,
            None if is_large else blob(event.payload),
        )
    if fence is None:
        return _INSERT[len(events)], values
    values[1:2] = stream, *fence
    return _INSERT_FENCED[len(events)], values


def read_events(connection: sqlite3.Connection, sql: str, values: list[Any]) -> list[Event]:
    return [
        Event(
            seq=row[0],
            session_id=row[1],
            session_seq=row[2],
            kind=row[3],
            version=row[4],
            time=row[5],
            run_id=row[6],
            agent_path=row[7],
            correlation_id=row[8],
            causation_id=row[9],
            epoch=row[10],
            payload_digest=row[11].hex(),
            hash=row[12].hex(),
            is_redacted=row[13] == REDACTED,
            # A blob that is gone reads as empty; `audit verify` then names the event.
            payload=row[14] or b"",
        )
        for row in connection.execute(sql, values).fetchall()
    ]
