"""Blobs in a SQLite file of their own, in pieces, for those who want one file to copy."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from holdfast.artifacts.blobs import BlobInfo, split_key
from holdfast.artifacts.stores.files import (
    check_blob_key,
    check_upload_name,
    make_missing,
    translate_error,
)
from holdfast.errors import SchemaTooNew, StorageDamaged
from holdfast.journal import SqlitePlace

T = TypeVar("T")
ARTIFACT_FILE = "artifacts.db"
APPLICATION_ID = 0x48415254
"""`HART`: marks a file as ours."""
_PATIENCE_S = 30.0
_PIECE = 1024 * 1024
_PAGE = 500
_VERSION = 1


class SqliteBlobs:
    """Keeps blobs in one SQLite file; reading one takes a connection of its own."""

    def __init__(self, path: Path) -> None:
        """Keep them in this file; nothing is touched yet."""
        self._path = path
        self._guard = threading.Lock()
        self._writer: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Create the file, or check that it is ours."""
        await asyncio.to_thread(self._open)

    async def close(self) -> None:
        """Close the file."""
        await asyncio.to_thread(self._close)

    async def claim(self, mark: str) -> str:
        """Mark the file, if it has no mark yet, and return the mark that it has."""

        def work(connection: sqlite3.Connection) -> str:
            connection.execute(
                "INSERT INTO place (one, mark) VALUES (1, ?) ON CONFLICT DO NOTHING", (mark,)
            )
            [[found]] = connection.execute("SELECT mark FROM place").fetchall()
            return str(found)

        return await self.change(work)

    def begin(self, name: str) -> SqliteUpload:
        """Return an upload."""
        return SqliteUpload(self, check_upload_name(name))

    async def size(self, key: str) -> int | None:
        """Return how many bytes a blob has, `None` if there is none."""
        check_blob_key(key)
        rows = await self._select("SELECT size FROM blobs WHERE key = ?", (key,))
        return rows[0][0] if rows else None

    async def read(self, key: str) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a blob, as it was when the first of them were read."""
        check_blob_key(key)
        reader = await asyncio.to_thread(self._connect)
        try:
            # One transaction: a blob that is replaced meanwhile is read to its end.
            await self._ask(reader, "BEGIN", ())
            found = await self._ask(reader, "SELECT upload FROM blobs WHERE key = ?", (key,))
            if not found:
                raise make_missing(key)
            number = 0
            sql = "SELECT data FROM pieces WHERE upload = ? AND number = ?"
            while rows := await self._ask(reader, sql, (found[0][0], number)):
                yield bytes(rows[0][0])
                number += 1
        finally:
            reader.close()

    async def remove(self, keys: Sequence[str]) -> None:
        """Remove blobs."""
        for key in keys:
            check_blob_key(key)

        def work(connection: sqlite3.Connection) -> None:
            for key in keys:
                connection.execute("DELETE FROM blobs WHERE key = ?", (key,))
            _drop_unused(connection)

        await self.change(work)

    async def scan(self) -> AsyncGenerator[BlobInfo, None]:
        """Yield every blob once."""
        last = ""
        sql = f"SELECT key, size FROM blobs WHERE key > ? ORDER BY key LIMIT {_PAGE}"
        while page := await self._select(sql, (last,)):
            for key, size in page:
                if split_key(key) is not None:
                    yield BlobInfo(key=key, size=size)
            last = page[-1][0]

    async def uploads(self) -> Sequence[str]:
        """Return the names of uploads that were begun."""
        return [name for (name,) in await self._select("SELECT name FROM uploads", ())]

    async def remove_upload(self, name: str) -> None:
        """Let go of an upload; what was published of it stays."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM uploads WHERE name = ?", (name,))
            _drop_unused(connection)

        await self.change(work)

    async def change(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do something in one transaction, in a thread."""
        return await asyncio.to_thread(self._change, work)

    # --- inside -----------------------------------------------------------------------

    async def _select(self, sql: str, values: tuple[object, ...]) -> list[Any]:
        return await self.change(lambda connection: connection.execute(sql, values).fetchall())

    async def _ask(
        self, connection: sqlite3.Connection, sql: str, values: tuple[object, ...]
    ) -> list[Any]:
        def ask() -> list[Any]:
            with self._translate_errors():
                return connection.execute(sql, values).fetchall()

        return await asyncio.to_thread(ask)

    def _change(self, work: Callable[[sqlite3.Connection], T]) -> T:
        self._open()
        with self._guard, self._translate_errors():
            connection = self._writer
            assert connection is not None
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            return result

    def _open(self) -> None:
        with self._guard:
            if self._writer is not None:
                return
            try:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with _lock_directory(self._path.parent):
                    flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
                    os.close(os.open(self._path, flags, 0o600))
                    with self._translate_errors():
                        self._writer = self._open_migrated()
            except OSError as error:
                raise translate_error(self._path, error) from error

    def _close(self) -> None:
        with self._guard:
            writer, self._writer = self._writer, None
            if writer is not None:
                writer.close()

    def _connect(self) -> sqlite3.Connection:
        self._open()
        with self._translate_errors():
            connection = sqlite3.connect(
                f"{self._path.absolute().as_uri()}?mode=rw",
                uri=True,
                timeout=_PATIENCE_S,
                isolation_level=None,
                check_same_thread=False,
            )
            connection.execute("PRAGMA synchronous = FULL")
            return connection

    def _open_migrated(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode=rw",
            uri=True,
            timeout=_PATIENCE_S,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            [[owner]] = connection.execute("PRAGMA application_id").fetchall()
            [[version]] = connection.execute("PRAGMA user_version").fetchall()
            [[tables]] = connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
            if owner != APPLICATION_ID and (owner or tables):
                detail = "it belongs to another program"
                raise StorageDamaged(path=str(self._path), detail=detail)
            if version > _VERSION:
                raise SchemaTooNew(what=str(self._path), found=version, known=_VERSION)
            # Both only count before the first table.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            connection.execute("PRAGMA synchronous = FULL")
            if version < _VERSION:
                connection.execute("BEGIN IMMEDIATE")
                for statement in _read_statements():
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {_VERSION}")
                connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise SqlitePlace(self._path).explain(error) from error


class SqliteUpload:
    """Pieces that have no key yet."""

    def __init__(self, store: SqliteBlobs, name: str) -> None:
        """Write under this name, from the first bytes on."""
        self._store = store
        self._name = name
        self._upload = 0
        self._number = 0
        self._size = 0
        self._rest = bytearray()

    async def write(self, data: bytes) -> None:
        """Add bytes at the end."""
        self._rest += data
        while len(self._rest) >= _PIECE:
            piece = bytes(self._rest[:_PIECE])
            del self._rest[:_PIECE]
            await self._keep(piece)

    async def publish(self, key: str, *, replaces: bool = False) -> None:
        """Let the pieces be the blob of this key."""
        check_blob_key(key)
        if self._rest or not self._upload:
            rest = bytes(self._rest)
            self._rest.clear()
            await self._keep(rest)
        upload, size = self._upload, self._size

        def work(connection: sqlite3.Connection) -> None:
            conflict = "DO UPDATE SET upload = excluded.upload, size = excluded.size"
            connection.execute(
                "INSERT INTO blobs (key, upload, size) VALUES (?, ?, ?) ON CONFLICT "
                + (conflict if replaces else "DO NOTHING"),
                (key, upload, size),
            )

        await self._store.change(work)

    async def discard(self) -> None:
        """Let go of the pieces, unless they are a blob's by now."""
        self._rest.clear()
        if self._upload:
            await self._store.remove_upload(self._name)

    async def _keep(self, piece: bytes) -> None:
        def work(connection: sqlite3.Connection) -> int:
            upload = self._upload
            if not upload:
                # Beyond every number in use: that of a blob outlives its row here.
                [[last]] = connection.execute(
                    "SELECT max(coalesce((SELECT max(upload) FROM uploads), 0), "
                    "coalesce((SELECT max(upload) FROM blobs), 0))"
                ).fetchall()
                upload = last + 1
                connection.execute(
                    "INSERT INTO uploads (upload, name) VALUES (?, ?)", (upload, self._name)
                )
            connection.execute(
                "INSERT INTO pieces (upload, number, data) VALUES (?, ?, ?)",
                (upload, self._number, piece),
            )
            return int(upload)

        self._upload = await self._store.change(work)
        self._number += 1
        self._size += len(piece)


def _drop_unused(connection: sqlite3.Connection) -> None:
    """Remove pieces that belong to no upload and to no blob, and give space back."""
    connection.execute(
        "DELETE FROM pieces WHERE upload NOT IN (SELECT upload FROM uploads) "
        "AND upload NOT IN (SELECT upload FROM blobs)"
    )
    connection.execute("PRAGMA incremental_vacuum").fetchall()


def _read_statements() -> list[str]:
    script = resources.files("holdfast.artifacts.stores").joinpath("sql/0001_initial.sql")
    text = script.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("--")]
    return [one.strip() for one in "\n".join(lines).split(";") if one.strip()]


@contextlib.contextmanager
def _lock_directory(directory: Path) -> Iterator[None]:
    """One process at a time creates the file; the lock ends with the process."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


__all__ = ["ARTIFACT_FILE", "SqliteBlobs", "SqliteUpload"]
