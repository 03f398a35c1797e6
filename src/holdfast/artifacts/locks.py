"""Who may change the catalogue now, and which uploads still have a living owner.

Between the moment when a blob is published and the moment when the journal names it, it must
not be collected. All who write to one journal share a lock for that moment; collecting takes the
same one. The kernel gives both kinds of lock back when a process dies, however it dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from holdfast.errors import StorageError
from holdfast.ids import make_random_token
from holdfast.journal import Journal, SharedStore

_WAIT_S = 0.002
_LONGEST_WAIT_S = 0.05


class ArtifactLocks(Protocol):
    """Excludes, among all who write to one journal."""

    def alone(self) -> AbstractAsyncContextManager[None]:
        """Be the only one who changes the catalogue, for a short time."""
        ...

    async def owner(self) -> str:
        """Return the name under which uploads of this process are made."""
        ...

    async def is_alive(self, owner: str) -> bool:
        """Say whether the process that made an upload still lives."""
        ...

    async def close(self) -> None:
        """Give everything back."""
        ...


class FileLocks:
    """Locks in a directory of this machine: `flock`, which dies with its process."""

    def __init__(self, directory: Path) -> None:
        """Keep the locks here; nothing is touched yet."""
        self._directory = directory
        self._owner = ""
        self._held = -1

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncGenerator[None, None]:
        """Be the only one who changes the catalogue."""
        descriptor = self._open("catalogue.lock")
        try:
            wait_s = _WAIT_S
            # Asked again rather than waited for in a thread, which could not be cancelled.
            while not _try_lock(descriptor):
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 1.5, _LONGEST_WAIT_S)
            yield
        finally:
            os.close(descriptor)

    async def owner(self) -> str:
        """Return the name of this process, whose lock is held from now on."""
        if not self._owner:
            owner = make_random_token(16)
            self._held = await asyncio.to_thread(self._hold, owner)
            self._owner = owner
        return self._owner

    async def is_alive(self, owner: str) -> bool:
        """Say whether the lock of an owner is held; removes it if it is not."""
        return await asyncio.to_thread(self._is_held, owner)

    async def close(self) -> None:
        """Let go of the lock of this process."""
        if self._held >= 0:
            held, self._held = self._held, -1
            with contextlib.suppress(OSError):
                (self._directory / f"{self._owner}.writer").unlink()
            self._owner = ""
            os.close(held)

    def _open(self, name: str) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(self._directory / name, flags, 0o600)
        except OSError as error:
            detail = error.strerror or "its lock cannot be made"
            raise StorageError(path=str(self._directory), detail=detail) from error

    def _hold(self, owner: str) -> int:
        while True:
            held = self._open(f"{owner}.writer")
            try:
                is_same = os.path.samestat(
                    os.fstat(held), os.stat(self._directory / f"{owner}.writer")
                )
            except OSError:
                is_same = False
            if is_same and _try_lock(held):
                return held
            # Who cleans up took it for the lock of a dead process before it was locked.
            os.close(held)

    def _is_held(self, owner: str) -> bool:
        if not owner.isalnum():
            return False
        path = self._directory / f"{owner}.writer"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            if not _try_lock(descriptor):
                return True
            with contextlib.suppress(OSError):
                path.unlink()
            return False
        finally:
            os.close(descriptor)


class StoreLocks:
    """Locks in the database that keeps the journal, for all machines that share it.

    Uploads are named after the process whose presence the store knows. Parts of one whose time
    has run out may be removed while it stands still: it then begins its upload anew.
    """

    def __init__(
        self, journal: Journal, shared: SharedStore, show_presence: Callable[[], Awaitable[str]]
    ) -> None:
        """Ask this store; `show_presence` names this process, and tells others that it lives."""
        self._journal = journal
        self._shared = shared
        self._show_presence = show_presence

    def alone(self) -> AbstractAsyncContextManager[None]:
        """Be the only one who changes the catalogue."""
        return self._shared.alone("artifacts")

    async def owner(self) -> str:
        """Return the name of this process, as leases have it."""
        return await self._show_presence()

    async def is_alive(self, owner: str) -> bool:
        """Say whether a process has renewed its presence in time."""
        return await self._journal.store.is_alive(owner)

    async def close(self) -> None:
        """Presence is given up with the leases."""


class ProcessLocks:
    """Locks within this process, for records that end with it."""

    def __init__(self) -> None:
        """Every lock is free."""
        self._lock = asyncio.Lock()
        self._owner = make_random_token(16)

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncGenerator[None, None]:
        """Be the only one who changes the catalogue."""
        async with self._lock:
            yield

    async def owner(self) -> str:
        """Return the name of this process."""
        return self._owner

    async def is_alive(self, owner: str) -> bool:
        """Only this process is known."""
        return owner == self._owner

    async def close(self) -> None:
        """Nothing is held."""


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


__all__ = ["ArtifactLocks", "FileLocks", "ProcessLocks", "StoreLocks"]
