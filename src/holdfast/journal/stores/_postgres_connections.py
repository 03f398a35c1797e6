"""Connections of one process to Postgres: few, bounded, and made anew when they break.

One connection writes, one listens, a small pool reads, and the thread that renews leases has its
own. Every statement runs in a transaction that names its tenant (`SET LOCAL`), sent in one
network round trip, so that all of it works behind PgBouncer in transaction mode; only the
listener needs a connection of its own, and is asked every second beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any, LiteralString, Protocol, TypeAlias
from urllib.parse import SplitResult, parse_qsl, urlencode, urlunsplit

import msgspec
import psycopg
import psycopg_pool

from holdfast.errors import (
    HoldfastError,
    SchemaTooNew,
    StorageError,
    StorageFull,
    StorageReadOnly,
    StorageUnavailable,
    UsageError,
)

Connection: TypeAlias = psycopg.AsyncConnection[tuple[Any, ...]]

DEFAULT_TENANT = "default"
_OWN = {"holdfast_tenant", "holdfast_readers", "holdfast_pooler"}
_MOST_READERS = 4
# As a directory, a queue and a setting of a transaction take it.
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
# A server whose machine is gone answers nothing at all: that is noticed within ten seconds.
_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 4,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
_RECONNECT_S = 30.0
_REFUSALS = ("authentication", "does not exist", "not permitted", "no password")
_LONGEST_PAUSE_S = 1.0
_IN_TENANT = "SELECT set_config('holdfast.tenant', %s, true)"
# A client that stands still in the midst of a transaction must not hold its locks for ever.
_LIMITS = "SET LOCAL idle_in_transaction_session_timeout = '15s'"


class PostgresTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Which database, and in whose name."""

    conninfo: str
    shown: str
    """The address without what is secret in it."""
    tenant: str
    readers: int = _MOST_READERS
    is_pooled: bool = False
    """A pooler in transaction mode lies between: nothing may be left on a connection."""

    @property
    def is_shared(self) -> bool:
        """Whether the address names a tenant, beside which the database may hold others."""
        return self.tenant != DEFAULT_TENANT

    @property
    def options(self) -> dict[str, Any]:
        """What every connection of psycopg is opened with."""
        # A statement that a connection has prepared is unknown on the next one of the pooler.
        return {"prepare_threshold": None if self.is_pooled else 5}


def parse_postgres_target(address: SplitResult) -> PostgresTarget:
    """Return what an address names.

    Raises:
        UsageError: something in it means nothing.
    """
    given = parse_qsl(address.query, keep_blank_values=True)
    own = {name: value for name, value in given if name in _OWN}
    rest = [(name, value) for name, value in given if name not in _OWN]
    url = urlunsplit(("postgresql", address.netloc, address.path, urlencode(rest), ""))
    try:
        known = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error:
        raise UsageError(
            detail="An address of Postgres is postgresql://USER:PASSWORD@HOST:PORT/DATABASE."
        ) from None
    tenant = own.get("holdfast_tenant", DEFAULT_TENANT)
    readers = own.get("holdfast_readers", str(_MOST_READERS))
    pooler = own.get("holdfast_pooler", "no")
    if not _TENANT.fullmatch(tenant):
        raise UsageError(
            detail="holdfast_tenant names a tenant in at most 64 letters, digits, `.`, `_`, `-`."
        )
    if pooler not in ("yes", "no"):
        raise UsageError(detail="holdfast_pooler is yes or no.")
    if not readers.isdecimal() or not 1 <= int(readers) <= 100:
        raise UsageError(detail="holdfast_readers is a number from 1 to 100.")
    host, name = known.get("host") or "localhost", known.get("dbname") or ""
    port = f":{known['port']}" if known.get("port") else ""
    made = psycopg.conninfo.make_conninfo(url, **{**_DEFAULTS, **known})
    return PostgresTarget(
        conninfo=made,
        shown=f"postgresql://{host}{port}/{name}",
        tenant=tenant,
        readers=int(readers),
        is_pooled=pooler == "yes",
    )


def translate(error: psycopg.Error, where: str) -> HoldfastError:
    """Return the error of ours that fits; the cause stays attached to it."""
    found = _match(error, where)
    found.__cause__ = error
    return found


def _match(error: psycopg.Error, where: str) -> HoldfastError:
    code, detail = error.sqlstate or "", str(error).strip().splitlines()[:1]
    said = detail[0] if detail else type(error).__name__
    if is_lost(error):
        return StorageUnavailable(path=where, detail=said)
    if code == "53100":
        return StorageFull(path=where)
    if code == "25006":
        return StorageReadOnly(path=where, detail=said)
    if code == "42P01" and ".p_" in said:
        return SchemaTooNew(what=f"a table of {where}", found=2, known=1)
    if code == "54000":
        return UsageError(detail=f"A key or an indexed value is too long for {where}: {said}")
    return StorageError(path=where, detail=said)


def is_lost(error: psycopg.Error) -> bool:
    """Say whether the server is gone or going; what was under way may or may not be stored.

    Connections that broke have no state; 08 is a lost connection, 57P0x a server that shuts
    down or starts, 53300 one without a free connection, 25P03 a transaction that idled too long.
    """
    code = error.sqlstate
    if code is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return code.startswith("08") or code in ("57P01", "57P02", "57P03", "53300", "25P03", "25P04")


def may_repeat(error: psycopg.Error) -> bool:
    """Say whether a transaction failed because of others, and left nothing."""
    return error.sqlstate in ("40001", "40P01", "55P03")


class Connections:
    """What one store has open."""

    def __init__(self, target: PostgresTarget) -> None:
        """Connect to nothing yet."""
        self.target = target
        self._pool: psycopg_pool.AsyncConnectionPool[Connection] | None = None
        self._writer: Connection | None = None

    @property
    def is_open(self) -> bool:
        """Whether `open` was called, and not `close` since."""
        return self._pool is not None

    def fail_closed(self) -> StorageError:
        """Return the error for work on a store that is not open."""
        return StorageError(path=self.target.shown, detail="the store is not open")

    async def open(self) -> None:
        """Be ready to read; connections are made when they are needed."""
        pool: psycopg_pool.AsyncConnectionPool[Connection] = psycopg_pool.AsyncConnectionPool(
            self.target.conninfo,
            kwargs={"autocommit": True, **self.target.options},
            min_size=0,
            max_size=self.target.readers,
            timeout=_RECONNECT_S,
            max_idle=60,
            open=False,
            name="holdfast",
        )
        await pool.open()
        self._pool = pool

    async def close(self) -> None:
        """Close all of them."""
        pool, self._pool = self._pool, None
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.close()
        if pool is not None:
            await pool.close()

    async def connect(self) -> Connection:
        """Return a connection of the caller's own; waits a while for a server that is away.

        Raises:
            StorageUnavailable: it does not come back in time.
            StorageError: it refuses.
        """
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + _RECONNECT_S, 0.05
        while True:
            try:
                return await psycopg.AsyncConnection.connect(
                    self.target.conninfo, autocommit=True, **self.target.options
                )
            except psycopg.Error as error:
                # What is wrong with a name or a password does not mend itself.
                is_refusal = any(text in str(error) for text in _REFUSALS)
                if is_refusal or not self.is_open or loop.time() + pause > deadline:
                    raise translate(error, self.target.shown) from error
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    async def open_writer(self) -> Connection:
        """Return the connection that writes, a new one if it broke."""
        if self._writer is None or self._writer.closed:
            self._writer = await self.connect()
        return self._writer

    async def drop_writer(self) -> None:
        """Close the connection that writes; the next one who needs it gets another."""
        writer, self._writer = self._writer, None
        assert writer is not None
        await writer.close()

    async def read(self, statement: LiteralString, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return what a statement that only reads finds; once more if the connection broke.

        Raises:
            StorageError: the server refuses.
            StorageUnavailable: it cannot be reached.
        """
        for _ in range(2):
            with contextlib.suppress(StorageUnavailable):
                return await self.write(statement, values)
        return await self.write(statement, values)

    @contextlib.asynccontextmanager
    async def begin_transaction(self, *, is_one_moment: bool = False) -> AsyncIterator[Connection]:
        """PendingAppend on a connection of one's own in one transaction of several statements.

        If asked to, all that it reads is of one moment, whatever is written meanwhile.

        Nothing is repeated: if the connection breaks at the end, what was written may be there.
        """
        async with self._open_pooled() as connection, connection.transaction():
            if is_one_moment:
                await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            await connection.execute(_LIMITS)
            await connection.execute(_IN_TENANT, (self.target.tenant,))
            yield connection

    @contextlib.asynccontextmanager
    async def begin_separately(self) -> AsyncIterator[Connection]:
        """Hold a transaction on a connection of its own, while others go on with their work."""
        if not self.is_open:
            raise self.fail_closed()
        connection = await self.connect()
        try:
            async with connection, connection.transaction():
                await connection.execute("SET LOCAL idle_in_transaction_session_timeout = '60s'")
                await connection.execute(_IN_TENANT, (self.target.tenant,))
                yield connection
        except psycopg.Error as error:
            raise translate(error, self.target.shown) from error

    async def write(self, statement: LiteralString, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Run one statement that writes, once: it may be stored although this raises.

        Raises:
            StorageError: the server refuses.
            StorageUnavailable: it cannot be reached.
        """
        async with self._open_pooled() as connection:
            return await run_one(connection, self.target.tenant, statement, values)

    @contextlib.asynccontextmanager
    async def _open_pooled(self) -> AsyncIterator[Connection]:
        """Have a connection of the pool for a while."""
        if self._pool is None:
            raise self.fail_closed()
        try:
            async with self._pool.connection() as connection:
                yield connection
        except psycopg_pool.PoolTimeout as error:
            raise StorageUnavailable(
                path=self.target.shown, detail="no connection became free in time"
            ) from error
        except psycopg.Error as error:
            raise translate(error, self.target.shown) from error


class Runner(Protocol):
    """How a statement is run on a connection, in the name of a tenant."""

    async def __call__(
        self, connection: Connection, tenant: str, statement: LiteralString, values: Sequence[Any]
    ) -> list[tuple[Any, ...]]:
        """Return what it finds."""
        ...


async def run_within(
    connection: Connection, tenant: str, statement: LiteralString, values: Sequence[Any]
) -> list[tuple[Any, ...]]:
    """Run one statement in the transaction that is open, which has named its tenant."""
    return await (await connection.execute(statement, values)).fetchall()


async def run_one(
    connection: Connection, tenant: str, statement: LiteralString, values: Sequence[Any]
) -> list[tuple[Any, ...]]:
    """Run one statement in a transaction in the name of a tenant, in one round trip."""
    try:
        async with connection.pipeline():
            await connection.execute("BEGIN")
            await connection.execute(_IN_TENANT, (tenant,))
            cursor = await connection.execute(statement, values)
            await connection.execute("COMMIT")
        return await cursor.fetchall()
    except psycopg.Error:
        if not connection.closed and connection.info.transaction_status:
            await connection.rollback()
        raise
    except BaseException:
        # Cancelled in its midst: it is not known where the connection stands.
        await connection.close()
        raise
