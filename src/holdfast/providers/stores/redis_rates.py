"""Histories of rate rules in Redis, shared by all processes that use the same one.

Each window is a hash: the moments of a hundredth of the window share a field, so that a
window never takes more than about a hundred fields, however many calls it holds. A charge
counts until its field is a whole window old, on the clock of the server: never too short,
and at most a hundredth too long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Self, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, WatchError

from holdfast.errors import ConfigError, RateStoreFailed
from holdfast.observability import Logger
from holdfast.providers.rate_rules import RateCharge
from holdfast.providers.rate_store import Shortage

_FIELDS: Final = 100
_PATIENCE_S: Final = 5.0
"""How long the server may take to be reached, and to answer."""

_T = TypeVar("_T")
_log = Logger(__name__)


class _Window(NamedTuple):
    """What one hash holds, by field; `ended` are the fields that count no longer."""

    key: str
    window_ms: int
    now_ms: int
    counted: dict[int, int]
    ended: list[int]

    @classmethod
    def read(cls, charge: RateCharge, now_ms: int, stored: Mapping[bytes, bytes]) -> Self:
        window = cls(_make_key(charge), charge.rule.window_seconds * 1000, now_ms, {}, [])
        for name, amount in stored.items():
            if window.compute_until_ms(int(name)) > now_ms:
                window.counted[int(name)] = int(amount)
            else:
                window.ended.append(int(name))
        return window

    def find_field(self, moment_ms: int) -> int:
        return moment_ms // (self.window_ms // _FIELDS)

    def compute_until_ms(self, field: int) -> int:
        return (field + 1) * (self.window_ms // _FIELDS) + self.window_ms

    def wait_s(self, amount: int, limit: int) -> float | None:
        """Return how long it takes until `amount` fits, nothing if it does now."""
        excess = sum(self.counted.values()) + amount - limit
        if excess <= 0:
            return None
        until_ms = self.now_ms
        for field in sorted(self.counted):
            until_ms = self.compute_until_ms(field)
            excess -= self.counted[field]
            if excess <= 0:
                break
        return (until_ms - self.now_ms) / 1000

    def add(self, pipe: Pipeline, field: int, amount: int) -> None:
        """Put a change into the transaction, and leave out what has ended."""
        if self.ended:
            pipe.hdel(self.key, *map(str, self.ended))
        pipe.hincrby(self.key, str(field), amount)
        pipe.pexpireat(self.key, self.compute_until_ms(self.find_field(self.now_ms)))


_Decide: TypeAlias = Callable[[Pipeline, list[_Window]], _T]


class RedisRateStore:
    """Charges all windows of a call in one transaction, or none.

    Where another process came between, the windows are read anew, so that processes cannot
    overshoot together. A server that cannot be asked refuses the call. When it cannot be
    told what a call used, the expectation stays charged, and that is logged.
    """

    def __init__(self, uri: str) -> None:
        """Prepare; nothing is opened before the first charge.

        Raises:
            ConfigError: the address is not understood; it is not shown, as it may hold a
                password.
        """
        self._uri = uri
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[Redis, asyncio.Lock]] = (
            WeakKeyDictionary()
        )
        try:
            self._connect()
        except (ValueError, TypeError):
            raise ConfigError(detail="the address of the Redis server is not valid") from None

    async def charge(self, charges: Sequence[RateCharge]) -> Shortage | float:
        """Charge all or nothing; return the server's moment, or what stands in the way.

        Raises:
            RateStoreFailed: the server cannot be asked.
        """

        def decide(pipe: Pipeline, windows: list[_Window]) -> Shortage | float:
            for charge, window in zip(charges, windows, strict=True):
                wait_s = window.wait_s(charge.amount, charge.limit)
                if wait_s is not None:
                    return Shortage(charge=charge, wait_s=wait_s)
            for charge, window in zip(charges, windows, strict=True):
                window.add(pipe, window.find_field(window.now_ms), charge.amount)
            return windows[0].now_ms / 1000

        return await self._transact(charges, decide) if charges else 0.0

    async def correct(self, charge: RateCharge, *, at: float, difference: int) -> None:
        """Change a charge made at `at`; beyond an ended window, add to now."""

        def decide(pipe: Pipeline, windows: list[_Window]) -> None:
            [window] = windows
            field = window.find_field(round(at * 1000))
            if field in window.counted:
                window.add(pipe, field, max(difference, -window.counted[field]))
            elif difference > 0:
                window.add(pipe, window.find_field(window.now_ms), difference)

        if difference == 0:
            return
        try:
            await self._transact([charge], decide)
        except RateStoreFailed as error:
            # The answer is there and paid for: it is not lost for the sake of a count.
            _log.warning("rate_store.not_settled", rule=charge.rule.name, detail=str(error))

    async def close(self) -> None:
        """Close the connections of the running loop."""
        found = self._clients.pop(asyncio.get_running_loop(), None)
        if found is not None:
            await found[0].aclose()

    async def _transact(self, charges: Sequence[RateCharge], decide: _Decide[_T]) -> _T:
        """Read the windows and carry out what `decide` wants, with nothing between the two."""
        before = _count_cancellations()
        decided = await self._try(charges, decide)
        if _count_cancellations() > before:
            # The driver swallowed it; the caller that was cancelled must not go on.
            raise asyncio.CancelledError
        return decided

    async def _try(self, charges: Sequence[RateCharge], decide: _Decide[_T]) -> _T:
        loop = asyncio.get_running_loop()
        client, lock = self._clients.get(loop) or self._clients.setdefault(
            loop, (self._connect(), asyncio.Lock())
        )
        try:
            # One at a time: calls of one process would only disturb each other.
            async with lock, client.pipeline(transaction=True) as pipe:
                while True:
                    await pipe.watch(*map(_make_key, charges))
                    windows = await _read(client, charges)
                    pipe.multi()  # type: ignore[no-untyped-call]
                    decided = decide(pipe, windows)
                    if len(pipe) == 0:
                        return decided
                    try:
                        await pipe.execute()
                    except WatchError:
                        continue
                    return decided
        except (RedisError, OSError) as error:
            raise RateStoreFailed(detail=str(error) or type(error).__name__) from None

    def _connect(self) -> Redis:
        return Redis.from_url(
            self._uri,
            socket_connect_timeout=_PATIENCE_S,
            socket_timeout=_PATIENCE_S,
            # Once more at most, for a connection that has gone stale.
            retry=Retry(NoBackoff(), 1),
        )


def _count_cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0


async def _read(client: Redis, charges: Sequence[RateCharge]) -> list[_Window]:
    async with client.pipeline(transaction=False) as pipe:
        pipe.time()
        for charge in charges:
            pipe.hgetall(_make_key(charge))
        (seconds, micros), *stored = await pipe.execute()
    now_ms = seconds * 1000 + micros // 1000
    pairs = zip(charges, stored, strict=True)
    return [_Window.read(charge, now_ms, fields) for charge, fields in pairs]


def _make_key(charge: RateCharge) -> str:
    # The fields of a window of another length mean other moments.
    return f"holdfast:rate:{charge.rule.window_seconds}:{charge.key}"
