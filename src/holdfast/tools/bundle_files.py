"""The files of a tool bundle: read with suspicion, copied, hashed."""

from __future__ import annotations

import hashlib
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from holdfast.canonical import digest
from holdfast.errors import BundleRefused

MOST_FILES = 1_000
MOST_FILE_BYTES = 10 * 1024 * 1024
MOST_BYTES = 50 * 1024 * 1024
_DEEPEST = 16
_CHUNK = 1024 * 1024


class BundleFile(msgspec.Struct, frozen=True):
    """A plain file of a bundle: where, whether it can be executed, and its content's hash."""

    path: str
    is_executable: bool
    sha256: str


def hash_files(root: Path, name: str) -> str:
    """Return one hash over all files: their paths, whether they can be executed, and content.

    Raises:
        BundleRefused: something in it is no plain file, or too large.
    """
    files = [_hash(root, path, name) for path in walk(root, name)]
    return digest([(file.path, file.is_executable, file.sha256) for file in files])


def copy_files(source: Path, target: Path, name: str) -> None:
    """Copy a bundle's plain files to a new directory that only this user can change.

    Raises:
        BundleRefused: something in it is no plain file, or too large.
    """
    target.mkdir(mode=0o700)
    for path in list(walk(source, name)):
        place = target / path
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _open_plain(source / path, name) as file:
            is_executable = bool(os.fstat(file.fileno()).st_mode & stat.S_IXUSR)
            handle = os.open(
                place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o700 if is_executable else 0o600
            )
            with os.fdopen(handle, "wb") as copy:
                while chunk := file.read(_CHUNK):
                    copy.write(chunk)
                copy.flush()
                os.fsync(copy.fileno())


def walk(root: Path, name: str) -> Iterator[str]:
    """Yield the relative paths of all files, sorted; anything but plain files is refused."""
    found: list[str] = []
    total = 0
    pending = [("", 0)]
    while pending:
        folder, depth = pending.pop()
        if depth > _DEEPEST:
            raise BundleRefused(name=name, detail=f"{folder} is nested too deeply")
        for entry in _list_entries(root / folder, name):
            path = f"{folder}/{entry.name}" if folder else entry.name
            info = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(info.st_mode):
                pending.append((path, depth + 1))
                continue
            _check_file(path, info, name)
            total += info.st_size
            found.append(path)
            if len(found) > MOST_FILES or total > MOST_BYTES:
                limit = f"{MOST_FILES} files and {MOST_BYTES >> 20} MB"
                raise BundleRefused(name=name, detail=f"it is larger than {limit}")
    yield from sorted(found)


def _list_entries(folder: Path, name: str) -> list[os.DirEntry[str]]:
    try:
        if folder.is_symlink():
            raise BundleRefused(name=name, detail=f"{folder.name} is a link")
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise BundleRefused(name=name, detail=f"{folder}: {error.strerror}") from error


def _check_file(path: str, info: os.stat_result, name: str) -> None:
    fault = ""
    if stat.S_ISLNK(info.st_mode):
        fault = "is a link"
    elif not stat.S_ISREG(info.st_mode):
        fault = "is no plain file"
    elif info.st_mode & (stat.S_ISUID | stat.S_ISGID):
        fault = "would run with other rights (setuid)"
    elif info.st_size > MOST_FILE_BYTES:
        fault = f"is larger than {MOST_FILE_BYTES >> 20} MB"
    elif not path.isprintable() or "\\" in path:
        fault = "has a name with control characters or backslashes"
    if fault:
        raise BundleRefused(name=name, detail=f"{path!r} {fault}")


def _open_plain(path: Path, name: str) -> io.BufferedReader:
    """Open a file that was plain a moment ago; a link put in its place is not followed."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BundleRefused(name=name, detail=f"{path.name}: {error.strerror}") from error
    file = os.fdopen(handle, "rb")
    try:
        _check_file(path.name, os.fstat(handle), name)
    except BundleRefused:
        file.close()
        raise
    return file


def _hash(root: Path, path: str, name: str) -> BundleFile:
    with _open_plain(root / path, name) as file:
        is_executable = bool(os.fstat(file.fileno()).st_mode & stat.S_IXUSR)
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return BundleFile(path, is_executable, sha256)
