"""Where the histories of rate rules are kept: `limits`, on our clock, in this process.

`RateStore` is the seam. `LimitsStore` works with any async storage of `limits`; with
`WindowStorage` (the default) it is exact, elsewhere only as exact as that storage.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol
from weakref import WeakKeyDictionary

import msgspec
from limits import RateLimitItemPerSecond
from limits.aio.storage import MovingWindowSupport, Storage
from limits.aio.strategies import MovingWindowRateLimiter
from limits.errors import ConfigurationError
from limits.storage import storage_from_string

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import ConfigError
from holdfast.providers.rate_rules import RateCharge

_SWEEP_EVERY = 1_000


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
        window, now = self._window(key, expiry)
        if window.held + amount > limit:
            return False
        window.add(now, amount)
        self._acquired += 1
        if self._acquired % _SWEEP_EVERY == 0:
            self._sweep(now)
        return True

    async def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        """Return since when the window counts, and what it holds."""
        window, now = self._window(key, expiry)
        return (window.entries[0].at if window.entries else now), window.held

    def wait_s(self, key: str, limit: int, expiry: int, amount: int) -> float:
        """Return how long it takes until `amount` fits, if nobody else comes."""
        window, now = self._window(key, expiry)
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
        window, now = self._window(key, expiry)
        for entry in reversed(window.entries):
            if entry.at <= at:
                change = max(difference, -entry.amount)
                entry.amount += change
                window.held += change
                return
        if difference > 0:
            window.add(now, difference)

    def _window(self, key: str, expiry: int) -> tuple[_Window, float]:
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
        window, now = self._window(key, expiry)
        window.add(now, amount)
        return window.held

    async def get(self, key: str) -> int:
        """Return what a window holds."""
        window = self._windows.get(key)
        return self._window(key, window.expiry)[0].held if window is not None else 0

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
    """Histories in a storage of `limits`, charged all or nothing within this process.

    With `WindowStorage` nothing in here ever waits, so that a plain lock makes a
    charge atomic for all threads and loops. Another storage is guarded per loop: two
    processes that charge at the same moment may each take part of what only one can
    have. Such a storage cannot give back either, so corrections only add.
    """

    def __init__(self, storage: Storage | None = None, *, clock: Clock = SYSTEM) -> None:
        """Keep histories in `storage`, in memory unless told otherwise."""
        self._storage = storage if storage is not None else WindowStorage(clock=clock)
        self._windows = self._storage if isinstance(self._storage, WindowStorage) else None
        self._limiter = MovingWindowRateLimiter(self._storage)
        self._clock = clock
        self._lock = threading.Lock()
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]
        self._locks = WeakKeyDictionary()

    async def charge(self, charges: Sequence[RateCharge]) -> Shortage | float:
        """Test every charge, and only if all fit charge every one."""
        async with self._guard():
            for charge in charges:
                if not await self._limiter.test(_item(charge), charge.key, cost=charge.amount):
                    return Shortage(charge=charge, wait_s=await self._wait_s(charge))
            for charge in charges:
                await self._limiter.hit(_item(charge), charge.key, cost=charge.amount)
            # Read under the guard: the newest entry up to this moment is ours.
            return self._clock.monotonic()

    async def correct(self, charge: RateCharge, *, at: float, difference: int) -> None:
        """Settle a charge; see the class for storages that can only add."""
        if difference == 0:
            return
        item = _item(charge)
        async with self._guard():
            if self._windows is not None:
                key = item.key_for(charge.key)
                self._windows.correct(key, item.get_expiry(), at, difference)
            elif difference > 0:
                _, held = await self._limiter.get_window_stats(item, charge.key)
                if held > 0:
                    await self._limiter.hit(item, charge.key, cost=min(difference, held))

    async def _wait_s(self, charge: RateCharge) -> float:
        item = _item(charge)
        if self._windows is not None:
            key = item.key_for(charge.key)
            return self._windows.wait_s(key, item.amount, item.get_expiry(), charge.amount)
        reset, _ = await self._limiter.get_window_stats(item, charge.key)
        return max(0.0, reset - self._clock.now())

    @asynccontextmanager
    async def _guard(self) -> AsyncIterator[None]:
        if self._windows is not None:
            with self._lock:
                yield
            return
        loop = asyncio.get_running_loop()
        async with self._locks.setdefault(loop, asyncio.Lock()):
            yield


def open_store(uri: str = "", *, clock: Clock = SYSTEM) -> LimitsStore:
    """Return the store for a storage address of `limits`; none means this process's memory.

    Raises:
        ConfigError: the address is not understood, or its driver is not installed.
    """
    if not uri:
        return LimitsStore(clock=clock)
    scheme = uri.partition("://")[0]
    try:
        storage = storage_from_string(uri)
    except (ConfigurationError, ValueError) as error:
        # The address may hold a password: only its scheme is shown.
        detail = f"rate limits cannot be kept in a {scheme!r} storage: {type(error).__name__}"
        raise ConfigError(detail=detail) from None
    if not isinstance(storage, Storage):
        raise ConfigError(detail=f"rate limits need an async storage, not {scheme!r}")
    return LimitsStore(storage, clock=clock)


def _item(charge: RateCharge) -> RateLimitItemPerSecond:
    return RateLimitItemPerSecond(charge.limit, charge.rule.window_seconds, "holdfast")
