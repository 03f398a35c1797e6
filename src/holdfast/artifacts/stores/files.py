"""Blobs as files of a directory: the default.

`blobs/<tenant>/<digest>`, mode 0600; what is on its way lies in `incoming/`.
A blob becomes visible by a hard link to bytes that are on the disk already.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from holdfast.artifacts.blobs import BlobInfo, split_key
from holdfast.errors import (
    ArtifactDamaged,
    StorageError,
    StorageFull,
    StorageReadOnly,
    UsageError,
)
from holdfast.ids import is_id, make_random_token

_PIECE = 1024 * 1024
_FULL = (errno.ENOSPC, errno.EDQUOT)
_MARK = "PLACE"


class FileBlobs:
    """Keeps blobs below a directory of this machine."""

    def __init__(self, directory: Path) -> None:
        """Keep them here; nothing is touched before the first write."""
        self._directory = directory
        self._incoming = directory / "incoming"
        self._blobs = directory / "blobs"

    async def open(self) -> None:
        """Nothing to prepare: a directory is made when something is put into it."""

    async def close(self) -> None:
        """Nothing is held."""

    async def claim(self, mark: str) -> str:
        """Mark the directory, if it has no mark yet, and return the mark that it has."""
        return await asyncio.to_thread(self._claim, mark)

    def begin(self, name: str) -> FileUpload:
        """Return an upload."""
        return FileUpload(self, self._incoming / check_upload_name(name))

    async def size(self, key: str) -> int | None:
        """Return how many bytes a blob has, `None` if there is none."""
        try:
            return (await asyncio.to_thread(os.stat, self.path(key))).st_size
        except FileNotFoundError:
            return None
        except OSError as error:
            raise translate_error(self._directory, error) from error

    async def read(self, key: str) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a blob."""
        path = self.path(key)
        try:
            file = await asyncio.to_thread(open, path, "rb", 0)
        except FileNotFoundError:
            raise make_missing(key) from None
        except OSError as error:
            raise translate_error(path, error) from error
        with file:
            while True:
                try:
                    piece = await asyncio.to_thread(file.read, _PIECE)
                except OSError as error:
                    raise translate_error(path, error) from error
                if not piece:
                    return
                yield piece

    async def remove(self, keys: Sequence[str]) -> None:
        """Remove blobs."""
        await asyncio.to_thread(self._remove, keys)

    async def scan(self) -> AsyncGenerator[BlobInfo, None]:
        """Yield every blob once."""
        for folder in await asyncio.to_thread(self._list_folders):
            for info in await asyncio.to_thread(_list_blobs_in, folder):
                yield info

    async def uploads(self) -> Sequence[str]:
        """Return the names of uploads that were begun."""
        try:
            return await asyncio.to_thread(os.listdir, self._incoming)
        except FileNotFoundError:
            return []

    async def remove_upload(self, name: str) -> None:
        """Remove what an upload left."""
        with contextlib.suppress(FileNotFoundError):
            await asyncio.to_thread(os.unlink, self._incoming / name)

    def path(self, key: str) -> Path:
        """Return where a blob lies."""
        tenant, digest = check_blob_key(key)
        return self._blobs / tenant / digest

    def _claim(self, mark: str) -> str:
        path = self._directory / _MARK
        try:
            with contextlib.suppress(FileNotFoundError):
                return path.read_text(encoding="ascii").strip()
            part = self._incoming / f"{mark}-mark-{make_random_token(4)}"
            _write_file(part, f"{mark}\n".encode())
            try:
                # A link fails where another process was quicker; a rename would replace.
                with contextlib.suppress(FileExistsError):
                    os.link(part, path)
                _sync_directory(self._directory)
            finally:
                part.unlink()
            return path.read_text(encoding="ascii").strip()
        except OSError as error:
            raise translate_error(self._directory, error) from error

    def _remove(self, keys: Sequence[str]) -> None:
        try:
            for path in map(self.path, keys):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
        except OSError as error:
            raise translate_error(self._directory, error) from error

    def _list_folders(self) -> list[Path]:
        try:
            return [
                Path(tenant.path)
                for tenant in os.scandir(self._blobs)
                if tenant.is_dir(follow_symlinks=False)
            ]
        except FileNotFoundError:
            return []


class FileUpload:
    """A file that is not published yet."""

    def __init__(self, store: FileBlobs, path: Path) -> None:
        """Write to this path, from the first bytes on."""
        self._store = store
        self._path = path
        self._file = -1
        self._is_synced = False

    async def write(self, data: bytes) -> None:
        """Add bytes at the end."""
        await asyncio.to_thread(self._write, data)

    async def publish(self, key: str, *, replaces: bool = False) -> None:
        """Let the file be the blob of this key."""
        await asyncio.to_thread(self._publish, self._store.path(key), replaces)

    async def discard(self) -> None:
        """Remove the hidden file; what was published is a name of its own."""
        await asyncio.to_thread(self._discard)

    def _write(self, data: bytes) -> None:
        try:
            if self._file < 0:
                self._file = _create(self._path)
            view = memoryview(data)
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            raise translate_error(self._path, error) from error

    def _publish(self, path: Path, replaces: bool) -> None:
        try:
            if not self._is_synced:
                os.fsync(self._file)
                self._is_synced = True
            if path.exists() and not replaces:
                return
            if not path.parent.is_dir():
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                _sync_directory(path.parent.parent)
                _sync_directory(path.parent.parent.parent)
            if replaces:
                second = self._path.with_name(f"{self._path.name}-{make_random_token(4)}")
                os.link(self._path, second)
                os.replace(second, path)
            else:
                with contextlib.suppress(FileExistsError):
                    os.link(self._path, path)
            _sync_directory(path.parent)
        except OSError as error:
            raise translate_error(path, error) from error

    def _discard(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        with contextlib.suppress(OSError):
            os.unlink(self._path)


def _create(path: Path) -> int:
    # O_EXCL: never through a link that another process put there.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, flags, 0o600)


def _write_file(path: Path, data: bytes) -> None:
    handle = _create(path)
    with open(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _list_blobs_in(folder: Path) -> list[BlobInfo]:
    tenant = folder.name
    found = []
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(folder):
            key = f"{tenant}/{entry.name}"
            if split_key(key) is not None:
                with contextlib.suppress(FileNotFoundError):
                    found.append(BlobInfo(key=key, size=entry.stat(follow_symlinks=False).st_size))
    return found


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_blob_key(key: str) -> tuple[str, str]:
    """Return tenant and digest of a key that is safe as a path.

    Raises:
        UsageError: it is no key.
    """
    found = split_key(key)
    if found is None or not found[0][0].isalnum() or "/" in found[0] or "\0" in found[0]:
        raise UsageError(detail=f"{key[:100]!r} is no key of a blob.")
    return found


def check_upload_name(name: str) -> str:
    """Return the name of an upload, safe as a path; raises UsageError."""
    if not is_id(name):
        raise UsageError(detail=f"{name[:100]!r} is no name of an upload.")
    return name


def make_missing(key: str) -> ArtifactDamaged:
    """Return the error for a blob that is not there."""
    return ArtifactDamaged(what=key.rpartition("/")[2], detail="it is missing")


def translate_error(path: Path, error: OSError) -> StorageError:
    """Return an error of the system as one of ours."""
    if error.errno in _FULL:
        return StorageFull(path=str(path))
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return StorageReadOnly(path=str(path), detail=error.strerror or "no right to write")
    return StorageError(path=str(path), detail=error.strerror or "it cannot be used")


__all__ = ["FileBlobs", "FileUpload", "check_blob_key", "check_upload_name", "make_missing"]
