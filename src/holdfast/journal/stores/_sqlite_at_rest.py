"""Chains of an SQLite file that lies where nothing can be written, such as a mounted backup."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from holdfast.errors import StorageReadOnly
from holdfast.journal.envelope import Event
from holdfast.journal.store import Finding, Head
from holdfast.journal.stores import _sqlite_file as file
from holdfast.journal.stores._sqlite_chains import EVENTS, HEADS, read_events, read_head
from holdfast.journal.stores._sqlite_errors import translate
from holdfast.journal.stores._sqlite_examination import examine_file

T = TypeVar("T")

_PAGE = (
    f"{EVENTS}WHERE e.stream = (SELECT stream FROM streams WHERE session_id = ?) "
    "AND e.session_seq > ? ORDER BY e.session_seq LIMIT ?"
)


class SqliteAtRest:
    """What it takes to check chains, of a file that no other process writes; makes nothing, locks
    nothing.

    Raises, from every method:
        StorageReadOnly: there is more to it than the file, or it has to be migrated first, and
            both take a place that can be written.
        StorageDamaged, SchemaTooNew: it is no database of ours, or a newer Holdfast wrote it.
    """

    def __init__(self, path: Path) -> None:
        """Remember what to read."""
        self._path = path

    async def heads(self) -> list[Head]:
        """Return the ends of all chains."""
        return await self._read(lambda c: [read_head(row) for row in c.execute(HEADS)])

    async def read(self, session_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """Return events of one session in order."""
        return await self._read(lambda c: read_events(c, _PAGE, [session_id, after, limit]))

    async def examine(self) -> list[Finding]:
        """Return what is wrong with the file; its tables are not compared with the log here."""
        return await self._read(examine_file)

    async def _read(self, read: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.to_thread(self._read_now, read)

    def _read_now(self, read: Callable[[sqlite3.Connection], T]) -> T:
        with self._connect() as connection:
            return read(connection)

    @contextlib.contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        log = self._path.with_name(f"{self._path.name}-wal")
        if log.exists() and log.stat().st_size:
            # Without the log the last events would be missing, and no reader would notice.
            raise self._report_unreadable(
                "its log (-wal) holds events that are not in the file yet"
            )
        try:
            # Immutable: otherwise SQLite wants to make files beside it even to read.
            uri = f"{self._path.absolute().as_uri()}?mode=ro&immutable=1"
            with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
                if not file.is_current(connection, self._path):
                    raise self._report_unreadable(
                        "an older Holdfast wrote it, and it must be migrated"
                    )
                yield connection
        except sqlite3.Error as error:
            raise translate(error, str(self._path)) from error

    def _report_unreadable(self, because: str) -> StorageReadOnly:
        detail = f"{because}; copy the whole directory to a place that can be, and look there"
        return StorageReadOnly(path=str(self._path), detail=detail)


__all__ = ["SqliteAtRest"]
