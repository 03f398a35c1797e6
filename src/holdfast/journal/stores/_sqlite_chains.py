"""Chains of events in SQLite: where they end, how they are read, how they grow.

A batch is fenced, chained, and stored with the rows that follow from it. What lazy projections
follow waits in memory while a lease is held, and becomes rows when those are written: with the
last append under the lease. `streams.rows_from` says from which event on rows are missing in the
database, so that the process that reads them, here, elsewhere or after a crash, has them written
first.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast.errors import (
    AlreadyExists,
    LeaseLost,
    NotFound,
    SessionBusy,
    StaleWriter,
)
from holdfast.journal.envelope import GENESIS, SYSTEM_SESSION, Event, chain_events
from holdfast.journal.store import BLOB_THRESHOLD, AppendRequest, Head, HeldSession, LeaseWish
from holdfast.journal.stores._group_commit import GroupCommit
from holdfast.journal.stores._sqlite_leases import LEASE_COLUMNS, SqliteLeases
from holdfast.journal.stores._sqlite_rows import RowTables, SessionRows, blob

INLINE, BLOB, REDACTED = 0, 1, 2
MOST_AT_ONCE = 16
"""So many events are written with one statement."""
_COLUMNS = (
    "seq, stream, session_seq, kind, version, time, run_id, agent_path, correlation_id, "
    "causation_id, epoch, digest, hash, placement, payload, place"
)
_VALUES = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
# The database chooses the numbers, behind the last one of this moment.
_NUMBERED_VALUES = _VALUES[:-2] + "? + (SELECT max(seq) FROM events))"
# A stream that is not as the writer knows it is none, and refuses the statement.
_FENCED_VALUES = _NUMBERED_VALUES.replace(
    "?, ?", "?, (SELECT stream FROM streams WHERE stream = ? AND epoch = ? AND rows_from = ?)", 1
)
_INSERT = [
    f"INSERT INTO events ({_COLUMNS}) VALUES {', '.join([_VALUES] * count)}"
    for count in range(MOST_AT_ONCE + 1)
]
_INSERT_FENCED = [
    f"INSERT INTO events ({_COLUMNS}) VALUES "
    + ", ".join([_FENCED_VALUES, *[_NUMBERED_VALUES] * (count - 1)])
    for count in range(MOST_AT_ONCE + 1)
]
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
_code = blob.fromhex
_LAST_SEQ = "SELECT max(seq) FROM events"
HEADS = f"""
SELECT s.stream, s.session_id, s.epoch, CAST(coalesce(e.session_seq, 0) AS INT),
       CAST(e.hash AS BLOB), s.rows_from, {LEASE_COLUMNS}
FROM streams s LEFT JOIN events e ON e.stream = s.stream AND e.session_seq =
     (SELECT max(session_seq) FROM events WHERE stream = s.stream)
"""
_FENCE = """
SELECT coalesce((SELECT max(session_seq) FROM events WHERE stream = ?), 0), rows_from, epoch,
       (SELECT max(seq) FROM events)
FROM streams WHERE stream = ?
"""
_LEASE = f"""
SELECT coalesce((SELECT max(session_seq) FROM events WHERE stream = ?), 0), {LEASE_COLUMNS}
FROM streams s WHERE s.stream = ?
"""
LEASE_AT = 6
"""Where the columns of the lease begin in a row of `HEADS`."""
ONE_HEAD = HEADS + "WHERE s.session_id = ?"
_MOST_BEHIND = 128
"""So many events at most wait in memory, and are folded by the process that reads their rows."""

_BEHIND = """
SELECT s.session_id, s.rows_from,
       coalesce((SELECT max(session_seq) FROM events WHERE stream = s.stream), 0)
FROM streams s WHERE s.rows_from > 0
"""
_RELEASE = "UPDATE streams SET owner = '', lease_expires = 0, rows_from = ? WHERE stream = ?"


def insert(connection: sqlite3.Connection, stream: int, events: Sequence[Event]) -> None:
    """Store events whose place in the log is settled."""
    for start in range(0, len(events), MOST_AT_ONCE):
        chunk = events[start : start + MOST_AT_ONCE]
        for event in chunk:
            if len(event.payload) > BLOB_THRESHOLD and not event.is_redacted:
                connection.execute(_INSERT_BLOB, (_code(event.payload_digest), event.payload))
        connection.execute(*build_insertion(stream, chunk))


def build_insertion(
    stream: int, events: Sequence[Event], fence: tuple[int, int] | None = None
) -> tuple[str, list[Any]]:
    """Return the one statement that stores a few events, and its values.

    With a fence it stores small ones if the stream's epoch and `rows_from` are still these, and
    the database chooses their `seq`. A moved chain meets a taken number, another stale writer an
    empty stream: either violates a constraint, and nothing is stored.
    """
    values: list[Any] = []
    for number, event in enumerate(events, 1):
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
            # As `compute_place` has it: a call for each event would be felt.
            int(event.hash[:8], 16) + (event.seq if fence is None else number),
        )
    if fence is None:
        return _INSERT[len(events)], values
    values[1:2] = stream, *fence
    return _INSERT_FENCED[len(events)], values


def compute_place(hash_: str, seq: int) -> int:
    """Return what binds a store-wide number to the event that has it."""
    return int(hash_[:8], 16) + seq


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


def read_head(row: tuple[Any, ...], *, is_held: bool = False) -> Head:
    """Turn a row of `HEADS` into a head."""
    return Head(
        session_id=row[1],
        epoch=row[2],
        session_seq=row[3],
        hash=row[4].hex() if row[4] is not None else GENESIS,
        owner=row[LEASE_AT],
        is_held=is_held,
        unproved_epoch=row[-1],
    )


def check_held(connection: sqlite3.Connection, held: HeldSession) -> None:
    """Go on only if a session is held under an epoch; raises LeaseLost."""
    found = connection.execute(
        "SELECT epoch FROM streams WHERE session_id = ?", (held.session_id,)
    ).fetchone()
    current = found[0] if found is not None else 0
    if current != held.epoch:
        raise LeaseLost(session_id=held.session_id, current=current, held=held.epoch)


def locate(connection: sqlite3.Connection, session_id: str) -> tuple[int, int]:
    """Return a session's short number and its epoch; it must exist."""
    found = connection.execute(ONE_HEAD, (session_id,)).fetchone()
    if found is None:
        raise NotFound(kind="session", value=session_id)
    return found[0], found[2]


def read_last_seq(connection: sqlite3.Connection) -> int:
    """Return the highest `seq`, 0 when there is none."""
    found: int | None = connection.execute(_LAST_SEQ).fetchone()[0]
    return found or 0


class Chain(msgspec.Struct):
    """What this store knows of one session: where its chain ends, and rows that follow from it.

    `rows_from` is the number from which rows of lazy projections are not in the database yet, 0
    if all are; they are here, unless the chain `is_behind`.
    """

    stream: int
    rows: SessionRows
    epoch: int = 0
    session_seq: int = 0
    hash: str = GENESIS
    rows_from: int = 0
    is_behind: bool = False


class KnownChains(dict[str, Chain]):
    """Remembers chains by their session, and notices when another process has moved one.

    Whoever appends to a chain makes it longer, and whoever writes rows that wait moves
    `rows_from`; as long as both are what this store wrote last, what it remembers is true.
    Those that were looked up first go when there are too many: they are found again in the file.
    """

    _MOST = 2_048

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
        elif len(self) >= self._MOST:
            del self[next(iter(self))]
        self.seq = connection.execute(_LAST_SEQ).fetchone()[0] or 0
        found = connection.execute(ONE_HEAD, (session_id,)).fetchone()
        if found is None:
            return None
        head = read_head(found)
        chain = self[session_id] = Chain(
            found[0],
            SessionRows(found[0]),
            epoch=head.epoch,
            session_seq=head.session_seq,
            hash=head.hash,
            rows_from=found[5],
            is_behind=0 < found[5] <= head.session_seq,
        )
        return chain

    def head(
        self, connection: sqlite3.Connection, session_id: str, leases: SqliteLeases
    ) -> Head | None:
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
            epoch=found[-2],
            owner=found[1],
            is_held=leases.is_held(connection, found[1:]),
            unproved_epoch=found[-1],
        )

    def drop(self, session_id: str) -> None:
        """Forget a chain."""
        self.pop(session_id, None)

    def forget(self) -> None:
        """Forget everything: what was written last did not become durable."""
        self.clear()
        self.seq = -1


class Appender:
    """Writes to the chains of one file; all methods but `read_at_once` run inside a transaction."""

    def __init__(self, tables: RowTables, chains: KnownChains, leases: SqliteLeases) -> None:
        """Keep these tables up to date, and remember what was written in `chains`."""
        self._tables = tables
        self._chains = chains
        self._leases = leases

    def read_at_once(self, writer: GroupCommit, request: AppendRequest) -> tuple[Event, ...] | None:
        """Store a few small events with one fenced statement and no transaction around it.

        The most frequent append by far, and half the price. Returns `None`, with nothing
        stored, when it takes more than that; the long way then also finds out why.
        """
        is_plain = not (request.release or request.is_synced or request.must_be_new)
        if not is_plain or request.acquire is not None or request.held is not None:
            return None
        chain, drafts = self._chains.get(request.session_id), request.drafts
        if chain is None or chain.is_behind or len(drafts) > MOST_AT_ONCE:
            return None
        is_fenced = request.epoch in (None, chain.epoch)
        if not is_fenced or request.after not in (None, chain.session_seq):
            return None
        if chain.rows_from and chain.session_seq + len(drafts) - chain.rows_from >= _MOST_BEHIND:
            return None
        for draft in drafts:
            if len(draft.payload) > BLOB_THRESHOLD:
                return None
        if not writer.is_free():
            return None
        events = chain_events(drafts, request.session_id, chain, self._chains.seq)
        later = self._tables.read_lazily(events, drafts)
        if later is None or (later and not chain.rows_from):
            return None
        fence = (chain.epoch, chain.rows_from)
        last = writer.insert_at_once(*build_insertion(chain.stream, events, fence))
        if last is None:
            return None
        chain.rows.unfolded += later
        if last != events[-1].seq:
            # Another process has written to another chain; no hash covers this number.
            ahead = last - events[-1].seq
            events = [msgspec.structs.replace(one, seq=one.seq + ahead) for one in events]
        chain.session_seq, chain.hash = events[-1].session_seq, events[-1].hash
        self._chains.seq = last
        return tuple(events)

    def append(self, connection: sqlite3.Connection, request: AppendRequest) -> tuple[Event, ...]:
        """Store a batch with its rows; refuses before anything has changed."""
        session_id = request.session_id
        if request.held is not None:
            check_held(connection, request.held)
        chain = self._chains.look_up(connection, session_id)
        if chain is None:
            chain = self._create(connection, request)
        elif request.must_be_new:
            raise AlreadyExists(kind="session", value=session_id)
        if request.epoch is not None and request.epoch != chain.epoch:
            raise LeaseLost(session_id=session_id, current=chain.epoch, held=request.epoch)
        if request.after is not None and request.after != chain.session_seq:
            raise StaleWriter(
                session_id=session_id, current=chain.session_seq, expected=request.after
            )
        wish = request.acquire
        if wish is not None and not self._take(connection, session_id, chain, wish):
            raise SessionBusy(session_id=session_id)
        if chain.is_behind:
            self._catch_up(connection, chain)
        events = chain_events(request.drafts, session_id, chain, self._chains.seq)
        values = [draft.value for draft in request.drafts]
        self._tables.fold(connection, chain.rows, list(zip(events, values, strict=True)))
        insert(connection, chain.stream, events)
        last = events[-1]
        # One that holds a new session writes on; else it is soon looked for.
        is_new = request.must_be_new and request.acquire is None
        may_wait = 0 < chain.rows_from and last.session_seq - chain.rows_from < _MOST_BEHIND
        is_due = request.release or is_new or not may_wait
        chain.session_seq, chain.hash, self._chains.seq = last.session_seq, last.hash, last.seq
        self._tables.write(connection, chain.rows, also_lazy=is_due)
        if request.release:
            self._give_back(connection, session_id, chain)
        elif is_due and chain.rows_from:
            self._note_rows(connection, chain)
        return tuple(events)

    def acquire(
        self, connection: sqlite3.Connection, session_id: str, wish: LeaseWish
    ) -> Head | None:
        """Give a session's lease to an owner, `None` if another owner holds it."""
        chain = self._find_existing(connection, session_id)
        if not self._take(connection, session_id, chain, wish):
            return None
        found = connection.execute(ONE_HEAD, (session_id,)).fetchone()
        return read_head(found, is_held=True)

    def release(self, connection: sqlite3.Connection, session_id: str, epoch: int) -> None:
        """Take a lease back, unless it is another one by now."""
        chain = self._chains.look_up(connection, session_id)
        if chain is not None and chain.epoch == epoch:
            self._write_waiting(connection, chain)
            self._give_back(connection, session_id, chain)

    def behind(
        self, connection: sqlite3.Connection, session_id: str, *, is_writing: bool
    ) -> list[str]:
        """Return the sessions, or the one, with rows that are not written yet.

        While a thread `is_writing`, what is remembered is not trusted.
        """
        only_one = "AND s.session_id = ?" if session_id else ""
        values = (session_id,) if session_id else ()
        return [
            name
            for name, rows_from, number in connection.execute(_BEHIND + only_one, values)
            if number >= rows_from and (is_writing or not self._has_none_waiting(name, number))
        ]

    def _has_none_waiting(self, session_id: str, number: int) -> bool:
        """Say whether no event of a session has changed a row that is not written yet."""
        chain = self._chains.get(session_id)
        return (
            chain is not None
            and chain.session_seq == number
            and not (chain.is_behind or chain.rows.unfolded)
        )

    def write_waiting(self, connection: sqlite3.Connection, sessions: Iterable[str]) -> None:
        """Write the rows that wait of some sessions."""
        for session_id in sessions:
            chain = self._chains.look_up(connection, session_id)
            if chain is not None and chain.rows_from:
                self._write_waiting(connection, chain)
                self._note_rows(connection, chain)

    # --- inside -----------------------------------------------------------------------

    def _create(self, connection: sqlite3.Connection, request: AppendRequest) -> Chain:
        session_id = request.session_id
        if not request.must_be_new and session_id != SYSTEM_SESSION:
            raise NotFound(kind="session", value=session_id)
        row = connection.execute("INSERT INTO streams (session_id) VALUES (?)", (session_id,))
        stream = row.lastrowid or 0
        chain = self._chains[session_id] = Chain(stream, SessionRows(stream))
        return chain

    def _find_existing(self, connection: sqlite3.Connection, session_id: str) -> Chain:
        chain = self._chains.look_up(connection, session_id)
        if chain is None:
            raise NotFound(kind="session", value=session_id)
        return chain

    def _take(
        self, connection: sqlite3.Connection, session_id: str, chain: Chain, wish: LeaseWish
    ) -> bool:
        """Give the lease to an owner, with the next epoch, unless somebody holds it."""
        rows_from = chain.session_seq + 1 if self._tables.lazy_kinds else 0
        if not self._leases.take(connection, session_id, wish, rows_from):
            return False
        chain.epoch += 1
        chain.rows_from = chain.rows_from or rows_from
        return True

    def _give_back(self, connection: sqlite3.Connection, session_id: str, chain: Chain) -> None:
        """Free a session whose rows are written; the next turn needs that of the session itself."""
        # The process that knows no lazy projections has not written their rows either.
        rows_from = 0 if self._tables.lazy_kinds else chain.rows_from
        connection.execute(_RELEASE, (rows_from, chain.stream))
        chain.rows_from = rows_from
        chain.rows.forget_all_but(session_id)

    def _write_waiting(self, connection: sqlite3.Connection, chain: Chain) -> None:
        if chain.is_behind:
            self._catch_up(connection, chain)
        self._tables.write(connection, chain.rows, also_lazy=True)

    def _catch_up(self, connection: sqlite3.Connection, chain: Chain) -> None:
        """Write the rows that another process left waiting, from the log."""
        kinds = self._tables.lazy_kinds
        sql = (
            f"{EVENTS} WHERE e.stream = ? AND e.session_seq > ? "
            f"AND e.kind IN ({', '.join('?' * len(kinds))}) ORDER BY e.session_seq LIMIT 1000"
        )
        number = chain.rows_from - 1
        while events := read_events(connection, sql, [chain.stream, number, *kinds]):
            chain.rows.unfolded = [(event, event.decode()) for event in events]
            self._tables.write(connection, chain.rows, also_lazy=True)
            number = events[-1].session_seq
        self._note_rows(connection, chain)
        chain.is_behind = False

    def _note_rows(self, connection: sqlite3.Connection, chain: Chain) -> None:
        """Note that all rows up to the chain's end are written, and later ones may wait."""
        if self._tables.lazy_kinds:
            chain.rows_from = chain.session_seq + 1
            connection.execute(
                "UPDATE streams SET rows_from = ? WHERE stream = ?",
                (chain.rows_from, chain.stream),
            )
