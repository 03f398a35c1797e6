"""How many turns this process executes at once: as many as it may open files and threads for.

A turn with calls holds its workspace open, a connection to a model, the pipes of a command; a
process that begins more of them than the system lets it open fails in the middle of all. So those
that do not fit wait for their place, in the order in which they came.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from collections import deque
from pathlib import Path

from holdfast.observability import Logger
from holdfast.turns.turn import ENCLOSING

_PER_TURN = 8
"""Descriptors that a turn may need at a time: a workspace, a model, a command in its sandbox."""
_SPARE_FILES = 64
"""Left for everything else: the store, the log, servers, runs that runs start."""
_SPARE_THREADS = 32
_FEWEST = 4
_LOOK_S = 1.0
_ROOMY = 0.6
"""Up to this share of the descriptors in use, one more may begin where nothing has moved."""
_log = Logger(__name__)


class TurnSlots:
    """Places for turns; one that a turn itself starts needs none, so that none waits for itself."""

    def __init__(self) -> None:
        """Count the places when the first one is taken."""
        self._capacity = 0
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._has_told = False
        self._moved = 0.0
        """When a place was given back, or one more taken than there are."""

    async def take(self) -> bool:
        """Wait for a place; says whether one was taken, which is then given back."""
        if ENCLOSING.get() is not None:
            return False
        if not self._capacity:
            self._capacity = count_places()
        if self._taken < self._capacity and not self._waiting:
            self._taken += 1
            return True
        await self._wait()
        return True

    def give_back(self) -> None:
        """Let the next one begin."""
        self._taken -= 1
        self._moved = asyncio.get_running_loop().time()
        while self._waiting and self._taken < self._capacity:
            place = self._waiting.popleft()
            if not place.done():
                self._taken += 1
                place.set_result(None)

    async def _wait(self) -> None:
        if not self._has_told:
            self._has_told = True
            _log.warning("turns_wait_for_their_place", at_once=self._capacity)
        loop = asyncio.get_running_loop()
        place = loop.create_future()
        self._waiting.append(place)
        try:
            while not (await asyncio.wait((place,), timeout=_LOOK_S))[0]:
                # Those who hold the places may all wait for runs that stand here.
                has_moved = loop.time() - self._moved < _LOOK_S
                if self._waiting[0] is place and not has_moved and is_roomy():
                    self._waiting.popleft()
                    self._taken += 1
                    self._moved = loop.time()
                    return
        except asyncio.CancelledError:
            if place.done():
                self.give_back()
            else:
                place.cancel()
            raise


def count_places() -> int:
    """Return for how many turns at once this process may open descriptors and threads."""
    files = _limit("RLIMIT_NOFILE") - _SPARE_FILES - _count_open()
    threads = _compute_most_threads() - _SPARE_THREADS
    return max(_FEWEST, int(min(files / _PER_TURN, threads, 2**31)))


def is_roomy() -> bool:
    """Say whether this process has plenty of descriptors left."""
    return _count_open() < _ROOMY * _limit("RLIMIT_NOFILE")


def _count_open() -> int:
    for folder in ("/proc/self/fd", "/dev/fd"):
        with contextlib.suppress(OSError):
            return len(os.listdir(folder))
    return 0


def _limit(name: str) -> float:
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return 1024.0
    found = resource.getrlimit(getattr(resource, name))[0]
    return math.inf if found == resource.RLIM_INFINITY else float(found)


def _compute_most_threads() -> float:
    """Return how many threads this process may still start, as far as the system says."""
    most = math.inf
    with contextlib.suppress(OSError, ValueError, IndexError):
        group = Path("/proc/self/cgroup").read_text(encoding="ascii").strip().rpartition("::")[2]
        folder = Path("/sys/fs/cgroup", group.lstrip("/"))
        most = int((folder / "pids.max").read_text()) - int((folder / "pids.current").read_text())
    if hasattr(os, "geteuid") and os.geteuid() != 0:
        # The number of the whole user, who has other processes too.
        most = min(most, _limit("RLIMIT_NPROC") / 2)
    return most
