"""Who holds a session in an SQLite file, judged by clocks that cannot step.

A lease that was written by this machine's boot clock is judged by it. Any other record (of an
earlier boot, of a copied file, of an older version that knew only the wall clock) says nothing
about now: it is given its whole time once more, by this boot clock, from the moment at which it
is first looked at. Its holder, if it lives, renews it meanwhile. So no step of the wall clock
takes a lease from a living process, and none keeps that of a dead one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.clock import Clock
from holdfast.journal.store import LeaseWish
from holdfast.journal.stores._owner_locks import OwnerLocks

LEASE_COLUMNS = (
    "s.owner, s.lease_expires, s.lease_seen, s.lease_clock, s.lease_until, s.lease_ttl, "
    "s.epoch, s.unproved_epoch"
)
"""Of `streams s`."""
_SHORTEST_UNKNOWN_S = 30.0
"""An older version did not write how long its leases last; this was its default."""

_REMEMBERED_S = 86_400.0
"""So long after its time an owner that is gone without a word can still be proved dead."""

_FIND = f"SELECT {LEASE_COLUMNS} FROM streams s WHERE s.session_id = ?"
_TAKE = """
UPDATE streams SET epoch = epoch + 1, owner = ?, lease_expires = ?, lease_seen = ?,
       lease_clock = ?, lease_until = ?, lease_ttl = ?,
       rows_from = CASE rows_from WHEN 0 THEN ? ELSE rows_from END
WHERE session_id = ? AND lease_expires = 0
"""
_ADOPT = """
UPDATE streams SET lease_seen = lease_expires, lease_clock = ?, lease_until = ?, lease_ttl = ?
WHERE session_id = ?
"""
_FREE = """
UPDATE streams SET owner = '', lease_expires = 0, unproved_epoch = ? WHERE session_id = ?
"""
_RENEW = """
UPDATE streams SET lease_expires = ?, lease_seen = ?, lease_clock = ?, lease_until = ?,
       lease_ttl = ?
WHERE session_id = ? AND epoch = ? AND owner = ?
"""
_FORGET = """
DELETE FROM {} WHERE owner IN (SELECT owner FROM presences WHERE clock = ? AND until < ?)
"""
_LEAVE = """
UPDATE streams SET owner = '', lease_expires = 0 WHERE session_id = ? AND epoch = ? AND owner = ?
"""
_PRESENCE = """
SELECT p.seen, p.clock, p.until, p.ttl, p.lock, o.expires
FROM (SELECT ? AS owner) LEFT JOIN presences p USING (owner) LEFT JOIN owners o USING (owner)
"""


class _Record(msgspec.Struct, frozen=True):
    """A time up to which something holds, by some boot clock."""

    clock: str
    until: float
    ttl: float


class SqliteLeases:
    """Judges and writes leases and presences; its methods run inside a transaction."""

    def __init__(self, path: Path, clock: Clock) -> None:
        """Judge by this clock; the locks of owners are in a file beside the database."""
        self._clock = clock
        self.locks = OwnerLocks(path.with_name(path.name + "-owners"))

    def is_held(self, connection: sqlite3.Connection, columns: Sequence[Any]) -> bool:
        """Say whether somebody holds the lease with these `LEASE_COLUMNS`, as far as that shows.

        One that this clock cannot judge counts as free here; only `take` decides.
        """
        owner, expires, seen, clock, until, ttl = columns[:6]
        if not expires or not self._is_judged(_Record(clock, until, ttl), seen == expires):
            return False
        return bool(until > self._clock.boottime()) and not self._is_dead(connection, owner)

    def take(
        self, connection: sqlite3.Connection, session_id: str, wish: LeaseWish, rows_from: int
    ) -> bool:
        """Give a session's lease to an owner, with the next epoch, unless somebody holds it."""
        # Its byte may have been given up since it last renewed, with a store that was closed.
        if wish.owner not in self.locks.held:
            self.locks.hold(wish.owner)
        expires, until = self._clock.now() + wish.ttl_s, self._clock.boottime() + wish.ttl_s
        lease = (wish.owner, expires, expires, self._clock.boot_id(), until, wish.ttl_s)
        values = (*lease, rows_from, session_id)
        if connection.execute(_TAKE, values).rowcount:
            return True
        return self._free(connection, session_id, wish.ttl_s) and bool(
            connection.execute(_TAKE, values).rowcount
        )

    def renew(
        self, connection: sqlite3.Connection, held: Mapping[str, int], wish: LeaseWish, lock: str
    ) -> set[str]:
        """Say that an owner lives, prolong its leases, and return those that are lost.

        For no time at all: it takes its leave, and what it holds is free.
        """
        if wish.ttl_s <= 0:
            return self._leave(connection, held, wish.owner)
        owner, ttl, now = wish.owner, wish.ttl_s, self._clock.boottime()
        seen = expires = self._clock.now() + ttl
        clock, until = self._clock.boot_id(), now + ttl
        connection.execute("REPLACE INTO owners VALUES (?, ?)", (owner, expires))
        connection.execute(
            "REPLACE INTO presences VALUES (?, ?, ?, ?, ?, ?)",
            (owner, seen, clock, until, ttl, lock),
        )
        for table in ("owners", "presences"):
            connection.execute(_FORGET.format(table), (clock, now - _REMEMBERED_S))
        lost = set()
        for session_id, epoch in held.items():
            values = (expires, seen, clock, until, ttl, session_id, epoch, owner)
            if not connection.execute(_RENEW, values).rowcount:
                lost.add(session_id)
        return lost

    def find_presence(self, connection: sqlite3.Connection, owner: str) -> bool | None:
        """Say whether an owner is alive; `None` if its record has to be adopted first."""
        seen, clock, until, ttl, lock, expires = connection.execute(_PRESENCE, (owner,)).fetchone()
        if clock is None:
            return False if expires is None else None
        if not self._is_judged(_Record(clock, until, ttl), expires in (None, seen)):
            return None
        is_here = clock == self._clock.boot_id()
        is_dead = is_here and self.locks.is_dead(owner, lock)
        return bool(until > self._clock.boottime()) and not is_dead

    def adopt_presence(self, connection: sqlite3.Connection, owner: str) -> bool:
        """Give an owner that this clock cannot judge its whole time once more."""
        found = self.find_presence(connection, owner)
        if found is None:
            _, _, _, ttl, _, expires = connection.execute(_PRESENCE, (owner,)).fetchone()
            ttl = ttl or _SHORTEST_UNKNOWN_S
            until = self._clock.boottime() + ttl
            values = (owner, expires or 0.0, self._clock.boot_id(), until, ttl, "")
            connection.execute("REPLACE INTO presences VALUES (?, ?, ?, ?, ?, ?)", values)
        return found is not False

    # --- inside -----------------------------------------------------------------------

    def _leave(
        self, connection: sqlite3.Connection, held: Mapping[str, int], owner: str
    ) -> set[str]:
        for table in ("owners", "presences"):
            connection.execute(f"DELETE FROM {table} WHERE owner = ?", (owner,))
        return {
            session_id
            for session_id, epoch in held.items()
            if not connection.execute(_LEAVE, (session_id, epoch, owner)).rowcount
        }

    def _free(self, connection: sqlite3.Connection, session_id: str, ttl_s: float) -> bool:
        """Free a lease whose time is over or whose holder is dead; says whether it is free."""
        found = connection.execute(_FIND, (session_id,)).fetchone()
        owner, expires, seen, clock, until, ttl, epoch, unproved = found
        now = self._clock.boottime()
        if not self._is_judged(_Record(clock, until, ttl), seen == expires):
            # Not shorter than that of the asker, for all on a file have one setting.
            ttl = ttl if seen == expires and ttl else max(ttl_s, _SHORTEST_UNKNOWN_S)
            connection.execute(_ADOPT, (self._clock.boot_id(), now + ttl, ttl, session_id))
            return False
        if self._is_dead(connection, owner):
            connection.execute(_FREE, (unproved, session_id))
        elif until <= now:
            connection.execute(_FREE, (epoch, session_id))
        else:
            return False
        return True

    def _is_judged(self, record: _Record, is_whole: bool) -> bool:
        """Say whether this boot clock can tell when a record ends.

        What lasts longer than it should was written by another clock under the same name.
        """
        if not is_whole or record.clock != self._clock.boot_id():
            return False
        return record.until - self._clock.boottime() <= record.ttl + 1.0

    def _is_dead(self, connection: sqlite3.Connection, owner: str) -> bool:
        sql = "SELECT clock, lock FROM presences WHERE owner = ?"
        found = connection.execute(sql, (owner,)).fetchone()
        if found is None or found[0] != self._clock.boot_id():
            return False
        return self.locks.is_dead(owner, found[1])
