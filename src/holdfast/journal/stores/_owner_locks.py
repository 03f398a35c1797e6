"""Locks that prove that a process is alive: the kernel releases them with its end.

Each owner of leases holds a lock on one byte of a file beside the database, by an open file
description: whoever asks for the byte learns whether that process lives, in whatever container
it is, and without a moment's wait after `kill -9`. A process that is merely stopped holds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import struct
import sys
import threading
import weakref
from pathlib import Path

from holdfast.journal.stores._forks import tell_after_fork

_HAS_LOCKS = sys.platform == "linux" and sys.maxsize > 2**32 and hasattr(fcntl, "F_OFD_SETLK")
_FLOCK = struct.Struct("hhqqi4x")
"""`struct flock` of 64-bit Linux: type, whence, start, length, pid."""


class OwnerLocks:
    """The locks of this process's owners in one file, and the proof that another one is dead."""

    def __init__(self, path: Path) -> None:
        """Remember the file; it is made with the first lock."""
        self._path = path
        self._guard = threading.Lock()
        self.held: dict[str, str] = {}
        """By owner, the file in which its byte is locked."""
        self._file = -1
        self._closing: weakref.finalize[..., OwnerLocks] | None = None
        tell_after_fork(self)

    def hold(self, owner: str) -> str:
        """Lock the owner's byte and return which file that is in; empty where it cannot be.

        Without a lock nobody can prove the owner's death, and all wait for its lease.
        """
        with self._guard:
            if owner not in self.held:
                self.held[owner] = self._lock(owner)
            return self.held[owner]

    def release(self, owner: str) -> None:
        """Unlock the owner's byte: it has taken its leave."""
        with self._guard:
            if self.held.pop(owner, ""):
                fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _request(fcntl.F_UNLCK, owner))

    def close(self) -> None:
        """Release everything."""
        with self._guard:
            self.held.clear()
            if self._closing is not None:
                self._closing()
                self._closing, self._file = None, -1

    def leave_to_parent(self) -> None:
        """Close the descriptor in a forked child, which would keep the locks of a dead parent."""
        # One that another thread held when the process was forked is never given back.
        self._guard = threading.Lock()
        self.close()

    def is_dead(self, owner: str, lock: str) -> bool:
        """Say whether an owner that has locked its byte in this file is proved dead.

        `lock` is what `hold` returned to it. Where the file is another one by now, or cannot be
        opened, there is no proof. Owner and asker must run on the same kernel.
        """
        if not lock or not _HAS_LOCKS:
            return False
        try:
            # One of its own: a description does not see the locks that it holds itself.
            file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            if _identify(file) != lock:
                return False
            found = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _request(fcntl.F_WRLCK, owner))
            return bool(_FLOCK.unpack(found)[0] == fcntl.F_UNLCK)
        except OSError:
            return False
        finally:
            os.close(file)

    def _lock(self, owner: str) -> str:
        if not _HAS_LOCKS:
            return ""
        with contextlib.suppress(OSError):
            if self._file < 0:
                self._file = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
                self._closing = weakref.finalize(self, os.close, self._file)
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _request(fcntl.F_WRLCK, owner))
            return _identify(self._file)
        return ""


def _identify(file: int) -> str:
    """Name a file such that one that was put in its place has another name."""
    found = os.fstat(file)
    return f"{found.st_dev}:{found.st_ino}"


def _request(kind: int, owner: str) -> bytes:
    place = int.from_bytes(hashlib.sha256(owner.encode()).digest()[:7], "big") >> 1
    return _FLOCK.pack(kind, os.SEEK_SET, place, 1, 0)
