"""Small files that only their owner may read: seen whole or not at all, whatever process is killed
when.

`PrivateJsonFile` keeps one value of one form in a JSON file of the state directory, and lets
several processes change it without losing what another one wrote. `open_whole_file` is the step
below it, for files of any content that one process writes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Generic, TypeVar

import msgspec

from holdfast.errors import StorageDamaged, StorageError, StorageFull, StorageReadOnly
from holdfast.ids import make_random_token

_T = TypeVar("_T")

_FULL = (errno.ENOSPC, errno.EDQUOT)
_MAX_BYTES = 16 * 1024 * 1024
_PART = ".part"


class PrivateJsonFile(Generic[_T]):
    """One value in one JSON file, mode 0600; every call blocks for a moment.

    A reader sees the value before a change or the one after it, also when the writer was killed
    half-way or the power went. Changes of several processes and threads come one after the
    other, each on top of the one before. A link in the place of the file is read through, but
    never written through: the first change puts a file in its place.
    """

    def __init__(
        self, path: Path, form: type[_T], *, empty: Callable[[], _T], is_expendable: bool = False
    ) -> None:
        """Keep a value of the type `form` at `path`; `empty` makes the one of a missing file.

        Nothing is created before the first change. With `is_expendable`, a damaged file counts
        as missing, and the next change replaces it; otherwise it is left as it is.
        """
        self.path = path
        self._form = form
        self._empty = empty
        self._is_expendable = is_expendable

    def read(self) -> _T:
        """Return the value.

        Raises:
            StorageError: the file cannot be read.
            StorageDamaged: it holds something else than a value of this form.
        """
        try:
            with self.path.open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
        except FileNotFoundError:
            return self._empty()
        except OSError as error:
            detail = error.strerror or "it cannot be read"
            raise StorageError(path=str(self.path), detail=detail) from error
        try:
            if len(data) > _MAX_BYTES:
                raise msgspec.DecodeError(f"it is larger than {_MAX_BYTES} bytes")
            return msgspec.json.decode(data, type=self._form)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            if self._is_expendable:
                return self._empty()
            raise StorageDamaged(path=str(self.path), detail=f"{error}") from error

    def change(self, change: Callable[[_T], _T | None]) -> _T:
        """Read the value, let `change` alter it or return another one, write and return that.

        No other process or thread changes it meanwhile. What `change` raises is passed on, and
        nothing is written.

        Raises:
            StorageError: it could not be read or written; the old value stands.
            StorageDamaged: the file holds something else, and was left as it is.
        """
        with self._lock():
            value = self.read()
            changed = change(value)
            value = value if changed is None else changed
            data = msgspec.json.format(msgspec.json.encode(value), indent=2)
            try:
                self._sweep()
                with open_whole_file(self.path) as file:
                    file.write(data)
            except OSError as error:
                raise _translate(self.path, error) from error
            return value

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            lock = os.open(self.path.with_name(f"{self.path.name}.lock"), flags, 0o600)
        except OSError as error:
            raise _translate(self.path, error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _sweep(self) -> None:
        """Remove what killed writers left: the caller that holds the lock is the only writer."""
        start = f".{self.path.name}."
        for name in os.listdir(self.path.parent):
            if name.startswith(start) and name.endswith(_PART):
                with contextlib.suppress(OSError):
                    os.unlink(self.path.with_name(name))


@contextlib.contextmanager
def open_whole_file(path: Path, *, is_durable: bool = True) -> Iterator[IO[bytes]]:
    """Write a file, mode 0600, that is seen complete or not at all.

    It takes the place of what was there when the block ends without an error; a link there is
    replaced, not followed. With `is_durable` it then survives a power cut. The directory is
    made if it is missing, mode 0700.

    Raises:
        OSError: it could not be written; what was there still is.
    """
    part = path.with_name(f".{path.name[:100]}.{make_random_token(8)}{_PART}")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # O_EXCL: never through a link that another process put there.
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(handle, "wb") as file:
            yield file
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    if is_durable:
        _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _translate(path: Path, error: OSError) -> StorageError:
    if error.errno in _FULL:
        return StorageFull(path=str(path))
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return StorageReadOnly(path=str(path), detail=error.strerror or "no right to write")
    return StorageError(path=str(path), detail=error.strerror or "it cannot be written")


__all__ = ["PrivateJsonFile", "open_whole_file"]
