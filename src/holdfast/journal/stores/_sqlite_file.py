"""The SQLite file itself: how it is created, checked, migrated, opened and shrunk."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

from holdfast.errors import (
    HoldfastError,
    SchemaTooNew,
    StorageDamaged,
    StorageFull,
    StorageReadOnly,
)
from holdfast.journal.stores._sqlite_errors import translate

APPLICATION_ID = 0x484F4C44
"""`HOLD`: marks a file as ours, so that no foreign database is ever touched."""

PATIENCE_S = 10.0
"""How long a thread waits for another writer before it says that the database is locked."""

_PAGE_SIZE = 1024
"""Small, because a commit writes whole pages: the log grows by what has changed, not by more."""
_LOG_BYTES = 16 * 1024 * 1024
_preparing = threading.Lock()


def _forget_lock() -> None:
    """Make a lock anew in a forked child: the thread that may have held it is not there."""
    global _preparing
    _preparing = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock)


def prepare(path: Path, enter: Callable[[], None] = lambda: None) -> None:
    """Create the file, or check that it is ours and bring it to the newest schema.

    `enter` is called before anything is written to it.
    """
    try:
        # One at a time in this process: opening the raw file while a database connection
        # of ours has it open would drop that connection's locks.
        with _preparing:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            while not path.exists() or path.stat().st_size == 0:
                _create(path)
            _check_ours(path)
            enter()
            _migrate(path)
    except OSError as error:
        raise _explain(error, path) from error
    except UnicodeDecodeError as error:
        # Names in the schema that are no text: Python says so, before SQLite does.
        raise StorageDamaged(path=str(path), detail="its schema is no text") from error


def connect(path: Path) -> sqlite3.Connection:
    """Open a connection that any thread may use, one at a time."""
    try:
        connection = sqlite3.connect(
            # Never creates a file: one that is gone was removed by another process.
            f"{path.absolute().as_uri()}?mode=rw",
            uri=True,
            timeout=PATIENCE_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            _adjust(connection)
        except BaseException:
            connection.close()
            raise
        return connection
    except sqlite3.Error as error:
        raise translate(error, str(path)) from error


def _adjust(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA synchronous = NORMAL")
    # A page that changes often is copied back once per checkpoint: seldom is cheaper.
    page = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_BYTES // page}")
    # Removed content is overwritten with zeros, not left in free pages.
    connection.execute("PRAGMA secure_delete = ON")
    connection.create_function("casefold", 1, _fold_case, deterministic=True)


@contextlib.contextmanager
def open_for_reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a connection for one piece of reading."""
    connection = connect(path)
    try:
        yield connection
    except sqlite3.Error as error:
        raise translate(error, str(path)) from error
    finally:
        connection.close()


@contextlib.contextmanager
def open_exclusively(path: Path) -> Iterator[sqlite3.Connection]:
    """Hold the write lock for a long piece of work, stored whole or not at all."""
    connection = connect(path)
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise translate(error, str(path)) from error
    finally:
        # Closing rolls back whatever was not committed.
        connection.close()


def give_back_space(path: Path) -> None:
    """Move the log into the file and return free pages to the file system."""
    with open_for_reading(path) as connection:
        connection.execute("PRAGMA incremental_vacuum").fetchall()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def compute_size(path: Path) -> int:
    """Bytes on disk, the write-ahead log included."""
    parts = (path, path.with_name(path.name + "-wal"))
    return sum(part.stat().st_size for part in parts if part.exists())


def _fold_case(value: object) -> str:
    return str(value).casefold()


def _create(path: Path) -> None:
    """Put an empty database of ours in the place of a missing or empty file.

    It is made beside its place and moved there whole, so that no other process ever sees half of
    one, whenever this process ends and however many try at the same time: the lock on the empty
    file says who may, and the process that comes later finds that the place has changed.
    """
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size:
        raise StorageDamaged(path=str(path), detail="the file is empty, but its log is not")
    # Created with the right mode from the start: others never see it open.
    place = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(place, fcntl.LOCK_EX)
        if _was_moved(path, place):
            return
        fresh = path.with_name(path.name + ".new")
        fresh.unlink(missing_ok=True)
        os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        _set_first_pragmas(fresh)
        _migrate(fresh)
        os.replace(fresh, path)
        _sync_folder(path.parent)
    finally:
        os.close(place)


def _was_moved(path: Path, place: int) -> bool:
    """Say whether another process has put a database where the empty file was."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return True
    return found.st_size > 0 or not os.path.samestat(found, os.fstat(place))


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _explain(error: OSError, path: Path) -> HoldfastError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(path=str(path))
    return StorageReadOnly(path=str(path), detail=error.strerror or str(error))


def _set_first_pragmas(path: Path) -> None:
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA page_size = {_PAGE_SIZE}")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL")
    except sqlite3.Error as error:
        raise translate(error, str(path)) from error


def _check_ours(path: Path) -> None:
    """Look at a file without writing to it."""
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            is_current(connection, path)
    except sqlite3.Error as error:
        raise translate(error, str(path)) from error


def is_current(connection: sqlite3.Connection, path: Path) -> bool:
    """Say whether a database of ours needs no migration.

    Raises:
        StorageDamaged: it is none of ours.
        SchemaTooNew: a newer Holdfast wrote it.
    """
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application != APPLICATION_ID and (application or tables):
        raise StorageDamaged(path=str(path), detail="it belongs to another program")
    _check_version(version, path)
    return version == len(_list_migrations())


def _check_version(version: int, path: Path) -> None:
    if version > len(_list_migrations()):
        raise SchemaTooNew(what=str(path), found=version, known=len(_list_migrations()))


def _migrate(path: Path) -> None:
    steps = _list_migrations()
    with open_for_reading(path) as connection:
        if connection.execute("PRAGMA user_version").fetchone()[0] == len(steps):
            return
    with open_exclusively(path) as connection:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        # A newer version may have been quicker.
        _check_version(version, path)
        for script in steps[version:]:
            for statement in _split_statements(script):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(steps)}")


def _split_statements(script: str) -> Iterator[str]:
    """Split a script; `executescript` would commit the transaction we are in."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""


def _list_migrations() -> list[str]:
    folder = resources.files("holdfast.journal.stores") / "sql"
    files = sorted((entry for entry in folder.iterdir()), key=lambda entry: entry.name)
    return [entry.read_text(encoding="utf-8") for entry in files if entry.name.endswith(".sql")]
