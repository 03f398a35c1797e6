"""The one object through which every file tool reads and writes.

A `Workspace` is a directory, and further ones that were granted on purpose. No path,
link or race leads out of them; non-regular files are refused without being opened for
long; a write is a temporary file, an fsync and a rename, so that no process ever sees half
of it. All methods block for a moment: call them from a thread.
"""

from __future__ import annotations

import errno
import fcntl
import os
import posixpath
import stat
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import BinaryIO, Literal, TypeAlias, TypeVar

import msgspec

from holdfast.errors import (
    FileChanged,
    FileError,
    FileMissing,
    FileUnsuitable,
    HoldfastError,
    PermissionDenied,
    UsageError,
)
from holdfast.ids import make_random_token
from holdfast.sandbox.beneath import Finder, FoundPath, Root, choose_finder
from holdfast.sandbox.path_rules import KeptPaths, PathRules
from holdfast.settings import RunWrites

Kind: TypeAlias = Literal["file", "directory", "link", "other"]
T = TypeVar("T")

MAX_UPDATE_BYTES = 64 * 1024 * 1024
_TRIES = 50
_STRIPES = 64
_stripes: tuple[threading.RLock, ...] = ()
"""Changes of one file by this process wait for each other, whichever workspace makes them."""

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NAMES: dict[Kind, str] = {
    "file": "a file",
    "directory": "a directory",
    "link": "a link",
    "other": "a device, pipe or socket",
}


def _make_stripes() -> None:
    """Make the locks, anew in a forked child: the threads that may have held them are not there."""
    global _stripes
    _stripes = tuple(threading.RLock() for _ in range(_STRIPES))


_make_stripes()
os.register_at_fork(after_in_child=_make_stripes)


class FileInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is at a path; `path` is relative for the workspace, absolute for grants."""

    path: str
    kind: Kind
    size: int
    mtime_ns: int
    mode: int


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One name in a directory; links are named as links and not followed."""

    name: str
    path: str
    kind: Kind
    mtime_ns: int = 0
    size: int = 0


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """What an update did; `before` is None if the file is new."""

    path: str
    before: bytes | None
    after: bytes


class Workspace:
    """A directory tree that cannot be left."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        rules: PathRules | None = None,
        finder: Finder | None = None,
        hidden: Sequence[str] = (),
        read_only: Sequence[str] = (),
        writes: RunWrites | None = None,
        within: Sequence[str] | None = None,
    ) -> None:
        """Open the root; it must be an existing directory.

        `hidden` and `read_only` are absolute paths that no granted directory brings into reach,
        or lets be written; inside the root, the rules say so. With `within`, only what lies in
        one of those directories can be granted. `writes` is told when a file that could instruct
        agents is written, so that it is not obeyed unseen.

        Raises:
            UsageError: the root is missing or no directory.
        """
        self.rules = rules or PathRules()
        self._finder = finder or choose_finder()
        self._main = _Tree(root, self.rules, is_writable=True)
        self.root = self._main.root.path
        """The workspace directory, with links resolved."""
        self.writes = writes
        self._grants: tuple[_Tree, ...] = ()
        self._kept = KeptPaths(
            root=self.root,
            rules=self.rules,
            hidden=tuple(hidden),
            read_only=tuple(read_only),
            within=None if within is None else tuple(within),
        )

    @property
    def grants(self) -> tuple[str, ...]:
        """Directories outside the workspace that were granted."""
        return tuple(tree.root.path for tree in self._grants)

    @property
    def trees(self) -> tuple[tuple[str, bool], ...]:
        """Every directory within reach, the workspace first, and whether it may be written."""
        return tuple((tree.root.path, tree.is_writable) for tree in (self._main, *self._grants))

    def grant(self, path: str | os.PathLike[str], *, is_writable: bool = False) -> str:
        """Bring a directory outside the workspace into reach and return its real path.

        Granting it again changes only whether it may be written.

        Raises:
            UsageError: it is missing, no directory, the root of the file system, or in /proc.
            PermissionDenied: it lies in something that is kept from agents.
        """
        tree = _Tree(path, self.rules, is_writable=is_writable, kept=self._kept)
        if tree.root.path == "/":
            raise UsageError(detail="The root of the file system cannot be granted.")
        if f"{tree.root.path}/".startswith("/proc/"):
            # It holds the environments of processes, our own with its keys among them.
            raise UsageError(detail=f"{tree.root.path} shows processes, and cannot be granted.")
        self._kept.check(tree.root.path, is_write=is_writable, is_directory=True)
        others = [one for one in self._grants if one.root.path != tree.root.path]
        self._grants = (*others, tree)
        return tree.root.path

    # --- looking --------------------------------------------------------------------

    def canonical(self, path: str) -> str:
        """Return the real path: what permission rules are matched against.

        Relative inside the workspace, absolute in grants and for what is out of reach.
        Never raises for a path that merely does not exist.
        """
        try:
            tree, relative = self._locate(path)
            return tree.display(self._resolve_real(tree, relative))
        except HoldfastError:
            return posixpath.normpath(posixpath.join(self.root, path.replace("\0", "?")))

    def stat(self, path: str) -> FileInfo:
        """Describe what is at a path, links inside followed.

        Raises:
            FileMissing, FileError, PermissionDenied: it is not there, or out of reach.
        """
        with self._format_place(path) as (tree, place):
            info = _stat_present(place, path)
            is_directory = stat.S_ISDIR(info.st_mode)
            tree.check(place.path, is_directory=is_directory)
            return _describe(tree.display(place.path), info)

    def open(self, path: str) -> BinaryIO:
        """Open a regular file for reading.

        Raises:
            FileMissing, FileError, PermissionDenied: it is not there, or out of reach.
            FileUnsuitable: it is a directory, a device, a pipe or a socket.
        """
        return self._retry(path, lambda: self._open(path)[0])

    def read(self, path: str, *, max_bytes: int = MAX_UPDATE_BYTES) -> bytes:
        """Return the whole content of a regular file.

        Raises:
            FileUnsuitable: it is larger than `max_bytes`, or no regular file.
        """
        with self.open(path) as stream:
            return _read_up_to(stream, max_bytes, path)

    def scandir(self, path: str = ".", *, details: bool = False) -> list[Entry]:
        """List a directory by name; what the rules block is left out.

        With `details`, entries carry size and modification time.

        Raises:
            FileUnsuitable: it is no directory.
        """
        return self._retry(path, lambda: self._scandir(path, details=details))

    # --- changing -------------------------------------------------------------------

    def open_output(self, path: str, *, is_append: bool = False) -> BinaryIO:
        """Open a regular file for writing as a shell does: made, emptied or appended to.

        Unlike `write`, others see what is written so far.

        Raises:
            FileMissing, FileError, PermissionDenied: its directory is not there, or it is
                out of reach.
            FileUnsuitable: it is a directory, a device, a pipe or a socket.
        """
        return self._retry(path, lambda: self._open_output(path, is_append=is_append))

    def write(self, path: str, data: bytes) -> FileChange:
        """Replace or create a file as a whole; parents are made, its mode is kept."""
        return self.update(path, lambda _before: data)

    def update(self, path: str, change: Callable[[bytes | None], bytes]) -> FileChange:
        """Replace a file by what `change` makes of its content (None: no file yet).

        No process sees a half-written file, and an error leaves it as it was. If a process
        else changes the file in the meantime, `change` is called again with the new
        content, so it must do nothing but compute.

        Raises:
            FileChanged: it kept changing; nothing was written.
            PermissionDenied, FileError, FileUnsuitable: it cannot be written.
        """
        tree, relative = self._locate(path)
        real = self._resolve_real(tree, relative)
        tree.check_write(real)
        with self._note_writing(tree, real), _stripes[hash((tree.root.path, real)) % _STRIPES]:
            for _ in range(_TRIES):
                with suppress(FileChanged):
                    before, stamp = self._read_for_update(path)
                    after = change(before)
                    if after != before:
                        self._retry(path, lambda: self._replace(path, after, stamp))  # noqa: B023
                    return FileChange(path=tree.display(real), before=before, after=after)
        raise FileChanged(path=path)

    def remove(self, path: str, expected: bytes) -> None:
        """Delete a file whose content is still the expected one.

        Raises:
            FileMissing: it is gone already.
            FileChanged: it has another content; it stays.
            PermissionDenied, FileError, FileUnsuitable: it cannot be deleted.
        """
        tree, relative = self._locate(path)
        real = self._resolve_real(tree, relative)
        tree.check_write(real)
        with _stripes[hash((tree.root.path, real)) % _STRIPES]:
            before, stamp = self._read_for_update(path)
            if before is None:
                raise FileMissing(path=path)
            if before != expected:
                raise FileChanged(path=path)
            self._retry(path, lambda: self._unlink(path, stamp))

    def make_directory(self, path: str) -> str:
        """Make a directory and its parents; return its real path."""
        tree, relative = self._locate(path)
        tree.check_write(self._resolve_real(tree, relative))
        with self._finder.find(tree.root, relative, make_parents=True) as place:
            if place.info is None:
                _translate(path, lambda: os.mkdir(place.name, dir_fd=place.parent_fd))
            elif not stat.S_ISDIR(place.info.st_mode):
                raise FileUnsuitable(path=path, found="a file", wanted="a directory")
            return tree.display(place.path)

    # --- within ---------------------------------------------------------------------

    def _note_writing(self, tree: _Tree, real: str) -> AbstractContextManager[None]:
        """Say that a text which may instruct agents is being written, and by a run."""
        if self.writes is None or not real.casefold().endswith(".md"):
            return nullcontext()
        return self.writes.open_window([tree.root.path])

    def _locate(self, path: str) -> tuple[_Tree, str]:
        """Choose the tree of a path and make the path relative to it, by its text alone."""
        text = os.fspath(path)
        if "\0" in text or len(text) > 4_000:
            raise FileError(path=text[:80].replace("\0", "?"), detail="it is no valid path")
        try:
            os.fsencode(text)
        except UnicodeEncodeError as error:
            raise FileError(path=ascii(text)[:80], detail="it is no valid path") from error
        if text.startswith("/"):
            normal = posixpath.normpath(text)
            found = [
                (tree, rest)
                for tree in (self._main, *self._grants)
                if (rest := tree.below(normal)) is not None
            ]
            if not found:
                raise _make_out_of_reach(text)
            return min(found, key=lambda item: len(item[1]))
        normal = posixpath.normpath(text)
        if normal == ".." or normal.startswith("../"):
            raise _make_out_of_reach(text)
        return self._main, normal

    def _resolve_real(self, tree: _Tree, relative: str) -> str:
        """Resolve links in a path whose end may not exist yet."""
        missing: list[str] = []
        while True:
            try:
                with self._finder.find(tree.root, relative) as place:
                    return posixpath.join(place.path, *reversed(missing))
            except FileMissing:
                relative, _, name = relative.rpartition("/")
                missing.append(name)

    @contextmanager
    def _format_place(
        self, path: str, *, make_parents: bool = False
    ) -> Iterator[tuple[_Tree, FoundPath]]:
        tree, relative = self._locate(path)
        with self._finder.find(tree.root, relative, make_parents=make_parents) as place:
            yield tree, place

    def _retry(self, path: str, attempt: Callable[[], T]) -> T:
        for _ in range(_TRIES):
            try:
                return _translate(path, attempt)
            except _LostRaceError:
                continue
        raise FileError(path=path, detail="it keeps changing while it is being used")

    def _open(self, path: str) -> tuple[BinaryIO, os.stat_result]:
        with self._format_place(path) as (tree, place):
            tree.check(place.path)
            _check_wanted(_stat_present(place, path), "file", path)
            fd = os.open(place.name, _READ, dir_fd=place.parent_fd)
        try:
            info = os.fstat(fd)
            _check_wanted(info, "file", path)
        except BaseException:
            os.close(fd)
            raise
        return os.fdopen(fd, "rb"), info

    def _open_output(self, path: str, *, is_append: bool) -> BinaryIO:
        with self._format_place(path) as (tree, place):
            tree.check_write(place.path)
            if place.info is not None:
                _check_wanted(place.info, "file", path)
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            flags |= os.O_APPEND if is_append else 0
            fd = os.open(place.name or ".", flags, 0o666, dir_fd=place.parent_fd)
        try:
            _check_wanted(os.fstat(fd), "file", path)
            if not is_append:
                os.ftruncate(fd, 0)
        except BaseException:
            os.close(fd)
            raise
        return os.fdopen(fd, "ab" if is_append else "wb")

    def _scandir(self, path: str, *, details: bool) -> list[Entry]:
        with self._format_place(path) as (tree, place):
            tree.check(place.path, is_directory=True)
            _check_wanted(_stat_present(place, path), "directory", path)
            fd = os.open(place.name or ".", _READ | os.O_DIRECTORY, dir_fd=place.parent_fd)
            real = place.path
        try:
            found = [_make_entry(tree, real, entry, details=details) for entry in os.scandir(fd)]
        finally:
            os.close(fd)
        return sorted((one for one in found if one is not None), key=lambda one: one.name)

    def _read_for_update(self, path: str) -> tuple[bytes | None, _Stamp | None]:
        try:
            stream, info = self._retry(path, lambda: self._open(path))
        except FileMissing:
            return None, None
        with stream:
            return _read_up_to(stream, MAX_UPDATE_BYTES, path), _stamp(info)

    def _replace(self, path: str, data: bytes, expected: _Stamp | None) -> None:
        with self._format_place(path, make_parents=True) as (tree, place):
            tree.check_write(place.path)
            if place.info is not None:
                _check_wanted(place.info, "file", path)
            if _stamp(place.info) != expected:
                raise FileChanged(path=path)
            temporary = f".holdfast-{make_random_token(8)}.tmp"
            try:
                self._write_temporary(place, temporary, data)
                fd = place.parent_fd
                with _hold(fd):
                    if _stamp(_look(place)) != expected:
                        raise FileChanged(path=path)
                    os.rename(temporary, place.name, src_dir_fd=fd, dst_dir_fd=fd)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=place.parent_fd)
                raise
            _sync_directory(place.parent_fd)

    def _unlink(self, path: str, expected: _Stamp | None) -> None:
        with self._format_place(path) as (tree, place):
            tree.check_write(place.path)
            with _hold(place.parent_fd):
                if _stamp(_look(place)) != expected:
                    raise FileChanged(path=path)
                _translate(path, lambda: os.unlink(place.name, dir_fd=place.parent_fd))
            _sync_directory(place.parent_fd)

    @staticmethod
    def _write_temporary(place: FoundPath, name: str, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        # The umask applies to a new file; an existing one keeps what it had.
        mode = 0o666 if place.info is None else 0o600
        fd = os.open(name, flags, mode, dir_fd=place.parent_fd)
        with os.fdopen(fd, "wb") as stream:
            stream.write(data)
            stream.flush()
            if place.info is not None:
                with suppress(OSError):
                    os.fchown(fd, place.info.st_uid, place.info.st_gid)
                os.fchmod(fd, place.info.st_mode & 0o777)
            os.fsync(fd)


class _LostRaceError(Exception):
    """The entry changed its kind between looking and opening; look again."""


class _Tree:
    """One directory that confines, with its rules."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        rules: PathRules,
        *,
        is_writable: bool,
        kept: KeptPaths | None = None,
    ) -> None:
        given = os.path.abspath(os.fspath(path))
        real = os.path.realpath(given)
        try:
            fd = os.open(real, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY)
        except OSError as error:
            raise UsageError(
                detail=f"{given} cannot be a workspace directory: {error.strerror}"
            ) from error
        self.root = Root(path=real, fd=fd)
        self.rules = rules
        self._given = given
        self._kept = kept
        self.is_writable = is_writable
        weakref.finalize(self, os.close, fd)

    def below(self, absolute: str) -> str | None:
        """The rest of an absolute path below this tree, or None."""
        for start in (self.root.path, self._given):
            if absolute == start:
                return "."
            if absolute.startswith(start.rstrip("/") + "/"):
                return absolute[len(start) :].lstrip("/")
        return None

    def display(self, relative: str) -> str:
        """The path as people and rules see it."""
        return (relative or ".") if self._kept is None else posixpath.join(self.root.path, relative)

    def check(self, relative: str, *, is_write: bool = False, is_directory: bool = False) -> None:
        """Raise PermissionDenied unless the path may be used."""
        self.rules.check(relative, is_write=is_write, is_directory=is_directory)
        if self._kept is not None:
            absolute = posixpath.normpath(posixpath.join(self.root.path, relative))
            self._kept.check(absolute, is_write=is_write, is_directory=is_directory)

    def can_read(self, relative: str, *, is_directory: bool) -> bool:
        """Say whether the path may be read."""
        if self._kept is None:
            return self.rules.can_read(relative, is_directory=is_directory)
        try:
            self.check(relative, is_directory=is_directory)
        except PermissionDenied:
            return False
        return True

    def check_write(self, relative: str) -> None:
        """Raise PermissionDenied unless the path may be written."""
        if not self.is_writable:
            raise PermissionDenied(
                permission="write",
                target=self.display(relative),
                because="the directory was granted for reading only",
            )
        self.check(relative, is_write=True)


_Stamp: TypeAlias = tuple[int, int, int, int, int]


def _stamp(info: os.stat_result | None) -> _Stamp | None:
    if info is None:
        return None
    return (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def _look(place: FoundPath) -> os.stat_result | None:
    try:
        return os.stat(place.name, dir_fd=place.parent_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _stat_present(place: FoundPath, path: str) -> os.stat_result:
    if place.info is None:
        raise FileMissing(path=path)
    return place.info


def _classify_kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "link" if stat.S_ISLNK(mode) else "other"


def _check_wanted(info: os.stat_result, wanted: Kind, path: str) -> None:
    found = _classify_kind(info.st_mode)
    if found != wanted:
        raise FileUnsuitable(path=path, found=_NAMES[found], wanted=_NAMES[wanted])


def _describe(path: str, info: os.stat_result) -> FileInfo:
    return FileInfo(
        path=path,
        kind=_classify_kind(info.st_mode),
        size=info.st_size,
        mtime_ns=info.st_mtime_ns,
        mode=stat.S_IMODE(info.st_mode),
    )


def _make_entry(
    tree: _Tree, directory: str, entry: os.DirEntry[str], *, details: bool
) -> Entry | None:
    relative = posixpath.join(directory, entry.name)
    if entry.is_symlink():
        kind: Kind = "link"
    elif entry.is_dir(follow_symlinks=False):
        kind = "directory"
    else:
        kind = "file" if entry.is_file(follow_symlinks=False) else "other"
    if not tree.can_read(relative, is_directory=kind == "directory"):
        return None
    path = tree.display(relative)
    if details:
        try:
            info = entry.stat(follow_symlinks=False)
        except OSError:
            return None  # gone since we listed it
        return Entry(
            name=entry.name, path=path, kind=kind, mtime_ns=info.st_mtime_ns, size=info.st_size
        )
    return Entry(name=entry.name, path=path, kind=kind)


def _read_up_to(stream: BinaryIO, limit: int, path: str) -> bytes:
    is_small = os.fstat(stream.fileno()).st_size <= limit
    data = stream.read(limit + 1) if is_small else b""
    if not is_small or len(data) > limit:
        raise FileUnsuitable(path=path, found="too large", wanted=f"at most {limit} bytes")
    return data


def _translate(path: str, attempt: Callable[[], T]) -> T:
    """Turn errors of the operating system into ours."""
    try:
        return attempt()
    except FileNotFoundError as error:
        raise FileMissing(path=path) from error
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EISDIR):
            raise _LostRaceError from error
        raise FileError(path=path, detail=error.strerror or str(error)) from error


@contextmanager
def _hold(fd: int) -> Iterator[None]:
    """Keep other processes of ours from replacing a file of a directory for a moment.

    Where a directory cannot be read or its file system knows no locks, only this process is
    kept away, by its own locks.
    """
    try:
        directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
    except OSError:
        yield
        return
    try:
        with suppress(OSError):
            fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def _sync_directory(fd: int) -> None:
    """Make a rename survive a power cut; not every file system can."""
    with suppress(OSError):
        directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _make_out_of_reach(path: str) -> PermissionDenied:
    return PermissionDenied(
        permission="file",
        target=path,
        because="it is outside the workspace; `externaldirectory` can ask for it",
    )
