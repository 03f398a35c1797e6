"""Memories in one SQLite file, or in one that lives in memory."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from holdfast.errors import HoldfastError, MemoryIndexDamaged, StorageDamaged, UsageError
from holdfast.journal import SqlitePlace
from holdfast.memory.storage import LexicalHit, MemoryPlace
from holdfast.memory.stores import _reading
from holdfast.memory.stores._database import MemoryDatabase
from holdfast.memory.stores._file import open_file, open_memory
from holdfast.memory.stores._sqlite_words import SqliteDatabase
from holdfast.memory.stores._storage import SqlMemoryStorage

T = TypeVar("T")


class _LockedConnection:
    """A connection that one thread uses at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.database = SqliteDatabase(connection)
        self.lock = threading.Lock()


class SqliteMemoryStorage(SqlMemoryStorage):
    """Rows, words and vectors in one file; several processes may use it at once.

    A store is one transaction. With `is_synced` it survives a power cut, otherwise the end
    of the process. Reads do not wait for writes.
    """

    def __init__(self, path: Path | None, *, is_synced: bool = False) -> None:
        """Name the file; None keeps everything in memory, for as long as this object."""
        self._path = path
        self._place = SqlitePlace(path)
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
            self._writer = self._reader = _LockedConnection(open_memory(self._place))
        else:
            writer, reader = open_file(self._place, self._path, is_synced=self._is_synced)
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

    def search_words(self, places: Sequence[MemoryPlace], words: Sequence[str]) -> list[LexicalHit]:
        """Return how well rows fit the words, in the thread of the caller."""
        try:
            return super().search_words(places, words)
        except StorageDamaged as error:
            raise MemoryIndexDamaged(
                path=self._place.name, detail=error.context["detail"]
            ) from error

    async def revision(self) -> int:
        """Return the number of the last change."""
        held = self._require_open(self._reader)
        if not held.lock.acquire(blocking=False):
            return await super().revision()
        # One row of one page: a thread would cost many times as much.
        try:
            with self._translate():
                return _reading.read_revision(held.database)
        finally:
            held.lock.release()

    def measure_bytes(self) -> int:
        """Return how many bytes the file takes."""
        return self._place.measure_bytes()

    # --- changing ---------------------------------------------------------------------

    async def compact(self) -> bool:
        """Overwrite what was removed, and give free pages back."""
        await asyncio.to_thread(self._change_index, SqliteDatabase.merge_all)
        return await asyncio.to_thread(self._compact_file)

    async def tidy(self) -> None:
        """Merge the index of words step by step, so that others can write between the steps."""
        await super().tidy()
        is_more = await asyncio.to_thread(self._change_index, SqliteDatabase.begin_merging)
        while is_more:
            is_more = await asyncio.to_thread(self._change_index, SqliteDatabase.go_on_merging)

    def _compact_file(self) -> bool:
        held = self._require_open(self._writer)
        with held.lock, self._translate():
            held.database.execute("PRAGMA incremental_vacuum").fetchall()
            found = held.database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return found is None or not found[0]

    # --- inside -----------------------------------------------------------------------

    def run_reading(self, work: Callable[[MemoryDatabase], T]) -> T:
        """Ask the connection that reads."""
        held = self._require_open(self._reader)
        with held.lock, self._translate():
            return work(held.database)

    def run_writing(self, work: Callable[[MemoryDatabase], T]) -> T:
        """Change something in one transaction."""
        return self._change_index(work)

    def _change_index(self, work: Callable[[SqliteDatabase], T]) -> T:
        held = self._require_open(self._writer)
        with held.lock, self._translate():
            db = held.database
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
        found = self._place.explain(error)
        if isinstance(found, StorageDamaged) or "fts5" in str(error):
            return StorageDamaged(path=self._place.name, detail=str(error))
        return found

    def _require_open(self, held: _LockedConnection | None) -> _LockedConnection:
        if held is None:
            raise UsageError(detail="The storage of memories is not open.")
        return held


class InMemoryStorage(SqliteMemoryStorage):
    """Memories that live as long as this object; searches work exactly as in the file."""

    def __init__(self) -> None:
        """Start empty."""
        super().__init__(None)


def _close(held: _LockedConnection) -> None:
    with held.lock:
        held.database.connection.close()
