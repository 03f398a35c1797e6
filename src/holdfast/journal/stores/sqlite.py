"""The journal in one SQLite file: the default store."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import SplitResult, quote

import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import AlreadyExists, LeaseLost, StorageError, StorageLocked
from holdfast.journal.envelope import SYSTEM_SESSION, Draft, Event
from holdfast.journal.projection import AnyProjection, KeyedRow, RowQuery, check_query
from holdfast.journal.store import (
    AppendRequest,
    Durability,
    Finding,
    Head,
    LeaseWish,
    MendReport,
    check_restored,
)
from holdfast.journal.stores import _sqlite_file as file
from holdfast.journal.stores._forks import tell_after_fork
from holdfast.journal.stores._group_commit import GroupCommit
from holdfast.journal.stores._sqlite_at_rest import SqliteAtRest
from holdfast.journal.stores._sqlite_chains import (
    EVENTS,
    HEADS,
    LEASE_AT,
    ONE_HEAD,
    REDACTED,
    Appender,
    KnownChains,
    insert,
    locate,
    read_events,
    read_head,
    read_last_seq,
)
from holdfast.journal.stores._sqlite_errors import translate
from holdfast.journal.stores._sqlite_examination import examine, require_sound
from holdfast.journal.stores._sqlite_guard import FileGuard
from holdfast.journal.stores._sqlite_leases import SqliteLeases
from holdfast.journal.stores._sqlite_reader import Reader
from holdfast.journal.stores._sqlite_rows import RowTables, SessionRows, is_for_one
from holdfast.journal.stores._sqlite_salvage import salvage
from holdfast.journal.stores._wakeups import Wakeups
from holdfast.journal.stores.registry import StoreKind, StoreOptions, resolve_directory

T = TypeVar("T")
_BACKUP_PAGES = 4_096
"""At a time; in between, writers go on."""
Row = TypeVar("Row", bound=msgspec.Struct)

_FILE = "journal.db"
_LARGEST_INT = 2**63 - 1
_left_behind: list[object] = []
"""Connections of the process from which this one was forked, kept so that none is closed here."""
_ALL_WRITTEN = """
UPDATE streams SET rows_from = 1 +
       coalesce((SELECT max(session_seq) FROM events WHERE stream = streams.stream), 0)
WHERE rows_from > 0
"""


class SqliteStore:
    """One file, one writer connection, any number of processes.

    `durability`: `process` survives the end of the process at any moment, `power` also a
    power cut. Events that declare it reach the disk at once in either case.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        projections: Sequence[AnyProjection] = (),
        durability: Durability = "process",
        clock: Clock = SYSTEM,
    ) -> None:
        """Remember what to open; nothing is touched before `open`."""
        self.path = Path(path)
        self._tables = RowTables(projections)
        self._durability = durability
        self._clock = clock
        self._wakeups = Wakeups()
        self._guard = FileGuard(self.path)
        self._writer: GroupCommit | None = None
        self._reader: Reader | None = None
        self._chains = KnownChains()
        self._leases = SqliteLeases(self.path, clock)
        self._appender = Appender(self._tables, self._chains, self._leases)
        tell_after_fork(self)

    async def open(self) -> None:
        """Open the file, creating it (mode 0600) or migrating it where needed.

        Raises:
            StorageDamaged: the file is no database of ours, or it is broken, which is looked
                for after an unclean end and when something else has changed it; it is left
                untouched.
            SchemaTooNew: a newer Holdfast wrote it; it is left untouched.
            StorageReadOnly: the place cannot be written.
        """
        await asyncio.to_thread(self._prepare)
        try:
            self._writer = GroupCommit(
                file.connect(self.path),
                str(self.path),
                always_synced=self._durability == "power",
                on_rollback=self._chains.forget,
                clock=self._clock,
            )
            self._reader = Reader(self.path, self._writer)
        except BaseException:
            await self._give_up_opening()
            raise

    async def _give_up_opening(self) -> None:
        if self._writer is not None:
            await self._writer.close()
            self._writer = None
        self._guard.abandon()

    async def close(self) -> None:
        """Commit what was accepted, then close all connections."""
        if self._writer is not None:
            await self._writer.close()
            self._writer = None
        if self._reader is not None:
            reader, self._reader = self._reader, None
            await reader.close()
            await asyncio.to_thread(self._guard.leave)
        self._leases.locks.close()

    def leave_to_parent(self) -> None:
        """Be closed in a forked child: connections must not be used, or closed, by two processes.

        Nothing that the parent has accepted is lost, for it goes on with them.
        """
        if self._writer is not None:
            _left_behind.append((self._writer, self._reader))
        self._writer = self._reader = None

    async def append(self, request: AppendRequest) -> tuple[Event, ...]:
        """Store a batch and its rows in one transaction; see `Store.append`."""
        if self._writer is None:
            raise self._make_not_open_error()
        events = self._appender.read_at_once(self._writer, request)
        if events is None:
            events = await self._writer.run(
                lambda c: self._appender.append(c, request), is_synced=request.is_synced
            )
        if self._wakeups.waiting:
            self._wakeups.notify()
        return events

    async def restore(self, events: Sequence[Event], *, keeps_numbers: bool = False) -> None:
        """Store a whole session as it was elsewhere; see `Store.restore`."""
        await self._write(lambda c: self._restore(c, events, keeps_numbers), is_synced=True)
        self._wakeups.notify()

    async def read(
        self,
        session_id: str,
        *,
        after: int = 0,
        limit: int = 1000,
        kinds: frozenset[str] | None = None,
        seqs: Sequence[int] | None = None,
    ) -> list[Event]:
        """Return events of one session in order; see `Store.read`."""
        sql = EVENTS + "WHERE e.stream = (SELECT stream FROM streams WHERE session_id = ?)"
        values: list[Any] = [session_id]
        if seqs is None:
            sql += " AND e.session_seq > ?"
            values.append(min(after, _LARGEST_INT))
        else:
            sql += f" AND e.session_seq IN ({', '.join('?' * len(seqs))})"
            values += seqs
        if kinds is not None:
            sql += f" AND e.kind IN ({', '.join('?' * len(kinds))})"
            values += sorted(kinds)
        sql += " ORDER BY e.session_seq LIMIT ?"
        values.append(max(limit, 0))
        end = self._chains.get(session_id)
        if end is not None and seqs is None:
            # As far as is known here; what others have added since makes it longer.
            limit = min(limit, end.session_seq - after)
        return await self._require_open().read(lambda c: read_events(c, sql, values), limit)

    async def feed(self, *, after: int, limit: int = 1000) -> list[Event]:
        """Return events of all sessions in the order of `seq`.

        Numbers are given inside the one write transaction, so no lower one can appear later.
        """
        sql = EVENTS + "WHERE e.seq > ? ORDER BY e.seq LIMIT ?"
        values = [min(after, _LARGEST_INT), max(limit, 0)]
        if self._chains.seq >= 0:
            limit = min(limit, self._chains.seq - after)
        return await self._require_open().read(lambda c: read_events(c, sql, values), limit)

    async def read_last_seq(self) -> int:
        """Return the highest `seq`, 0 when there is none."""
        return await self._require_open().read(read_last_seq, 1)

    async def heads(self, session_id: str | None = None) -> list[Head]:
        """Return the ends of all chains, or of one."""
        if session_id is None:
            return await self._require_open().read(lambda c: self._read_heads(c, HEADS))
        known = self._find_known_head(session_id)
        if known is not None:
            return [known]
        return await self._require_open().read(
            lambda c: self._read_heads(c, ONE_HEAD, session_id), 1
        )

    def _read_heads(self, connection: sqlite3.Connection, sql: str, *values: str) -> list[Head]:
        return [
            read_head(row, is_held=self._leases.is_held(connection, row[LEASE_AT:]))
            for row in connection.execute(sql, values).fetchall()
        ]

    def _find_known_head(self, session_id: str) -> Head | None:
        """Return the end of a chain that is remembered and has not moved, asked for all the time.

        Through the writer's connection, whenever it is idle.
        """
        connection = self._writer.idle if self._writer is not None else None
        if connection is None:
            return None
        try:
            return self._chains.head(connection, session_id, self._leases)
        except sqlite3.Error as error:
            raise translate(error, str(self.path)) from error

    async def rows(self, query: RowQuery[Row]) -> list[KeyedRow[Row]]:
        """Return the rows of a projection that a query describes."""
        check_query(query)
        reader, is_lazy = self._require_open(), query.projection.is_lazy
        if not is_for_one(query):
            if is_lazy:
                await self._write_waiting(query.session_id)
            return await reader.read(lambda c: self._tables.select(c, query), query.limit)
        found, may_wait = await reader.read(lambda c: self._tables.find(c, query), 1)
        if is_lazy and may_wait:
            await self._write_waiting(query.session_id)
            found, _ = await reader.read(lambda c: self._tables.find(c, query), 1)
        return found

    async def _write_waiting(self, session_id: str) -> None:
        """Have the rows written that wait, of one session or of all."""
        reader, writer = self._require_open(), self._writer
        is_writing = writer is None or writer.idle is None
        behind = await reader.read(
            lambda c: self._appender.behind(c, session_id, is_writing=is_writing), 1
        )
        if behind:
            await self._write(lambda c: self._appender.write_waiting(c, behind))

    async def acquire(self, session_id: str, owner: str, ttl_s: float) -> Head | None:
        """Take the session's lease with the next epoch, or return `None` when it is held."""
        wish = LeaseWish(owner=owner, ttl_s=ttl_s)
        return await self._write(lambda c: self._appender.acquire(c, session_id, wish))

    def renew(self, held: dict[str, int], owner: str, ttl_s: float) -> set[str]:
        """Prolong leases from a thread, on a connection of its own."""
        with file.open_exclusively(self.path) as connection:
            lock = self._leases.locks.hold(owner) if ttl_s > 0 else ""
            wish = LeaseWish(owner=owner, ttl_s=ttl_s)
            lost = self._leases.renew(connection, held, wish, lock)
        if not lock:
            self._leases.locks.release(owner)
        return lost

    async def is_alive(self, owner: str) -> bool:
        """Say whether an owner has renewed itself in time, and is not proved dead."""
        found = await self._require_open().read(lambda c: self._leases.find_presence(c, owner), 1)
        if found is None:
            found = await self._write(lambda c: self._leases.adopt_presence(c, owner))
        return found

    async def release(self, session_id: str, epoch: int) -> None:
        """Give a lease back; one that is already lost is left alone."""
        await self._write(lambda c: self._appender.release(c, session_id, epoch))
        self._wakeups.notify()

    async def redact(self, session_id: str, reduced: dict[int, bytes], note: Draft) -> None:
        """Replace payloads by their redacted form and append the note that says so."""

        def write(connection: sqlite3.Connection) -> None:
            request = AppendRequest(session_id=session_id, drafts=(note,), epoch=None)
            self._appender.append(connection, request)
            stream, _ = locate(connection, session_id)
            connection.executemany(
                "UPDATE events SET payload = ?, placement = ? WHERE stream = ? AND session_seq = ?",
                [(data, REDACTED, stream, number) for number, data in reduced.items()],
            )
            self._chains.drop(session_id)
            self._tables.forget(connection, stream)
            self._fold_all(connection, "WHERE e.stream = ? AND", [stream])
            connection.execute(f"{_ALL_WRITTEN} AND stream = ?", (stream,))

        await self._write(write, is_synced=True)
        self._wakeups.notify()

    async def delete(self, session_id: str, note: Draft, epoch: int) -> None:
        """Remove a session held under `epoch`; the note goes to the system chain."""

        def write(connection: sqlite3.Connection) -> None:
            stream, current = locate(connection, session_id)
            if current != epoch:
                raise LeaseLost(session_id=session_id, current=current, held=epoch)
            # The note comes first, so that the highest `seq` is never removed.
            self._appender.append(
                connection, AppendRequest(session_id=SYSTEM_SESSION, drafts=(note,), epoch=None)
            )
            self._tables.forget(connection, stream)
            connection.execute("DELETE FROM events WHERE stream = ?", (stream,))
            connection.execute("DELETE FROM streams WHERE stream = ?", (stream,))
            self._chains.drop(session_id)

        await self._write(write, is_synced=True)
        self._wakeups.notify()

    async def rebuild(self, progress: Callable[[int, int], None]) -> int:
        """Drop and rebuild all projections in one transaction."""

        def work() -> int:
            with file.open_exclusively(self.path) as connection:
                return self._rebuild(connection, progress)

        done = await asyncio.to_thread(work)
        self._chains.forget()
        return done

    async def examine(self) -> list[Finding]:
        """Return what is wrong with the file, and with tables that do not follow from the log."""
        await self._write_waiting("")
        return await asyncio.to_thread(examine, self.path, self._tables)

    async def mend(self) -> MendReport:
        """Put a sound file in the place of a damaged one; see `Store.mend`."""

        def work() -> MendReport:
            with self._guard.alone() as is_alone:
                if not is_alone or self._writer is not None:
                    raise StorageLocked(path=str(self.path))
                return salvage(self.path, self._clock)

        return await asyncio.to_thread(work)

    async def collect(self) -> dict[str, int]:
        """Remove blobs that no event refers to, and give space back to the disk."""

        def work() -> dict[str, int]:
            with file.open_exclusively(self.path) as connection:
                removed = connection.execute(
                    "DELETE FROM blobs WHERE digest NOT IN "
                    "(SELECT digest FROM events WHERE placement = 1)"
                ).rowcount
            before = file.compute_size(self.path)
            file.give_back_space(self.path)
            return {"blobs": removed, "bytes": max(0, before - file.compute_size(self.path))}

        return await asyncio.to_thread(work)

    async def changed(self, after: int, timeout_s: float) -> bool:
        """Wait until an event beyond `after` exists, a lease was released, or time is up.

        Changes of this process are known at once, those of others are found by asking.
        """

        def has_more() -> bool:
            try:
                return read_last_seq(self._require_open().connection) > after
            except sqlite3.Error as error:
                raise translate(error, str(self.path)) from error

        return await self._wakeups.wait(has_more, timeout_s)

    async def stats(self) -> dict[str, Any]:
        """Count sessions, events, blobs and bytes."""

        def count(connection: sqlite3.Connection) -> dict[str, Any]:
            sessions, events, blobs = connection.execute(
                "SELECT (SELECT count(*) FROM streams), (SELECT count(*) FROM events), "
                "(SELECT count(*) FROM blobs)"
            ).fetchone()
            return {"sessions": sessions, "events": events, "blobs": blobs}

        return {**await self._require_open().read(count), "bytes": file.compute_size(self.path)}

    # --- inside a transaction ---------------------------------------------------------

    def _restore(
        self, connection: sqlite3.Connection, events: Sequence[Event], keeps_numbers: bool
    ) -> None:
        session_id = check_restored(events)
        if connection.execute(ONE_HEAD, (session_id,)).fetchone() is not None:
            raise AlreadyExists(kind="session", value=session_id)
        connection.execute(
            "INSERT INTO streams (session_id, epoch) VALUES (?, ?)",
            (session_id, max(event.epoch for event in events)),
        )
        stream, _ = locate(connection, session_id)
        last = read_last_seq(connection)
        sealed = [
            event if keeps_numbers else msgspec.structs.replace(event, seq=last + number)
            for number, event in enumerate(events, 1)
        ]
        insert(connection, stream, sealed)
        folded = [event for event in sealed if self._tables.folds(event.kind)]
        folding = [(event, event.decode()) for event in folded]
        rows = SessionRows(stream)
        self._tables.fold(connection, rows, folding)
        self._tables.write(connection, rows, also_lazy=True)

    def _rebuild(self, connection: sqlite3.Connection, progress: Callable[[int, int], None]) -> int:
        self._tables.recreate(connection)
        total = connection.execute("SELECT count(*) FROM events").fetchone()[0]
        done = self._fold_all(connection, "WHERE", [], lambda done: progress(done, total))
        connection.execute(_ALL_WRITTEN)
        return done

    def _fold_all(
        self,
        connection: sqlite3.Connection,
        where: str,
        values: list[Any],
        progress: Callable[[int], None] = lambda done: None,
    ) -> int:
        """Fold events that are already stored, in the order of `seq`."""
        done, seq = 0, 0
        rows: dict[str, SessionRows] = {}
        streams = dict(connection.execute("SELECT session_id, stream FROM streams"))
        sql = f"{EVENTS} {where} e.seq > ? ORDER BY e.seq LIMIT 1000"
        while chunk := read_events(connection, sql, [*values, seq]):
            for event in chunk:
                if self._tables.folds(event.kind):
                    name = event.session_id
                    of_session = rows.setdefault(name, SessionRows(streams[name]))
                    self._tables.fold(connection, of_session, [(event, event.decode())])
            for of_session in rows.values():
                self._tables.write(connection, of_session, also_lazy=True)
            rows.clear()
            done, seq = done + len(chunk), chunk[-1].seq
            progress(done)
        return done

    # --- connections ------------------------------------------------------------------

    def _prepare(self) -> None:
        file.prepare(self.path, lambda: self._guard.enter(lambda: require_sound(self.path)))
        try:
            self._update_tables()
        except BaseException:
            self._guard.abandon()
            raise

    def _update_tables(self) -> None:
        # A look first: a store that is up to date opens also while somebody writes.
        with file.open_for_reading(self.path) as connection:
            if not self._tables.is_outdated(connection):
                return
        with file.open_exclusively(self.path) as connection:
            if self._tables.is_outdated(connection):
                self._rebuild(connection, lambda done, total: None)

    def _require_open(self) -> Reader:
        if self._reader is None:
            raise self._make_not_open_error()
        return self._reader

    def _make_not_open_error(self) -> StorageError:
        return StorageError(path=str(self.path), detail="the store is not open")

    async def _write(self, write: Callable[[sqlite3.Connection], T], is_synced: bool = False) -> T:
        if self._writer is None:
            raise self._make_not_open_error()
        return await self._writer.run(write, is_synced=is_synced)


def _open(address: SplitResult, options: StoreOptions) -> SqliteStore:
    return SqliteStore(
        resolve_directory(address, options.base_dir) / _FILE,
        projections=options.projections,
        durability=options.durability,
        clock=options.clock,
    )


def _open_at_rest(address: SplitResult, base_dir: Path) -> SqliteAtRest | None:
    path = resolve_directory(address, base_dir) / _FILE
    return SqliteAtRest(path) if path.exists() else None


def _backup(source: Path, target: Path, progress: Callable[[int, int], None]) -> None:
    # Nothing is looked at but the pages, so this fits every database of the state directory.
    try:
        with (
            contextlib.closing(
                sqlite3.connect(f"file:{quote(str(source))}?mode=ro", uri=True)
            ) as one,
            contextlib.closing(sqlite3.connect(target)) as other,
        ):
            target.chmod(0o600)
            one.backup(
                other,
                pages=_BACKUP_PAGES,
                progress=lambda _, left, total: progress(total - left, total),
                sleep=0,
            )
    except sqlite3.Error as error:
        raise translate(error, str(source)) from error


KIND = StoreKind(
    open=_open,
    at_rest=_open_at_rest,
    backup=_backup,
    places=lambda address, base_dir: (resolve_directory(address, base_dir),),
)
"""`sqlite:///DIRECTORY`: the file `journal.db` in a directory."""
