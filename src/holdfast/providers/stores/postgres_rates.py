"""Histories of rate rules on the Postgres of the records, shared by all processes of a tenant.

As in Redis, a window is kept in hundredths: a charge counts until its hundredth is a whole window
old, on the clock of the server; never too short, and at most a hundredth too long.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import psycopg
import psycopg_pool

from holdfast.errors import RateStoreFailed
from holdfast.journal import parse_postgres_target
from holdfast.observability import Logger
from holdfast.providers.rate_rules import RateCharge
from holdfast.providers.rate_store import Shortage

_SLOTS: Final = 100
_PATIENCE_S: Final = 5.0
_MOST_CONNECTIONS: Final = 2
_log = Logger(__name__)

# One after the other per window, in the same order everywhere, until the end of the transaction.
_LOCK: Final = """
SELECT pg_advisory_xact_lock(hashtextextended(%(tenant)s || chr(10) || name, length))
FROM unnest(%(names)s::text[], %(lengths)s::integer[]) AS w(name, length) ORDER BY name, length
"""
_NOW: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_READ: Final = """
SELECT name, length, slot, amount FROM holdfast.rates r
JOIN unnest(%(names)s::text[], %(lengths)s::integer[]) AS w(name, length) USING (name, length)
WHERE tenant = %(tenant)s
"""
_ADD: Final = """
INSERT INTO holdfast.rates AS r (tenant, name, length, slot, amount)
VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (tenant, name, length, slot) DO UPDATE SET amount = r.amount + excluded.amount
"""
_FORGET: Final = """
DELETE FROM holdfast.rates WHERE tenant = %s AND name = %s AND length = %s AND slot = ANY(%s)
"""
_Pool = psycopg_pool.AsyncConnectionPool[psycopg.AsyncConnection[Any]]


class _Window:
    """What is kept of one window, by slot."""

    def __init__(self, charge: RateCharge, now_ms: int) -> None:
        self.length_s = charge.rule.window_seconds
        self.name = charge.key
        self.now_ms = now_ms
        self.slots: dict[int, int] = {}
        self.ended: list[int] = []

    def find_slot(self, moment_ms: int) -> int:
        return moment_ms * _SLOTS // (self.length_s * 1000)

    def compute_until_ms(self, slot: int) -> float:
        return (slot + 1 + _SLOTS) * self.length_s * 1000 / _SLOTS

    def take(self, slot: int, amount: int) -> None:
        if self.compute_until_ms(slot) > self.now_ms:
            self.slots[slot] = amount
        else:
            self.ended.append(slot)

    def find_wait(self, charge: RateCharge) -> float | None:
        """Return how long it takes until a charge fits; `None` if it does now."""
        excess = sum(self.slots.values()) + charge.amount - charge.limit
        if excess <= 0:
            return None
        until_ms: float = self.now_ms
        for slot in sorted(self.slots):
            until_ms = self.compute_until_ms(slot)
            excess -= self.slots[slot]
            if excess <= 0:
                break
        return (until_ms - self.now_ms) / 1000


class PostgresRateStore:
    """Charges all windows of a call in one transaction, or none.

    A server that cannot be asked refuses the call. When it cannot be told what a call used, the
    expectation stays charged, and that is logged.
    """

    def __init__(self, uri: str) -> None:
        """Prepare; connects to nothing before the first charge.

        Raises:
            UsageError: the address means nothing.
        """
        self._target = parse_postgres_target(urlsplit(uri))
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = WeakKeyDictionary()

    async def charge(self, charges: Sequence[RateCharge]) -> Shortage | float:
        """Charge all or nothing; return the server's moment, or what stands in the way.

        Raises:
            RateStoreFailed: the server cannot be asked.
        """
        if not charges:
            return 0.0
        async with self._begin(charges) as (connection, windows):
            for charge, window in zip(charges, windows, strict=True):
                wait_s = window.find_wait(charge)
                if wait_s is not None:
                    return Shortage(charge=charge, wait_s=wait_s)
            for charge, window in zip(charges, windows, strict=True):
                await self._add(connection, window, window.find_slot(window.now_ms), charge.amount)
            return windows[0].now_ms / 1000

    async def correct(self, charge: RateCharge, *, at: float, difference: int) -> None:
        """Change a charge made at `at`; beyond an ended window, add to now."""
        if difference == 0:
            return
        try:
            async with self._begin([charge]) as (connection, [window]):
                slot = window.find_slot(round(at * 1000))
                if slot in window.slots:
                    change = max(difference, -window.slots[slot])
                    await self._add(connection, window, slot, change)
                elif difference > 0:
                    now = window.find_slot(window.now_ms)
                    await self._add(connection, window, now, difference)
        except RateStoreFailed as error:
            # The answer is there and paid for: it is not lost for the sake of a count.
            _log.warning("rate_store.not_settled", rule=charge.rule.name, detail=str(error))

    async def close(self) -> None:
        """Close the connections of the running loop."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()

    @contextlib.asynccontextmanager
    async def _begin(
        self, charges: Sequence[RateCharge]
    ) -> AsyncIterator[tuple[psycopg.AsyncConnection[Any], list[_Window]]]:
        """Hold the windows of some charges, each as it is now, until the block has ended."""
        values = {
            "tenant": self._target.tenant,
            "names": [charge.key for charge in charges],
            "lengths": [charge.rule.window_seconds for charge in charges],
        }
        try:
            pool = await self._open()
            async with pool.connection() as connection, connection.transaction():
                await connection.execute(
                    "SELECT set_config('holdfast.tenant', %s, true)", (self._target.tenant,)
                )
                await connection.execute(_LOCK, values)
                [now_ms] = await (await connection.execute(_NOW)).fetchone() or (0,)
                windows = [_Window(charge, now_ms) for charge in charges]
                by_place = {(one.name, one.length_s): one for one in windows}
                found = await connection.execute(_READ, values)
                for name, length, slot, amount in await found.fetchall():
                    by_place[name, length].take(slot, amount)
                yield connection, windows
        except (psycopg.Error, psycopg_pool.PoolTimeout) as error:
            said = str(error).strip().splitlines()[:1]
            raise RateStoreFailed(detail=said[0] if said else type(error).__name__) from error

    async def _open(self) -> _Pool:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            pool = self._pools[loop] = psycopg_pool.AsyncConnectionPool(
                self._target.conninfo,
                kwargs={"autocommit": True, **self._target.options},
                min_size=0,
                max_size=_MOST_CONNECTIONS,
                timeout=_PATIENCE_S,
                open=False,
                name="holdfast-rates",
            )
            await pool.open()
        return pool

    async def _add(
        self,
        connection: psycopg.AsyncConnection[Any],
        window: _Window,
        slot: int,
        amount: int,
    ) -> None:
        """Put a change into the transaction, and leave out what has ended."""
        place = (self._target.tenant, window.name, window.length_s)
        if window.ended:
            await connection.execute(_FORGET, (*place, window.ended))
        await connection.execute(_ADD, (*place, slot, amount))


__all__ = ["PostgresRateStore"]
