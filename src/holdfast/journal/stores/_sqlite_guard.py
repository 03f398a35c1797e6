"""Whether a database file is as its last writer left it, known before anything is written to it.

Beside the file lies a small one (`journal.db-state`). Whoever has the database open holds a shared
lock on it, which the kernel releases however a process ends; whoever is last to close it notes
there how the file looks (size, times, inode). So opening costs a look at the file, and the whole
file is examined only when its last writer ended without closing it, or when something else has
changed it since: a copy that was brought back, an editor, a disk that went wrong.

The kernel does not convert a lock in one step: it gives the old one up first, and where the new
one is not to be had, both are gone. So nothing that was found before a conversion is relied on
after it: what the small file says is read again, under the lock that stays.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast.journal.stores._forks import tell_after_fork

_CHECKING, _OPEN, _CLEAN = "checking", "open", "clean"
_MOST = 256


class FileGuard:
    """Says when a database has to be examined; one per store that has it open."""

    def __init__(self, path: Path) -> None:
        """Guard this file; nothing is touched before `enter`."""
        self._path = path
        self._state = path.with_name(f"{path.name}-state")
        self._handle: int | None = None
        tell_after_fork(self)

    def enter(self, examine: Callable[[], None]) -> None:
        """Begin to use the file; `examine` is called first unless it is known to be sound.

        What `examine` raises is raised here, and the file counts as unsound for the next one too.

        Raises:
            OSError: nothing can be written beside the file.
        """
        self._handle = handle = self._open_state()
        try:
            while not self._is_entered(handle, examine):
                fcntl.flock(handle, fcntl.LOCK_UN)
        except BaseException:
            self.abandon()
            raise

    def _is_entered(self, handle: int, examine: Callable[[], None]) -> bool:
        """Share the file with all that have found it sound; `False` if that has to be tried again.

        The process that finds it closed examines it if need be. Others wait for that, and take the
        word of a process that has it open while they share the lock with it.
        """
        if _lock_alone(handle):
            if _read(handle) != self._look() or self._has_log():
                _write(handle, _CHECKING)
                examine()
            _write(handle, _OPEN)
        fcntl.flock(handle, fcntl.LOCK_SH)
        # Between the two locks another process may have closed the file, or found it damaged.
        return _read(handle) == _OPEN

    def leave(self) -> None:
        """Stop using the file; whoever is last notes how it looks, for the next `enter`."""
        handle = self._handle
        if handle is None:
            return
        try:
            # Another process has it open, or the file is gone: then nothing is vouched for.
            with contextlib.suppress(FileNotFoundError):
                if _lock_alone(handle) and not self._has_log():
                    _write(handle, self._look())
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Stop using the file without saying anything about it."""
        if self._handle is not None:
            # A process that was forked meanwhile may have the descriptor still.
            fcntl.flock(self._handle, fcntl.LOCK_UN)
            self.leave_to_parent()

    def leave_to_parent(self) -> None:
        """Close the descriptor, and leave the lock to the process that goes on with it."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    @contextlib.contextmanager
    def alone(self) -> Iterator[bool]:
        """Keep others out while a file is put in the place of this one; False if one has it open.

        Whoever opens it next examines it.
        """
        handle = self._open_state()
        try:
            is_alone = _lock_alone(handle)
            if is_alone:
                _write(handle, _CHECKING)
            yield is_alone
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)

    def _open_state(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(self._state, flags, 0o600)

    def _look(self) -> str:
        found = self._path.stat()
        return f"{_CLEAN} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_ino}"

    def _has_log(self) -> bool:
        log = self._path.with_name(f"{self._path.name}-wal")
        return log.exists() and log.stat().st_size > 0


def _lock_alone(handle: int) -> bool:
    """Keep all others out, and say so; `False`, without any lock, where one has the file open."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(handle: int) -> str:
    return os.pread(handle, _MOST, 0).decode("ascii", "replace").strip()


def _write(handle: int, state: str) -> None:
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{state}\n".encode(), 0)
