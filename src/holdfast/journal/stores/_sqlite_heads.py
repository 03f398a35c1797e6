"""Where chains end, as SQLite knows it and as the store remembers it."""

from __future__ import annotations

import sqlite3
from typing import Any

from holdfast.errors import NotFound
from holdfast.journal.envelope import GENESIS
from holdfast.journal.store import Head
from holdfast.journal.stores._sqlite_rows import SessionRows

HEADS = """
SELECT s.stream, s.session_id, s.epoch, s.owner, s.lease_expires,
       CAST(coalesce(e.session_seq, 0) AS INT), CAST(e.hash AS BLOB), s.rows_from
FROM streams s LEFT JOIN events e ON e.stream = s.stream AND e.session_seq =
     (SELECT max(session_seq) FROM events WHERE stream = s.stream)
"""
_FENCE = """
SELECT coalesce((SELECT max(session_seq) FROM events WHERE stream = ?), 0), rows_from, epoch,
       (SELECT max(seq) FROM events)
FROM streams WHERE stream = ?
"""
_LEASE = """
SELECT coalesce((SELECT max(session_seq) FROM events WHERE stream = ?), 0), epoch, owner,
       lease_expires
FROM streams WHERE stream = ?
"""
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


class Chain:
    """What this store knows of one session: where its chain ends, and rows that follow from it.

    `rows_from` is the number from which rows of lazy projections are not in the database yet, 0
    if all are; they are here, unless the chain `is_behind`.
    """

    __slots__ = ("epoch", "hash", "is_behind", "rows", "rows_from", "session_seq", "stream")

    def __init__(
        self, stream: int, *, epoch: int = 0, session_seq: int = 0, hash: str = GENESIS
    ) -> None:
        """A chain of which all rows are written."""
        self.stream = stream
        self.epoch = epoch
        self.session_seq = session_seq
        self.hash = hash
        self.rows_from = 0
        self.is_behind = False
        self.rows = SessionRows(stream)


class KnownChains(dict[str, Chain]):
    """Remembers chains by their session, and notices when somebody else has moved one.

    Whoever appends to a chain makes it longer, and whoever writes rows that wait moves
    `rows_from`; as long as both are what this store wrote last, what it remembers is true.
    """

    _MOST = 10_000

    def __init__(self) -> None:
        """Remember nothing yet; what is remembered may be out of date until it is looked up."""
        super().__init__()
        self.seq = -1
        """The highest `seq` as far as is known here, -1 before anything was written."""

    def look_up(self, connection: sqlite3.Connection, session_id: str) -> Chain | None:
        """Return a chain as of this transaction, `None` for an unknown session."""
        known = self.get(session_id)
        if known is not None:
            fence = connection.execute(_FENCE, (known.stream, known.stream)).fetchone()
            if fence is not None and fence[:2] == (known.session_seq, known.rows_from):
                known.epoch, self.seq = fence[2:]
                return known
            self.drop(session_id)
        self.seq = last_seq(connection)
        found = connection.execute(ONE_HEAD, (session_id,)).fetchone()
        if found is None:
            return None
        head = read_head(found)
        chain = Chain(found[0], epoch=head.epoch, session_seq=head.session_seq, hash=head.hash)
        chain.rows_from = found[7]
        chain.is_behind = 0 < chain.rows_from <= chain.session_seq
        self.put(session_id, chain)
        return chain

    def head(self, connection: sqlite3.Connection, session_id: str) -> Head | None:
        """Return a session's head with one short read, `None` when that does not suffice."""
        known = self.get(session_id)
        if known is None:
            return None
        found = connection.execute(_LEASE, (known.stream, known.stream)).fetchone()
        if found is None or found[0] != known.session_seq:
            return None
        return Head(
            session_id=session_id,
            session_seq=known.session_seq,
            hash=known.hash,
            epoch=found[1],
            owner=found[2],
            lease_expires=found[3],
        )

    def put(self, session_id: str, chain: Chain) -> None:
        """Remember a chain; when there are too many, only that one."""
        if len(self) >= self._MOST:
            self.clear()
        self[session_id] = chain

    def drop(self, session_id: str) -> None:
        """Forget a chain."""
        self.pop(session_id, None)

    def forget(self) -> None:
        """Forget everything: what was written last did not become durable."""
        self.clear()
        self.seq = -1
