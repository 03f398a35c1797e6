"""Find a name below a directory without ever leaving it, whatever the links say.

`Finder.find` gives the directory that holds the last component, as an open descriptor,
and the component itself, which was no link when we looked. Everything else (open, stat,
rename) is then done relative to that descriptor with O_NOFOLLOW, so no process can swap a
directory for a link in between and lead us outside.

`WalkingFinder` walks itself, one O_NOFOLLOW component at a time, on every POSIX system.
`KernelFinder` lets `openat2(RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)` walk, which is one
call instead of two per component, and leaves to the walk whatever the kernel refuses:
so both give the same answers. Hard links cannot be told from files; they are followed.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import msgspec

from holdfast.errors import FileError, FileMissing, PermissionDenied

_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_MAX_STEPS = 1_000
_MAX_LINKS = 40
_SYS_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_BENEATH = 0x08


class Root(msgspec.Struct, frozen=True, kw_only=True):
    """A directory that confines: its path with all links resolved, and a descriptor of it."""

    path: str
    fd: int


class FoundPath(msgspec.Struct, frozen=True, kw_only=True):
    """Where a path really is: an open directory and a name in it.

    `path` is the real path relative to the root. An empty `name` means the directory
    itself. `info` is what was there when we looked (never a link), or None.
    """

    parent_fd: int
    name: str
    path: str
    info: os.stat_result | None


class Finder(Protocol):
    """A way of finding places below a root."""

    def find(
        self, root: Root, path: str, *, make_parents: bool = False
    ) -> AbstractContextManager[FoundPath]:
        """Give the place of a relative path; its descriptor is closed at the end.

        Raises:
            PermissionDenied: the path leads out of the root.
            FileMissing: a directory on the way does not exist.
            FileError: something on the way is no directory, or cannot be entered.
        """
        ...


class WalkingFinder:
    """Walks component by component and never follows a link blindly."""

    @contextmanager
    def find(self, root: Root, path: str, *, make_parents: bool = False) -> Iterator[FoundPath]:
        """Give the place of a relative path, as `Finder.find` promises."""
        walk = _Walk(root, path, make_parents=make_parents)
        try:
            yield walk.run()
        finally:
            walk.close()


class KernelFinder:
    """Lets the kernel confine the walk; only on Linux 5.6 and later."""

    def __init__(self) -> None:
        """Look up the system call; use `is_supported` first."""
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._walking = WalkingFinder()

    @classmethod
    def is_supported(cls) -> bool:
        """Say whether this kernel has openat2 and lets us use it."""
        if not sys.platform.startswith("linux") or not os.path.isdir("/proc/self/fd"):
            return False
        with _hold_open("/") as fd:
            found = cls()._open(fd, ".")
        if found is None:
            return False
        os.close(found)
        return True

    @contextmanager
    def find(self, root: Root, path: str, *, make_parents: bool = False) -> Iterator[FoundPath]:
        """Give the place of a relative path, as `Finder.find` promises."""
        parts = [part for part in path.split("/") if part not in ("", ".")]
        name = parts.pop() if parts and parts[-1] != ".." else ""
        fd = self._open(root.fd, "/".join(parts) or ".")
        try:
            place = self._find_place(root, fd, name) if fd is not None else None
            if place is not None:
                yield place
                return
        finally:
            if fd is not None:
                os.close(fd)
        with self._walking.find(root, path, make_parents=make_parents) as walked:
            yield walked

    def _open(self, root_fd: int, path: str) -> int | None:
        how = _OpenHow(_DIRECTORY, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
        size = ctypes.sizeof(how)
        fd: int = self._syscall(_SYS_OPENAT2, root_fd, os.fsencode(path), ctypes.byref(how), size)
        return fd if fd >= 0 else None

    @staticmethod
    def _find_place(root: Root, fd: int, name: str) -> FoundPath | None:
        """Describe what was found, or None if only the walk can tell."""
        real = os.readlink(f"/proc/self/fd/{fd}")
        if real != root.path and not real.startswith(root.path.rstrip("/") + "/"):
            return None
        parent = real[len(root.path) :].strip("/")
        if not name:
            return FoundPath(parent_fd=fd, name="", path=parent, info=os.fstat(fd))
        try:
            info = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return FoundPath(parent_fd=fd, name=name, path=_join(parent, name), info=None)
        except OSError:
            return None
        if stat.S_ISLNK(info.st_mode):
            return None
        return FoundPath(parent_fd=fd, name=name, path=_join(parent, name), info=info)


@functools.cache
def choose_finder() -> Finder:
    """Return the quickest finder that this machine supports; it is found out once."""
    return KernelFinder() if KernelFinder.is_supported() else WalkingFinder()


class _OpenHow(ctypes.Structure):
    _fields_ = [
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    ]


class _Walk:
    """One walk: components still to do, and descriptors of the directories entered."""

    def __init__(self, root: Root, path: str, *, make_parents: bool) -> None:
        self._root = root
        self._asked = path
        self._make_parents = make_parents
        self._todo = path.split("/")[::-1]
        self._entered: list[tuple[str, int]] = []
        self._links = 0

    def close(self) -> None:
        while self._entered:
            os.close(self._entered.pop()[1])

    def run(self) -> FoundPath:
        # Every lost race costs a step, so an endless swapper cannot keep us here.
        for _ in range(_MAX_STEPS):
            if not self._todo:
                return FoundPath(
                    parent_fd=self._fd, name="", path=self._path, info=os.fstat(self._fd)
                )
            name = self._todo.pop()
            place = self._make_step(name) if name not in ("", ".") else None
            if place is not None:
                return place
        raise FileError(path=self._asked, detail="the path is too long or keeps changing")

    @property
    def _fd(self) -> int:
        return self._entered[-1][1] if self._entered else self._root.fd

    @property
    def _path(self) -> str:
        return "/".join(name for name, _ in self._entered)

    def _make_step(self, name: str) -> FoundPath | None:
        if name == "..":
            if not self._entered:
                raise self._escape()
            os.close(self._entered.pop()[1])
            return None
        is_last = all(part in ("", ".") for part in self._todo)
        try:
            info = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
            if stat.S_ISLNK(info.st_mode):
                self._follow(os.readlink(name, dir_fd=self._fd))
            elif is_last:
                return self._find_here(name, info)
            elif stat.S_ISDIR(info.st_mode):
                fd = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=self._fd)
                self._entered.append((name, fd))
            else:
                raise NotADirectoryError(0, f"{name!r} is not a directory")
        except FileNotFoundError:
            if is_last:
                return self._find_here(name, None)
            self._make(name)
        except OSError as error:
            # These three say that the entry changed its kind between two calls: look again.
            if error.errno not in (errno.ELOOP, errno.EINVAL, errno.ENOTDIR):
                raise FileError(path=self._asked, detail=error.strerror or str(error)) from error
            self._todo.append(name)
        return None

    def _find_here(self, name: str, info: os.stat_result | None) -> FoundPath:
        return FoundPath(parent_fd=self._fd, name=name, path=_join(self._path, name), info=info)

    def _follow(self, target: str) -> None:
        self._links += 1
        if self._links > _MAX_LINKS:
            raise FileError(path=self._asked, detail="too many links lead to each other")
        if target.startswith("/"):
            root = self._root.path.rstrip("/")
            if target != root and not target.startswith(root + "/"):
                raise self._escape()
            self.close()
            target = target[len(root) :]
        self._todo.extend(target.split("/")[::-1])

    def _make(self, name: str) -> None:
        if not self._make_parents:
            raise FileMissing(path=self._asked)
        try:
            os.mkdir(name, dir_fd=self._fd)
        except FileExistsError:
            pass  # another process made it; look again
        except OSError as error:
            raise FileError(path=self._asked, detail=error.strerror or str(error)) from error
        self._todo.append(name)

    def _escape(self) -> PermissionDenied:
        return PermissionDenied(
            permission="file", target=self._asked, because="it leads out of the workspace"
        )


@contextmanager
def _hold_open(path: str) -> Iterator[int]:
    fd = os.open(path, _DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def _join(parent: str, name: str) -> str:
    return f"{parent}/{name}" if parent else name
