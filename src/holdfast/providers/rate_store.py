"""Where the histories of rate rules are kept: moving windows, on our clock, in this process.

`RateStore` is the seam; behind it `open_rate_store` also puts a Redis that processes share.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import ConfigError, MissingExtra
from holdfast.providers.rate_rules import RateCharge

_SWEEP_EVERY = 1_000
_REDIS: Final = ("redis", "rediss", "unix")
_POSTGRES: Final = ("postgresql", "postgres")


class Shortage(msgspec.Struct, frozen=True, kw_only=True):
    """The charge that does not fit now, and after how long it may."""

    charge: RateCharge
    wait_s: float


class RateStore(Protocol):
    """The histories of all rate rules."""

    async def charge(self, charges: Sequence[RateCharge]) -> Shortage | float:
        """Charge all or nothing; return the moment, or what stands in the way."""
        ...

    async def correct(self, charge: RateCharge, *, at: float, difference: int) -> None:
        """Change a charge made at `at` by `difference`, as far as the storage can."""
        ...

    async def close(self) -> None:
        """Give back connections."""
        ...


class _Entry:
    """What was charged to a window at one moment."""

    __slots__ = ("amount", "at")

    def __init__(self, at: float, amount: int) -> None:
        self.at = at
        self.amount = amount


class _Window:
    """The charges of the last `length_s` seconds, oldest first, and their sum.

    An entry counts from its moment until exactly `length_s` later.
    """

    __slots__ = ("entries", "held", "length_s")

    def __init__(self, length_s: float) -> None:
        self.length_s = length_s
        self.entries: deque[_Entry] = deque()
        self.held = 0

    def forget(self, now: float) -> None:
        while self.entries and self.entries[0].at + self.length_s <= now:
            self.held -= self.entries.popleft().amount

    def add(self, now: float, amount: int) -> None:
        self.held += amount
        if self.entries and self.entries[-1].at == now:
            self.entries[-1].amount += amount
        else:
            self.entries.append(_Entry(now, amount))

    def find_wait(self, now: float, excess: int) -> float:
        """Return how long it takes until `excess` has left, if no other charge comes."""
        for entry in self.entries:
            excess -= entry.amount
            if excess <= 0:
                return entry.at + self.length_s - now
        return 0.0

    def correct(self, now: float, at: float, difference: int) -> None:
        """Change the newest charge not after `at`; beyond an ended window, add to now."""
        for entry in reversed(self.entries):
            if entry.at <= at:
                change = max(difference, -entry.amount)
                entry.amount += change
                self.held += change
                return
        if difference > 0:
            self.add(now, difference)


class WindowRateStore:
    """Histories in this process, charged all or nothing.

    A call is one entry, however many tokens it counts. Nothing in here ever waits, so that
    a plain lock makes a charge atomic for all threads and loops.
    """

    def __init__(self, *, clock: Clock = SYSTEM) -> None:
        """Start with no history."""
        self._clock = clock
        self._lock = threading.Lock()
        self._windows: dict[tuple[str, int], _Window] = {}
        self._charged = 0

    async def charge(self, charges: Sequence[RateCharge]) -> Shortage | float:
        """Test every charge, and only if all fit charge every one."""
        with self._lock:
            now = self._clock.monotonic()
            found = [(charge, self._find_window(charge, now)) for charge in charges]
            for charge, window in found:
                excess = window.held + charge.amount - charge.limit
                if excess > 0:
                    return Shortage(charge=charge, wait_s=window.find_wait(now, excess))
            for charge, window in found:
                window.add(now, charge.amount)
                self._charged += 1
                if self._charged % _SWEEP_EVERY == 0:
                    self._sweep(now)
            return now

    async def correct(self, charge: RateCharge, *, at: float, difference: int) -> None:
        """Replace what was expected by what was used."""
        with self._lock:
            now = self._clock.monotonic()
            self._find_window(charge, now).correct(now, at, difference)

    async def close(self) -> None:
        """Do nothing: memory needs no closing."""

    def _find_window(self, charge: RateCharge, now: float) -> _Window:
        length_s = charge.rule.window_seconds
        key = charge.key, length_s
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window(length_s)
        window.forget(now)
        return window

    def _sweep(self, now: float) -> None:
        """Drop the windows of those who have not called for a while."""
        for key, window in list(self._windows.items()):
            window.forget(now)
            if not window.entries:
                del self._windows[key]


def open_rate_store(uri: str = "", *, clock: Clock = SYSTEM) -> RateStore:
    """Return the histories at an address: `redis://`, `rediss://`, `unix://` or `postgresql://`.

    Without an address they are in this process, on `clock`.

    Raises:
        ConfigError: the address is not understood.
        MissingExtra: the extra `redis`, or `postgres`, is not installed.
    """
    if not uri:
        return WindowRateStore(clock=clock)
    address = uri.removeprefix("async+")
    scheme = address.partition("://")[0]
    if scheme in _POSTGRES:
        return _open_postgres(address)
    if scheme not in _REDIS:
        # The address may hold a password: only its scheme is shown.
        known = ", ".join((*_REDIS, *_POSTGRES))
        detail = f"rate limits cannot be kept in a {scheme!r} storage, only in one of {known}"
        raise ConfigError(detail=detail)
    try:
        from holdfast.providers.stores.redis_rates import RedisRateStore  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise MissingExtra(
            what="A shared store of rate rules", package="redis", extra="redis"
        ) from error
    return RedisRateStore(address)


def _open_postgres(address: str) -> RateStore:
    try:
        from holdfast.providers.stores.postgres_rates import (  # noqa: PLC0415 - an extra
            PostgresRateStore,
        )
    except ModuleNotFoundError as error:
        raise MissingExtra(
            what="A shared store of rate rules", package=error.name or "", extra="postgres"
        ) from error
    return PostgresRateStore(address)
