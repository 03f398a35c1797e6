"""Small private files in the state directory: whole or not at all, for their owner only."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.errors import StorageError, StorageFull, StorageReadOnly
from holdfast.ids import random_token

_ERRNO_FULL = (28, 122)
_MAX_BYTES = 4 * 1024 * 1024


def read_private(path: Path) -> bytes | None:
    """Return the bytes of a file, or None if it does not exist.

    Raises:
        StorageError: it cannot be read, or is far larger than anything of ours.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(path=str(path), detail=error.strerror or "unreadable") from error
    if len(data) > _MAX_BYTES:
        raise StorageError(path=str(path), detail="it is too large")
    return data


def write_private(path: Path, data: bytes) -> None:
    """Replace a file at once: a reader sees the old one or the new one, also after a crash.

    The file gets mode 0600, and its directory 0700 if it must be made.

    Raises:
        StorageError: it could not be written; the old file is still there.
    """
    temporary = path.with_name(f".{path.name}.{random_token(6)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_directory(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise _translated(path, error) from error


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes from changing a file between reading and replacing it."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = path.with_name(f"{path.name}.lock")
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _translated(path, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _translated(path: Path, error: OSError) -> StorageError:
    if error.errno in _ERRNO_FULL:
        return StorageFull(path=str(path))
    if isinstance(error, PermissionError) or error.errno == 30:
        return StorageReadOnly(path=str(path), detail=error.strerror or "no right to write")
    return StorageError(path=str(path), detail=error.strerror or "it cannot be written")
