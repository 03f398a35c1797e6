"""Whether a database file is as its last writer left it, known before anything is written to it.

Beside the file lies a small one (`journal.db-state`). Whoever has the database open holds a shared
lock on it, which the kernel releases however a process ends; whoever is last to close it notes
there how the file looks (size, times, inode). So opening costs a look at the file, and the whole
file is examined only when its last writer ended without closing it, or when something else has
changed it since: a copy that was brought back, an editor, a disk that went wrong.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

_CHECKING, _OPEN, _CLEAN = "checking", "open", "clean"
_MOST = 256


class FileGuard:
    """Says when a database has to be examined; one per store that has it open."""

    def __init__(self, path: Path) -> None:
        """Guard this file; nothing is touched before `enter`."""
        self._path = path
        self._state = path.with_name(f"{path.name}-state")
        self._handle: int | None = None

    def enter(self, examine: Callable[[], None]) -> None:
        """Begin to use the file; `examine` is called first unless it is known to be sound.

        What `examine` raises is raised here, and the file counts as unsound for the next one too.

        Raises:
            OSError: nothing can be written beside the file.
        """
        self._handle = handle = os.open(
            self._state, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            if not self._is_sound(handle):
                _write(handle, _CHECKING)
                examine()
            _write(handle, _OPEN)
            # From here on others may come in, and rely on what was found.
            fcntl.flock(handle, fcntl.LOCK_SH)
        except BaseException:
            self.abandon()
            raise

    def leave(self) -> None:
        """Stop using the file; whoever is last notes how it looks, for the next `enter`."""
        handle = self._handle
        if handle is None:
            return
        try:
            # Another process has it open, or the file is gone: then nothing is vouched for.
            with contextlib.suppress(BlockingIOError, FileNotFoundError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not self._has_log():
                    _write(handle, self._look())
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Stop using the file without saying anything about it."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    @contextlib.contextmanager
    def alone(self) -> Iterator[bool]:
        """Keep others out while a file is put in the place of this one; False if one has it open.

        Whoever opens it next examines it.
        """
        handle = os.open(self._state, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if self._is_alone(handle):
                _write(handle, _CHECKING)
                yield True
            else:
                yield False
        finally:
            os.close(handle)

    def _is_sound(self, handle: int) -> bool:
        """Say whether the file need not be examined; alone, it is then locked for us."""
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # Others have it open, or look at it right now: then their word is waited for.
            fcntl.flock(handle, fcntl.LOCK_SH)
            return _read(handle) == _OPEN and not self._is_alone(handle)
        return _read(handle) == self._look() and not self._has_log()

    def _is_alone(self, handle: int) -> bool:
        """Say whether those who had it open are gone, without having closed it."""
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _look(self) -> str:
        found = self._path.stat()
        return f"{_CLEAN} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_ino}"

    def _has_log(self) -> bool:
        log = self._path.with_name(f"{self._path.name}-wal")
        return log.exists() and log.stat().st_size > 0


def _read(handle: int) -> str:
    return os.pread(handle, _MOST, 0).decode("ascii", "replace").strip()


def _write(handle: int, state: str) -> None:
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{state}\n".encode(), 0)
