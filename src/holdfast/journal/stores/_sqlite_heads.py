"""Where chains end, as SQLite knows it and as the store remembers it."""

from __future__ import annotations

import sqlite3
from typing import Any, NamedTuple

from holdfast.errors import NotFound
from holdfast.journal.envelope import GENESIS
from holdfast.journal.store import Head
from holdfast.journal.stores._sqlite_rows import KnownRows

HEADS = """
SELECT s.stream, s.session_id, s.epoch, s.owner, s.lease_expires,
       CAST(coalesce(e.session_seq, 0) AS INT), CAST(e.hash AS BLOB)
FROM streams s LEFT JOIN events e ON e.stream = s.stream AND e.session_seq =
     (SELECT max(session_seq) FROM events WHERE stream = s.stream)
"""
_FENCE = "SELECT epoch, (SELECT max(seq) FROM events) FROM streams WHERE stream = ?"
ONE_HEAD = HEADS + "WHERE s.session_id = ?"


def read_head(row: tuple[Any, ...]) -> Head:
    """Turn a row of `HEADS` into a head."""
    return Head(
        session_id=row[1],
        epoch=row[2],
        owner=row[3],
        lease_expires=row[4],
        session_seq=row[5],
        hash=row[6].hex() if row[6] is not None else GENESIS,
    )


def locate(connection: sqlite3.Connection, session_id: str) -> tuple[int, Head]:
    """Return a session's short number and its head; it must exist."""
    found = connection.execute(ONE_HEAD, (session_id,)).fetchone()
    if found is None:
        raise NotFound(kind="session", value=session_id)
    return found[0], read_head(found)


def find_head(connection: sqlite3.Connection, session_id: str) -> Head:
    """Return the head of a session, which must exist."""
    return locate(connection, session_id)[1]


def last_seq(connection: sqlite3.Connection) -> int:
    """Return the highest `seq`, 0 when there is none."""
    found: int | None = connection.execute("SELECT max(seq) FROM events").fetchone()[0]
    return found or 0


class End(NamedTuple):
    """Where a session's chain ends."""

    stream: int
    epoch: int
    session_seq: int
    hash: str


class KnownEnds:
    """Remembers where chains end, and notices when somebody else has moved one.

    Whatever changes a chain raises the store's highest `seq`; as long as that is the one
    this store wrote last, what it remembers is true. The epoch is always read afresh.
    """

    _MOST = 10_000

    def __init__(self) -> None:
        """Remember nothing yet."""
        self.seq = -1
        self.rows = KnownRows()
        """Rows that follow from these chains, true as long as the ends are."""
        self._ends: dict[str, End] = {}

    def get(self, session_id: str) -> End | None:
        """Return what is remembered; it may be out of date."""
        return self._ends.get(session_id)

    def look_up(self, connection: sqlite3.Connection, session_id: str) -> End | None:
        """Return the end of a chain as of this transaction, `None` for an unknown session."""
        known = self._ends.get(session_id)
        if known is not None:
            epoch, seq = connection.execute(_FENCE, (known.stream,)).fetchone() or (0, -2)
            if seq == self.seq:
                return known if epoch == known.epoch else known._replace(epoch=epoch)
        seq = last_seq(connection)
        if seq != self.seq or len(self._ends) > self._MOST:
            self._clear()
            self.seq = seq
        found = connection.execute(ONE_HEAD, (session_id,)).fetchone()
        if found is None:
            return None
        head = read_head(found)
        return End(found[0], head.epoch, head.session_seq, head.hash)

    def move(self, session_id: str, end: End, *, seq: int, written: int) -> None:
        """Remember what was written last; `seq` is the highest number now."""
        if seq - written != self.seq:
            # Somebody else wrote in between; other chains may have moved.
            self._clear()
        self._ends[session_id] = end
        self.seq = seq

    def forget(self) -> None:
        """Forget everything: what was written last did not become durable."""
        self._clear()
        self.seq = -1

    def _clear(self) -> None:
        self._ends.clear()
        self.rows.rows.clear()
