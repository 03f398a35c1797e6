"""Where the histories of rate rules are kept: `limits`, on our clock, in this process.

`RateStore` is the seam; behind it `open_rate_store` also puts a Redis that processes share.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec
from limits import RateLimitItemPerSecond
from limits.aio.storage import MovingWindowSupport, Storage
from limits.aio.strategies import MovingWindowRateLimiter

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import ConfigError, MissingExtra
from holdfast.providers.rate_rules import RateCharge

_SWEEP_EVERY = 1_000
_REDIS: Final = ("redis", "rediss", "unix")


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
    """The charges of the last `expiry` seconds, oldest first, and their sum."""

    __slots__ = ("entries", "expiry", "held")

    def __init__(self, expiry: int) -> None:
        self.expiry = expiry
        self.entries: deque[_Entry] = deque()
        self.held = 0

    def forget(self, now: float) -> None:
        while self.entries and self.entries[0].at + self.expiry <= now:
            self.held -= self.entries.popleft().amount

    def add(self, now: float, amount: int) -> None:
        self.held += amount
        if self.entries and self.entries[-1].at == now:
            self.entries[-1].amount += amount
        else:
            self.entries.append(_Entry(now, amount))


class WindowStorage(Storage, MovingWindowSupport):
    """Moving windows in memory, for `limits`, on a clock that tests can move.

    The memory storage of `limits` reads the wall clock and keeps one object per unit,
    thousands per call when tokens are counted. Here a call is one entry. An entry
    counts from its moment until exactly `expiry` seconds later.
    """

    STORAGE_SCHEME = ["async+holdfast"]

    def __init__(self, uri: str | None = None, *, clock: Clock = SYSTEM) -> None:
        """Start with no history."""
        super().__init__(uri)
        self._clock = clock
        self._windows: dict[str, _Window] = {}
        self._acquired = 0

    async def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Charge `amount` if it fits."""
        window, now = self._compute_window(key, expiry)
        if window.held + amount > limit:
            return False
        window.add(now, amount)
        self._acquired += 1
        if self._acquired % _SWEEP_EVERY == 0:
            self._sweep(now)
        return True

    async def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        """Return since when the window counts, and what it holds."""
        window, now = self._compute_window(key, expiry)
        return (window.entries[0].at if window.entries else now), window.held

    def wait_s(self, key: str, limit: int, expiry: int, amount: int) -> float:
        """Return how long it takes until `amount` fits, if no other process comes."""
        window, now = self._compute_window(key, expiry)
        excess = window.held + amount - limit
        for entry in window.entries:
            if excess <= 0:
                break
            excess -= entry.amount
            if excess <= 0:
                return entry.at + expiry - now
        return 0.0

    def correct(self, key: str, expiry: int, at: float, difference: int) -> None:
        """Change the newest charge not after `at`; beyond an ended window, add to now."""
        window, now = self._compute_window(key, expiry)
        for entry in reversed(window.entries):
            if entry.at <= at:
                change = max(difference, -entry.amount)
                entry.amount += change
                window.held += change
                return
        if difference > 0:
            window.add(now, difference)

    def _compute_window(self, key: str, expiry: int) -> tuple[_Window, float]:
        now = self._clock.monotonic()
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window(expiry)
        window.forget(now)
        return window, now

    def _sweep(self, now: float) -> None:
        """Drop the windows of those who have not called for a while."""
        for key, window in list(self._windows.items()):
            window.forget(now)
            if not window.entries:
                del self._windows[key]

    @property
    def base_exceptions(self) -> type[Exception]:
        """Nothing here fails."""
        return ValueError

    async def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """Add without a limit."""
        window, now = self._compute_window(key, expiry)
        window.add(now, amount)
        return window.held

    async def get(self, key: str) -> int:
        """Return what a window holds."""
        window = self._windows.get(key)
        return self._compute_window(key, window.expiry)[0].held if window is not None else 0

    async def get_expiry(self, key: str) -> float:
        """Return when the newest entry of a window stops counting."""
        window = self._windows.get(key)
        if window is None or not window.entries:
            return self._clock.monotonic()
        return window.entries[-1].at + window.expiry

    async def check(self) -> bool:
        """Memory is always there."""
        return True

    async def reset(self) -> int | None:
        """Forget everything."""
        held = len(self._windows)
        self._windows.clear()
        return held

    async def clear(self, key: str) -> None:
        """Forget one window."""
        self._windows.pop(key, None)


class LimitsStore:
    """Histories in this process, charged all or nothing.

    Nothing in here ever waits, so that a plain lock makes a charge atomic for all threads
    and loops.
    """

    def __init__(self, *, clock: Clock = SYSTEM) -> None:
        """Start with no history."""
        self._storage = WindowStorage(clock=clock)
        self._limiter = MovingWindowRateLimiter(self._storage)
        self._clock = clock
        self._lock = threading.Lock()

    async def charge(self, charges: Sequence[RateCharge]) -> Shortage | float:
        """Test every charge, and only if all fit charge every one."""
        with self._lock:
            for charge in charges:
                if not await self._limiter.test(_read_item(charge), charge.key, cost=charge.amount):
                    return Shortage(charge=charge, wait_s=self._wait_s(charge))
            for charge in charges:
                await self._limiter.hit(_read_item(charge), charge.key, cost=charge.amount)
            # Read under the lock: the newest entry up to this moment is ours.
            return self._clock.monotonic()

    async def correct(self, charge: RateCharge, *, at: float, difference: int) -> None:
        """Replace what was expected by what was used."""
        item = _read_item(charge)
        with self._lock:
            self._storage.correct(item.key_for(charge.key), item.get_expiry(), at, difference)

    async def close(self) -> None:
        """Do nothing: memory needs no closing."""

    def _wait_s(self, charge: RateCharge) -> float:
        item = _read_item(charge)
        key = item.key_for(charge.key)
        return self._storage.wait_s(key, item.amount, item.get_expiry(), charge.amount)


def open_rate_store(uri: str = "", *, clock: Clock = SYSTEM) -> RateStore:
    """Return the histories at an address: `redis://`, `rediss://` or `unix://`.

    Without an address they are in this process, on `clock`.

    Raises:
        ConfigError: the address is not understood.
        MissingExtra: the extra `redis` is not installed.
    """
    if not uri:
        return LimitsStore(clock=clock)
    address = uri.removeprefix("async+")
    scheme = address.partition("://")[0]
    if scheme not in _REDIS:
        # The address may hold a password: only its scheme is shown.
        known = ", ".join(_REDIS)
        detail = f"rate limits cannot be kept in a {scheme!r} storage, only in one of {known}"
        raise ConfigError(detail=detail)
    try:
        from holdfast.providers.stores.redis_rates import RedisRateStore  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise MissingExtra(
            what="A shared store of rate rules", package="redis", extra="redis"
        ) from error
    return RedisRateStore(address)


def _read_item(charge: RateCharge) -> RateLimitItemPerSecond:
    return RateLimitItemPerSecond(charge.limit, charge.rule.window_seconds, "holdfast")
