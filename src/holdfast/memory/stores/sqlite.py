"""Memories in one SQLite file, or in one that lives in memory."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from holdfast.errors import HoldfastError, MemoryIndexDamaged, StorageDamaged, UsageError
from holdfast.journal.stores._sqlite_errors import translate
from holdfast.journal.stores._sqlite_file import compute_size
from holdfast.memory.entry import MemoryEntry
from holdfast.memory.space import VectorSpace
from holdfast.memory.storage import (
    Choose,
    IndexRow,
    LexicalHit,
    MemoryDraft,
    MemoryFilter,
    MemoryPassage,
    MemoryPlace,
    MemoryStats,
    Purge,
    Relation,
    Unembedded,
    WordCounts,
)
from holdfast.memory.stores import _reading, _writing
from holdfast.memory.stores._file import open_file, open_memory

T = TypeVar("T")


class _LockedConnection:
    """A connection that one thread uses at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.lock = threading.Lock()
        self.statistics = _reading.IndexStatistics()


class SqliteMemoryStorage:
    """Rows, words and vectors in one file; several processes may use it at once.

    A store is one transaction. With `is_synced` it survives a power cut, otherwise the end
    of the process. Reads do not wait for writes.
    """

    def __init__(self, path: Path | None, *, is_synced: bool = False) -> None:
        """Name the file; None keeps everything in memory, for as long as this object."""
        self._path = path
        self._is_synced = is_synced
        self._writer: _LockedConnection | None = None
        self._reader: _LockedConnection | None = None

    # --- opening ----------------------------------------------------------------------

    async def open(self) -> None:
        """Create or check the file."""
        if self._writer is not None:
            return
        is_given_up = threading.Event()
        try:
            await asyncio.to_thread(self._open, is_given_up)
        except asyncio.CancelledError:
            # The thread goes on: the caller that is later, it or this, closes what it has opened.
            is_given_up.set()
            await self.close()
            raise

    def _open(self, is_given_up: threading.Event) -> None:
        if self._path is None:
            self._writer = self._reader = _LockedConnection(open_memory())
        else:
            writer, reader = open_file(self._path, is_synced=self._is_synced)
            self._writer, self._reader = _LockedConnection(writer), _LockedConnection(reader)
        if is_given_up.is_set():
            for held in self._let_go():
                _close(held)

    async def close(self) -> None:
        """Close the file."""
        for held in self._let_go():
            await asyncio.to_thread(_close, held)

    def _let_go(self) -> list[_LockedConnection]:
        held = {id(one): one for one in (self._writer, self._reader) if one is not None}
        self._writer = self._reader = None
        return list(held.values())

    # --- reading ----------------------------------------------------------------------

    async def get(self, tenant: str, ids: Sequence[str], *, model: str = "") -> list[MemoryEntry]:
        """Return memories by id, in the order asked for."""

        def read(db: sqlite3.Connection) -> list[MemoryEntry]:
            found = {
                entry.id: entry if not model else _with_vector(db, tenant, row, entry, model)
                for row, entry in _reading.index_by_id(db, tenant, list(ids)).items()
            }
            return [found[memory_id] for memory_id in ids if memory_id in found]

        return await self._read(read)

    async def find(
        self,
        places: Sequence[MemoryPlace],
        where: MemoryFilter,
        *,
        now: float,
        limit: int,
        after: str,
    ) -> list[MemoryEntry]:
        """Return memories, newest first."""
        place, values = _reading.build_places_sql(places)
        condition, more = _reading.list_passing(where, now)
        condition, values = f"{place} AND {condition}", [*values, *more]
        if after:
            condition += (
                " AND (m.created, m.row) < (SELECT a.created, a.row FROM memories a"
                " WHERE a.tenant = m.tenant AND a.id = ?)"
            )
            values.append(after)
        tail = "ORDER BY m.created DESC, m.row DESC LIMIT ?"
        values.append(limit)
        found = await self._read(lambda db: _reading.list_entries(db, condition, values, tail))
        return list(found.values())

    async def select(
        self,
        places: Sequence[MemoryPlace],
        words: Sequence[str],
        where: MemoryFilter,
        choose: Choose,
        *,
        now: float,
    ) -> dict[int, MemoryEntry]:
        """Return what is picked among the rows that hold words and pass a filter."""

        def work() -> dict[int, MemoryEntry]:
            hits = self._search_lexical(places, words)
            passing = None
            if not where.is_plain:
                passing = self._run_reading(
                    lambda db: _reading.list_rows_where(db, places, where, now)
                )
            # Others may read meanwhile.
            rows = choose(hits, passing, _SqliteLookup(self, places))
            return (
                self._run_reading(lambda db: _reading.index_by_row(db, places, rows))
                if rows
                else {}
            )

        # One thread for all of it: each change of threads costs as much as a query.
        return await asyncio.to_thread(work)

    def _search_lexical(
        self, places: Sequence[MemoryPlace], words: Sequence[str]
    ) -> list[LexicalHit]:
        known = self._require_open(self._reader).statistics
        try:
            return self._run_reading(lambda db: _reading.search_lexical(db, places, words, known))
        except StorageDamaged as error:
            raise MemoryIndexDamaged(path=self._name, detail=error.context["detail"]) from error

    async def revision(self) -> int:
        """Return the number of the last change."""
        held = self._require_open(self._reader)
        if not held.lock.acquire(blocking=False):
            return await self._read(_reading.compute_revision)
        # One row of one page: a thread would cost many times as much.
        try:
            with self._translate():
                return _reading.compute_revision(held.connection)
        finally:
            held.lock.release()

    async def changes(self, place: MemoryPlace, model: str, *, after: int) -> list[IndexRow]:
        """Return what changed in a place."""
        return await self._read(lambda db: _reading.list_changes(db, place, model, after))

    async def list_unembedded(
        self, model: str, limit: int, *, after: int = 0, needs_tokens: bool = False
    ) -> list[Unembedded]:
        """Return memories without a vector of the model, or without its tokens."""
        return await self._read(
            lambda db: _reading.list_unembedded(db, model, limit, after, needs_tokens=needs_tokens)
        )

    async def list_spaces(self) -> list[VectorSpace]:
        """Return the spaces of all vectors."""
        return await self._read(_reading.list_spaces)

    async def stats(self, tenant: str) -> MemoryStats:
        """Count what is there."""
        taken = compute_size(self._path) if self._path is not None else 0
        return await self._read(lambda db: _reading.make_stats(db, tenant, taken))

    # --- changing ---------------------------------------------------------------------

    async def add(self, drafts: Sequence[MemoryDraft]) -> None:
        """Store memories, all or none."""
        await self._write(lambda db: [_writing.add(db, draft) for draft in drafts])

    async def put_vectors(
        self,
        model: str,
        vectors: Mapping[int, bytes],
        refused: Mapping[int, str],
        *,
        space: VectorSpace | None = None,
        tokens: Mapping[int, bytes] | None = None,
        revisions: Mapping[int, int] | None = None,
    ) -> None:
        """Keep vectors, tokens, refusals, and how the model is reached."""

        def write(db: sqlite3.Connection) -> None:
            changed = _writing.list_changed_since(db, revisions or {})
            _writing.put_vectors(
                db,
                model,
                {row: one for row, one in vectors.items() if row not in changed},
                {row: why for row, why in refused.items() if row not in changed},
                {row: some for row, some in (tokens or {}).items() if row not in changed},
                space,
            )

        await self._write(write)

    async def pin(self, tenant: str, memory_id: str, is_pinned: bool) -> None:
        """Protect a memory from retention, or no longer."""
        await self._write(lambda db: _writing.pin(db, tenant, memory_id, is_pinned))

    async def link(self, tenant: str, memory_id: str, relation: Relation, other: str) -> None:
        """Note how two memories relate."""
        await self._write(lambda db: _writing.link_ids(db, tenant, memory_id, relation, other))

    async def forget(
        self, tenant: str, ids: Sequence[str], *, now: float, reason: str
    ) -> list[str]:
        """Remove memories for good."""
        return await self._write(
            lambda db: _writing.forget(db, tenant, ids, now=now, reason=reason)
        )

    async def purge(self, tenant: str, rule: Purge) -> list[str]:
        """Forget what a rule no longer keeps."""
        return await self._write(lambda db: _writing.purge(db, tenant, rule))

    async def reindex(self) -> int:
        """Make the index of words anew."""
        return await self._write(_writing.reindex)

    async def drop_vectors(self, model: str) -> int:
        """Remove all vectors of a model."""
        return await self._write(lambda db: _writing.drop_vectors(db, model))

    async def compact(self) -> bool:
        """Overwrite what was removed, and give free pages back."""
        await self._write(lambda db: db.execute("INSERT INTO words (words) VALUES ('optimize')"))
        return await asyncio.to_thread(self._compact_file)

    async def tidy(self) -> None:
        """Merge the index of words step by step, so that others can write between the steps.

        Lines of an older version are looked at once, also in steps: who says them.
        """
        while await self._write(_writing.infer_old_turns):
            pass
        is_more = await self._write(_writing.begin_merging)
        while is_more:
            is_more = await self._write(_writing.go_on_merging)

    def _compact_file(self) -> bool:
        held = self._require_open(self._writer)
        with held.lock, self._translate():
            held.connection.execute("PRAGMA incremental_vacuum").fetchall()
            found = held.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return found is None or not found[0]

    # --- inside -----------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return str(self._path or ":memory:")

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.to_thread(self._run_reading, work)

    def _run_reading(self, work: Callable[[sqlite3.Connection], T]) -> T:
        held = self._require_open(self._reader)
        with held.lock, self._translate():
            return work(held.connection)

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        # Runs to its end even if the caller is cancelled: no caller may find half of it open.
        return await asyncio.to_thread(self._run_writing, work)

    def _run_writing(self, work: Callable[[sqlite3.Connection], T]) -> T:
        held = self._require_open(self._writer)
        with held.lock, self._translate():
            db = held.connection
            db.execute("BEGIN IMMEDIATE")
            try:
                result = work(db)
                db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
                raise
            return result

    @contextlib.contextmanager
    def _translate(self) -> Iterator[None]:
        try:
            yield
        except (UnicodeEncodeError, OverflowError, sqlite3.ProgrammingError) as error:
            # Looked at before anything is written: a value that no column could hold.
            raise UsageError(detail=f"This cannot be looked up or kept: {error}") from error
        except sqlite3.Error as error:
            raise self._explain(error) from error

    def _explain(self, error: sqlite3.Error) -> HoldfastError:
        found = translate(error, self._name)
        if isinstance(found, StorageDamaged) or "fts5" in str(error):
            return StorageDamaged(path=self._name, detail=str(error))
        return found

    def _require_open(self, held: _LockedConnection | None) -> _LockedConnection:
        if held is None:
            raise UsageError(detail="The storage of memories is not open.")
        return held


class _SqliteLookup:
    """What a search reads while it chooses, from the connection that its storage reads with."""

    def __init__(self, storage: SqliteMemoryStorage, places: Sequence[MemoryPlace]) -> None:
        self._storage = storage
        self._places = places

    def passages(self, rows: Sequence[int], model: str) -> dict[int, MemoryPassage]:
        return self._storage._run_reading(
            lambda db: _reading.list_passages(db, self._places, rows, model)
        )

    def tokens(self, rows: Sequence[int], model: str) -> dict[int, bytes]:
        tenants = {place.tenant for place in self._places}
        return self._storage._run_reading(lambda db: _reading.list_tokens(db, tenants, rows, model))

    def count_words(self, words: Sequence[str]) -> WordCounts:
        known = self._storage._require_open(self._storage._reader).statistics
        return self._storage._run_reading(lambda db: _reading.count_words(db, words, known))


class InMemoryStorage(SqliteMemoryStorage):
    """Memories that live as long as this object; searches work exactly as in the file."""

    def __init__(self) -> None:
        """Start empty."""
        super().__init__(None)


def _close(held: _LockedConnection) -> None:
    with held.lock:
        held.connection.close()


def _with_vector(
    db: sqlite3.Connection, tenant: str, row: int, entry: MemoryEntry, model: str
) -> MemoryEntry:
    found = db.execute(
        "SELECT v.vector, t.tokens FROM vectors v"
        " LEFT JOIN tokens t ON t.row = v.row AND +t.model = v.model AND t.tenant = v.tenant"
        " WHERE v.tenant = ? AND v.row = ? AND v.model = ?",
        (tenant, row, model),
    ).fetchone()
    if found is None:
        return entry
    numbers = list(struct.unpack(f"<{len(found[0]) // 2}e", found[0]))
    return msgspec.structs.replace(entry, embedding=numbers, tokens=found[1])
