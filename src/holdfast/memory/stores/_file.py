"""The file of memories: how it is created, checked and brought to the newest schema."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from holdfast.errors import SchemaTooNew, StorageDamaged, StorageFull, StorageReadOnly
from holdfast.journal import SqlitePlace

APPLICATION_ID = 0x484D454D
"""`HMEM`: marks a file as ours."""
_CACHE_KB = 16_000
"""What searches touch of some ten thousand memories; with SQLite's 2 MB they read it each time."""


def open_file(
    place: SqlitePlace, path: Path, *, is_synced: bool
) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    """Create or check the file; return a connection that writes and one that reads."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        # One process at a time; the lock ends with the process, however that ends.
        with _lock_alone(path.parent):
            # Created with the right mode from the start: others never see it open.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            writer = place.connect()
            try:
                migrate(writer, place)
                if is_synced:
                    writer.execute("PRAGMA synchronous = FULL")
                reader = place.connect()
            except BaseException:
                writer.close()
                raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(path=str(path)) from error
        detail = error.strerror or str(error)
        raise StorageReadOnly(path=str(path), detail=detail) from error
    reader.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
    return writer, reader


def open_memory(place: SqlitePlace) -> sqlite3.Connection:
    """Return a database that lives as long as its connection."""
    connection = place.connect()
    migrate(connection, place)
    return connection


def migrate(connection: sqlite3.Connection, place: SqlitePlace) -> None:
    """Check that the database is ours, and bring it to the newest schema.

    Raises:
        StorageDamaged: it belongs to another program, or is broken.
        SchemaTooNew: a newer Holdfast wrote it.
    """
    try:
        steps = _list_migrations()
        _check_ours(connection, place.name, len(steps))
        # Both only count before the first table.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("BEGIN IMMEDIATE")
        version = _check_ours(connection, place.name, len(steps))
        for script in steps[version:]:
            for statement in _split_statements(script):
                connection.execute(statement)
        if version < len(steps):
            if sqlite3.sqlite_version_info >= (3, 42):
                connection.execute("INSERT INTO words (words, rank) VALUES ('secure-delete', 1)")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {len(steps)}")
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise place.explain(error) from error


def _check_ours(connection: sqlite3.Connection, path: str, known: int) -> int:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application != APPLICATION_ID and (application or tables):
        raise StorageDamaged(path=path, detail="it belongs to another program")
    if version > known:
        raise SchemaTooNew(what=path, found=version, known=known)
    return version


@contextlib.contextmanager
def _lock_alone(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _list_migrations() -> list[str]:
    folder = resources.files("holdfast.memory.stores") / "sql"
    files = sorted((entry for entry in folder.iterdir()), key=lambda entry: entry.name)
    return [entry.read_text(encoding="utf-8") for entry in files if entry.name.endswith(".sql")]


def _split_statements(script: str) -> Iterator[str]:
    """Split a script; `executescript` would commit the transaction we are in."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
