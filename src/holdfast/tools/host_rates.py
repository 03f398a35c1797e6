"""How often each host was asked within the last minute, by all processes of a state directory."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
from collections import deque
from pathlib import Path

import msgspec

from holdfast.clock import Clock
from holdfast.errors import RateLimitError, StorageError
from holdfast.policy import NetworkRules

_MINUTE_S = 60.0
_MOST_HOSTS = 10_000
_LARGEST = 16 * 1024 * 1024


class _Asked(msgspec.Struct, kw_only=True):
    """When a host was asked, by the boot clock that `boot` names."""

    boot: str = ""
    times: list[float] = msgspec.field(default_factory=list)


class HostRates:
    """Counts requests per host; with a `place`, together with every other process that has it.

    Time is that of the boot clock, which no one can step. A file of an earlier start of the
    machine counts for nothing.
    """

    def __init__(self, clock: Clock, place: str | os.PathLike[str] | None = None) -> None:
        """Start with no requests; `place` is a directory, made with the first limited one."""
        self._clock = clock
        self._place = None if place is None else Path(place)
        self._asked: dict[str, deque[float]] = {}

    async def count(self, host: str, rules: NetworkRules) -> None:
        """Note one request.

        Raises:
            RateLimitError: the minute is used up; nothing was noted.
            StorageError: the count cannot be kept, so the host must not be asked.
        """
        per_minute = rules.find_rate(host)
        if per_minute is None:
            return
        if self._place is None:
            self._count_here(host, per_minute)
        else:
            await asyncio.to_thread(self._count_together, self._place, host, per_minute)

    def _count_here(self, host: str, per_minute: int) -> None:
        now = self._clock.boottime()
        if len(self._asked) >= _MOST_HOSTS:
            self._asked = {h: a for h, a in self._asked.items() if a[-1] > now - _MINUTE_S}
        asked = self._asked.setdefault(host, deque())
        while asked and asked[0] <= now - _MINUTE_S:
            asked.popleft()
        if len(asked) >= per_minute:
            raise _make_limit(host, asked[0] + _MINUTE_S - now)
        asked.append(now)

    def _count_together(self, place: Path, host: str, per_minute: int) -> None:
        name = hashlib.sha256(host.encode()).hexdigest()[:32]
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            handle = os.open(place / name, flags, 0o600)
            try:
                # Held for one reading and one writing; a process that is killed lets go.
                fcntl.flock(handle, fcntl.LOCK_EX)
                self._note(handle, host, per_minute)
            finally:
                os.close(handle)
        except OSError as error:
            detail = error.strerror or "it cannot be written"
            raise StorageError(path=str(place / name), detail=detail) from error

    def _note(self, handle: int, host: str, per_minute: int) -> None:
        now, boot = self._clock.boottime(), self._clock.boot_id()
        try:
            known = msgspec.json.decode(os.pread(handle, _LARGEST, 0), type=_Asked)
        except msgspec.MsgspecError:
            # Empty, or cut short by a kill: what was in it is at most a minute old.
            known = _Asked()
        is_current = known.boot == boot
        recent = [at for at in known.times if now - _MINUTE_S < at <= now] if is_current else []
        if len(recent) >= per_minute:
            raise _make_limit(host, recent[-per_minute] + _MINUTE_S - now)
        data = msgspec.json.encode(_Asked(boot=boot, times=[*recent, now]))
        os.ftruncate(handle, 0)
        os.pwrite(handle, data, 0)


def _make_limit(host: str, wait_s: float) -> RateLimitError:
    return RateLimitError(
        rule=f"network.yaml {host}", unit="requests", retry_after_s=round(wait_s, 1)
    )


__all__ = ["HostRates"]
