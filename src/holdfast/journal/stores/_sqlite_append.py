"""How a batch gets into SQLite: fenced, chained, and with the rows that follow from it.

What lazy projections follow waits in memory while a lease is held, and becomes rows when those
are written: with the last append under the lease. `streams.rows_from` says from which event on
rows are missing in the database, so that whoever reads them, here, elsewhere or after a crash, has
them written first.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

import msgspec

from holdfast.clock import Clock
from holdfast.errors import (
    AlreadyExists,
    LeaseLost,
    NotFound,
    SessionBusy,
    StaleWriter,
)
from holdfast.journal.envelope import SYSTEM_SESSION, Event, chained
from holdfast.journal.store import BLOB_THRESHOLD, AppendRequest, Head, LeaseWish
from holdfast.journal.stores._group_commit import GroupCommit
from holdfast.journal.stores._sqlite_events import (
    EVENTS,
    MOST_AT_ONCE,
    insert,
    insertion,
    read_events,
)
from holdfast.journal.stores._sqlite_heads import Chain, KnownChains, find_head
from holdfast.journal.stores._sqlite_rows import RowTables

_MOST_BEHIND = 128
"""So many events at most wait in memory, and are folded by whoever reads their rows."""

_BEHIND = """
SELECT s.session_id, s.rows_from,
       coalesce((SELECT max(session_seq) FROM events WHERE stream = s.stream), 0)
FROM streams s WHERE s.rows_from > 0
"""
_TAKE = """
UPDATE streams SET epoch = epoch + 1, owner = ?, lease_expires = ?,
       rows_from = CASE rows_from WHEN 0 THEN ? ELSE rows_from END
WHERE session_id = ? AND lease_expires <= ?
"""
_RELEASE = "UPDATE streams SET owner = '', lease_expires = 0, rows_from = ? WHERE stream = ?"


class Appender:
    """Writes to the chains of one file; its methods run inside a transaction, but for `at_once`."""

    def __init__(self, tables: RowTables, chains: KnownChains, clock: Clock) -> None:
        """Keep these tables up to date, and remember what was written in `chains`."""
        self._tables = tables
        self._chains = chains
        self._clock = clock

    def at_once(self, writer: GroupCommit, request: AppendRequest) -> tuple[Event, ...] | None:
        """Store a few small events with one fenced statement and no transaction around it.

        The most frequent append by far, and half the price. Returns `None`, with nothing
        stored, when it takes more than that; the long way then also finds out why.
        """
        chain = self._chains.get(request.session_id)
        if chain is None or not _is_plain(request, chain):
            return None
        if not writer.is_free():
            return None
        drafts = request.drafts
        events = chained(drafts, request.session_id, chain, self._chains.seq)
        later = self._tables.lazily(events, drafts)
        if later is None or (later and not chain.rows_from):
            return None
        fence = (chain.epoch, chain.rows_from)
        last = writer.insert_at_once(*insertion(chain.stream, events, fence))
        if last is None:
            return None
        chain.rows.unfolded += later
        if last != events[-1].seq:
            # Somebody else has written to another chain; no hash covers this number.
            ahead = last - events[-1].seq
            events = [msgspec.structs.replace(one, seq=one.seq + ahead) for one in events]
        chain.session_seq, chain.hash = events[-1].session_seq, events[-1].hash
        self._chains.seq = last
        return tuple(events)

    def append(self, connection: sqlite3.Connection, request: AppendRequest) -> tuple[Event, ...]:
        """Store a batch with its rows; refuses before anything has changed."""
        chain = self._writable(connection, request)
        if chain.is_behind:
            self._catch_up(connection, chain)
        events = chained(request.drafts, request.session_id, chain, self._chains.seq)
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
            self._give_back(connection, request.session_id, chain)
        elif is_due and chain.rows_from:
            self._note_rows(connection, chain)
        return tuple(events)

    def acquire(
        self, connection: sqlite3.Connection, session_id: str, wish: LeaseWish
    ) -> Head | None:
        """Give a session's lease to an owner, `None` if somebody holds it."""
        chain = self._existing(connection, session_id)
        if not self._take(connection, session_id, chain, wish):
            return None
        return find_head(connection, session_id)

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

    def _writable(self, connection: sqlite3.Connection, request: AppendRequest) -> Chain:
        """Return the chain that a request is for, created or leased as it wishes."""
        session_id = request.session_id
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
        if request.acquire is not None and not self._take(
            connection, session_id, chain, request.acquire
        ):
            raise SessionBusy(session_id=session_id)
        return chain

    def _create(self, connection: sqlite3.Connection, request: AppendRequest) -> Chain:
        session_id = request.session_id
        if not request.must_be_new and session_id != SYSTEM_SESSION:
            raise NotFound(kind="session", value=session_id)
        row = connection.execute("INSERT INTO streams (session_id) VALUES (?)", (session_id,))
        chain = Chain(row.lastrowid or 0)
        self._chains.put(session_id, chain)
        return chain

    def _existing(self, connection: sqlite3.Connection, session_id: str) -> Chain:
        chain = self._chains.look_up(connection, session_id)
        if chain is None:
            raise NotFound(kind="session", value=session_id)
        return chain

    def _take(
        self, connection: sqlite3.Connection, session_id: str, chain: Chain, wish: LeaseWish
    ) -> bool:
        """Give the lease to an owner, with the next epoch, unless somebody holds it."""
        now = self._clock.now()
        rows_from = chain.session_seq + 1 if self._tables.lazy_kinds else 0
        values = (wish.owner, now + wish.ttl_s, rows_from, session_id, now)
        if not connection.execute(_TAKE, values).rowcount:
            return False
        chain.epoch += 1
        chain.rows_from = chain.rows_from or rows_from
        return True

    def _give_back(self, connection: sqlite3.Connection, session_id: str, chain: Chain) -> None:
        """Free a session whose rows are written; the next turn needs that of the session itself."""
        # Whoever knows no lazy projections has not written their rows either.
        rows_from = 0 if self._tables.lazy_kinds else chain.rows_from
        connection.execute(_RELEASE, (rows_from, chain.stream))
        chain.rows_from = rows_from
        chain.rows.forget_all_but(session_id)

    def _write_waiting(self, connection: sqlite3.Connection, chain: Chain) -> None:
        if chain.is_behind:
            self._catch_up(connection, chain)
        self._tables.write(connection, chain.rows, also_lazy=True)

    def _catch_up(self, connection: sqlite3.Connection, chain: Chain) -> None:
        """Write the rows that somebody else left waiting, from the log."""
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


def _is_plain(request: AppendRequest, chain: Chain) -> bool:
    """Say whether a request asks for nothing but to store a few small events."""
    if request.release or request.is_synced or request.must_be_new or request.acquire is not None:
        return False
    if request.epoch not in (None, chain.epoch) or request.after not in (None, chain.session_seq):
        return False
    count = len(request.drafts)
    if chain.is_behind or count > MOST_AT_ONCE:
        return False
    if chain.rows_from and chain.session_seq + count - chain.rows_from >= _MOST_BEHIND:
        return False
    for draft in request.drafts:
        if len(draft.payload) > BLOB_THRESHOLD:
            return False
    return True
