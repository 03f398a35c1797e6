"""Events as rows of SQLite: how they are written and read."""

from __future__ import annotations

import sqlite3
from typing import Any

from holdfast.journal.envelope import Event
from holdfast.journal.store import BLOB_THRESHOLD

INLINE, BLOB, REDACTED = 0, 1, 2
_INSERT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
INSERT_FENCED = (
    "INSERT INTO events VALUES (NULL, (SELECT stream FROM streams WHERE stream = ? AND epoch = ?), "
    "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
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


def insert(connection: sqlite3.Connection, stream: int, event: Event) -> None:
    placement, payload = INLINE, event.payload
    if event.is_redacted:
        placement = REDACTED
    elif len(payload) > BLOB_THRESHOLD:
        placement = BLOB
        connection.execute(
            "INSERT INTO blobs (digest, data) VALUES (?, ?) ON CONFLICT DO NOTHING",
            (bytes.fromhex(event.payload_digest), payload),
        )
    connection.execute(
        _INSERT,
        (
            event.seq,
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
            bytes.fromhex(event.payload_digest),
            bytes.fromhex(event.hash),
            placement,
            None if placement == BLOB else payload,
        ),
    )


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
