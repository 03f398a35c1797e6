"""Turn what SQLite says into errors that say what to do."""

from __future__ import annotations

import sqlite3

from holdfast.errors import (
    HoldfastError,
    StorageDamaged,
    StorageError,
    StorageFull,
    StorageLocked,
    StorageReadOnly,
)


def translate(error: sqlite3.Error, path: str) -> HoldfastError:
    """Return the error of ours that fits; the cause stays attached to it."""
    found = _match(error, path)
    found.__cause__ = error
    return found


def _match(error: sqlite3.Error, path: str) -> HoldfastError:
    # Extended codes keep the primary code in their low byte.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return StorageFull(path=path)
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
        return StorageReadOnly(path=path, detail=str(error))
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StorageLocked(path=path)
    # Text that is none is noticed by Python, which gives no code.
    is_garbled = "decode to UTF-8" in str(error)
    if is_garbled or code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StorageDamaged(path=path, detail=str(error))
    return StorageError(path=path, detail=str(error))
