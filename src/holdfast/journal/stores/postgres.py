"""The journal in Postgres: many machines, one log.

The same promises as every store. Leases are judged by the clock of the server, which all writers
share; nothing proves the death of a process on another machine, so what a dead one held is free
when its time has run out. `durability` changes nothing here: what is acknowledged is as safe as
the server's `synchronous_commit` makes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import SplitResult, parse_qsl, urlencode, urlunsplit

import msgspec
import psycopg

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import AlreadyExists, LeaseLost, NotFound, UsageError
from holdfast.journal.envelope import GENESIS, SYSTEM_SESSION, Draft, Event
from holdfast.journal.projection import AnyProjection, KeyedRow, RowQuery, check_query
from holdfast.journal.store import AppendRequest, Finding, Head, MendReport, check_restored
from holdfast.journal.stores._postgres_append import CHANNEL, REDACTED, PostgresAppender, is_name
from holdfast.journal.stores._postgres_connections import (
    Connection,
    Connections,
    PostgresTarget,
    parse_postgres_target,
    translate,
)
from holdfast.journal.stores._postgres_examination import examine
from holdfast.journal.stores._postgres_feed import FeedWatch
from holdfast.journal.stores._postgres_roles import grant_role, require_held_role
from holdfast.journal.stores._postgres_rows import PostgresTables
from holdfast.journal.stores._postgres_schema import (
    list_migrations,
    migrate,
    read_version,
    require_schema,
)
from holdfast.journal.stores._postgres_tables import (
    EVENTS,
    erase_tenant,
    fold_session,
    insert_restored,
    prepare_tables,
    read_event,
    read_table_versions,
    rebuild_tenant,
)
from holdfast.journal.stores.registry import RoleKind, SchemaStatus, StoreKind, StoreOptions

Row = TypeVar("Row", bound=msgspec.Struct)
_LARGEST_INT = 2**63 - 1
_CHUNK = 500
_TENANT = "holdfast_tenant"
_HEADS = """
SELECT session_id, session_seq, hash, epoch, owner,
       owner <> '' AND lease_until > holdfast.lease_clock(), unproved_epoch
FROM holdfast.streams WHERE tenant = %s
"""
_ACQUIRE = """
UPDATE holdfast.streams SET
    unproved_epoch = CASE WHEN owner <> '' THEN epoch ELSE unproved_epoch END,
    epoch = epoch + 1, owner = %s,
    lease_until = holdfast.lease_clock() + make_interval(secs => %s)
WHERE tenant = %s AND session_id = %s
    AND (owner = '' OR lease_until <= holdfast.lease_clock())
RETURNING session_id, session_seq, hash, epoch, owner, true, unproved_epoch
"""
_RELEASE = """
WITH freed AS (
    UPDATE holdfast.streams SET owner = '', lease_until = '-infinity'
    WHERE tenant = %s AND session_id = %s AND epoch = %s AND owner <> '' RETURNING 1
) SELECT pg_notify(%s, '') FROM freed
"""
_RENEW = """
WITH prolonged AS (
    UPDATE holdfast.streams s SET
        lease_until = holdfast.lease_clock() + make_interval(secs => %(ttl)s)
    FROM unnest(%(sessions)s::text[], %(epochs)s::bigint[]) AS i(session_id, epoch)
    WHERE s.tenant = %(tenant)s AND s.session_id = i.session_id AND s.epoch = i.epoch
        AND s.owner = %(owner)s
    RETURNING s.session_id
), present AS (
    INSERT INTO holdfast.owners (tenant, owner, until)
    VALUES (%(tenant)s, %(owner)s,
            holdfast.lease_clock() + make_interval(secs => %(ttl)s))
    ON CONFLICT (tenant, owner) DO UPDATE SET until = excluded.until
) SELECT session_id FROM prolonged
"""
_LEAVE = """
WITH freed AS (
    UPDATE holdfast.streams s SET owner = '', lease_until = '-infinity'
    FROM unnest(%(sessions)s::text[], %(epochs)s::bigint[]) AS i(session_id, epoch)
    WHERE s.tenant = %(tenant)s AND s.session_id = i.session_id AND s.epoch = i.epoch
        AND s.owner = %(owner)s
    RETURNING s.session_id
), absent AS (
    DELETE FROM holdfast.owners WHERE tenant = %(tenant)s
        AND (owner = %(owner)s OR until < holdfast.lease_clock() - interval '1 day')
), told AS MATERIALIZED (SELECT pg_notify(%(channel)s, ''))
SELECT session_id FROM freed LEFT JOIN told ON true
"""


class PostgresStore:
    """Keeps everything in one database; any number of processes work on it."""

    def __init__(
        self,
        target: PostgresTarget,
        *,
        projections: Sequence[AnyProjection] = (),
        clock: Clock = SYSTEM,
    ) -> None:
        """Prepare; touches nothing before `open`."""
        self.target = target
        self._clock = clock
        self._tables = PostgresTables(projections)
        self._connections = Connections(target)
        self._appender = PostgresAppender(self._connections, self._tables)
        self._watch = FeedWatch(self._connections)
        self._renewing: psycopg.Connection[tuple[Any, ...]] | None = None
        self._renewal = threading.Lock()
        self._alone = asyncio.Lock()

    async def open(self) -> None:
        """Connect; set up an empty database, and build tables that are missing or old.

        Raises:
            SchemaTooNew: a newer Holdfast has changed the database.
            StorageError: its schema is older, or this role may not do what is needed.
            StorageUnavailable: it cannot be reached.
        """
        if self._connections.is_open:
            return
        await self._connections.open()
        try:
            connection = await self._connections.connect()
            async with connection:
                await require_schema(connection, self.target.shown)
                await prepare_tables(connection, self._tables, self.target.shown)
                if self.target.is_shared:
                    await require_held_role(connection, self.target.shown)
        except psycopg.Error as error:
            await self._connections.close()
            raise translate(error, self.target.shown) from error
        except BaseException:
            await self._connections.close()
            raise
        self._watch.start()

    async def close(self) -> None:
        """Finish what was accepted, then give the connections back."""
        await self._appender.finish()
        await self._watch.stop()
        await self._connections.close()
        self._appender.forget()
        with self._renewal:
            renewing, self._renewing = self._renewing, None
            if renewing is not None:
                renewing.close()

    async def append(self, request: AppendRequest) -> tuple[Event, ...]:
        """Store a batch and its rows; see `Store.append`."""
        events = await self._appender.append(request)
        self._watch.note(events[-1].seq)
        return events

    async def restore(self, events: Sequence[Event], *, keeps_numbers: bool = False) -> None:
        """Store a whole session as it was elsewhere; see `Store.restore`."""
        session_id = check_restored(events)
        async with self._connections.begin_transaction() as connection:
            try:
                stream = await insert_restored(
                    connection, self.target.tenant, events, keeps_numbers=keeps_numbers
                )
            except psycopg.errors.UniqueViolation as error:
                raise AlreadyExists(kind="session", value=session_id) from error
            await fold_session(connection, self._tables, self.target.tenant, stream)
            await connection.execute("SELECT pg_notify(%s, '')", (CHANNEL,))
        self._appender.drop(session_id)

    async def read(
        self,
        session_id: str,
        *,
        after: int = 0,
        limit: int = 1000,
        kinds: frozenset[str] | None = None,
        seqs: Sequence[int] | None = None,
    ) -> list[Event]:
        """Return events of one session in order; see `Store.read`."""
        if not is_name(session_id):
            return []
        statement = (
            f"{EVENTS} WHERE e.stream = "
            "(SELECT stream FROM holdfast.streams WHERE tenant = %s AND session_id = %s)"
        )
        values: list[Any] = [self.target.tenant, session_id]
        if seqs is None:
            statement += " AND e.session_seq > %s"
            values.append(min(after, _LARGEST_INT))
        else:
            statement += " AND e.session_seq = ANY(%s::bigint[])"
            values.append(list(seqs))
        if kinds is not None:
            statement += " AND e.kind = ANY(%s::text[])"
            values.append(sorted(kinds))
        statement += " ORDER BY e.session_seq LIMIT %s"
        rows = await self._connections.read(statement, [*values, max(limit, 0)])
        return [read_event(row) for row in rows]

    async def feed(self, *, after: int, limit: int = 1000) -> list[Event]:
        """Return events of all sessions in the order of `seq`; never skips a later commit."""
        statement = f"{EVENTS} WHERE e.tenant = %s AND e.seq > %s ORDER BY e.seq LIMIT %s"
        values = [self.target.tenant, min(after, _LARGEST_INT), max(limit, 0)]
        return [read_event(row) for row in await self._connections.read(statement, values)]

    async def read_last_seq(self) -> int:
        """Return the highest `seq`, 0 when there is none."""
        found = await self._connections.read(
            "SELECT last FROM holdfast.counters WHERE tenant = %s", [self.target.tenant]
        )
        return int(found[0][0]) if found else 0

    async def heads(self, session_id: str | None = None) -> list[Head]:
        """Return the ends of all chains, or of one."""
        if session_id is None:
            rows = await self._connections.read(_HEADS, [self.target.tenant])
        elif is_name(session_id):
            one = f"{_HEADS} AND session_id = %s"
            rows = await self._connections.read(one, [self.target.tenant, session_id])
        else:
            rows = []
        return [_make_head(row) for row in rows]

    async def rows(self, query: RowQuery[Row]) -> list[KeyedRow[Row]]:
        """Return the rows of a projection that a query describes."""
        check_query(query)
        if not is_name(query.session_id):
            return []
        is_sieved = any(condition.operator == "contains" for condition in query.where)
        edge = self._tables.encode_edge(query)
        found: list[KeyedRow[Row]] = []
        while True:
            wanted = _CHUNK if is_sieved else query.limit
            statement, values = self._tables.build_query(query, self.target.tenant, edge, wanted)
            rows = await self._connections.read(statement, values)
            for row in rows:
                keyed = self._tables.decode_row(query, row)
                if keyed is not None:
                    found.append(keyed)
            if len(found) >= query.limit or len(rows) < wanted or not is_sieved:
                return found[: query.limit]
            edge = (rows[-1][3], rows[-1][1])

    async def acquire(self, session_id: str, owner: str, ttl_s: float) -> Head | None:
        """Take the session's lease with the next epoch, or return `None` when it is held."""
        if not is_name(session_id):
            raise NotFound(kind="session", value=session_id)
        values = (owner, float(ttl_s), self.target.tenant, session_id)
        found = await self._connections.write(_ACQUIRE, values)
        self._appender.drop(session_id)
        if found:
            return _make_head(found[0])
        if not await self.heads(session_id):
            raise NotFound(kind="session", value=session_id)
        return None

    def renew(self, held: dict[str, int], owner: str, ttl_s: float) -> set[str]:
        """Prolong leases from a thread, on a connection of its own."""
        values = {
            "tenant": self.target.tenant,
            "owner": owner,
            "ttl": float(ttl_s),
            "sessions": list(held),
            "epochs": list(held.values()),
            "channel": CHANNEL,
        }
        statement = _RENEW if ttl_s > 0 else _LEAVE
        with self._renewal:
            with contextlib.suppress(psycopg.Error):
                return set(held) - self._renew_once(statement, values)
            self._drop_renewing()
            try:
                return set(held) - self._renew_once(statement, values)
            except psycopg.Error as error:
                self._drop_renewing()
                raise translate(error, self.target.shown) from error

    def _renew_once(self, statement: Any, values: dict[str, Any]) -> set[str]:  # noqa: ANN401
        if self._renewing is None or self._renewing.closed:
            # Who cannot be reached within a third of the lease is tried anew.
            self._renewing = psycopg.Connection.connect(
                self.target.conninfo,
                connect_timeout=max(2, int(values["ttl"] / 3)),
                **self.target.options,
            )
        with self._renewing.transaction():
            self._renewing.execute(
                "SELECT set_config('holdfast.tenant', %s, true)", (self.target.tenant,)
            )
            return {row[0] for row in self._renewing.execute(statement, values).fetchall()}

    def _drop_renewing(self) -> None:
        renewing, self._renewing = self._renewing, None
        if renewing is not None:
            renewing.close()

    async def is_alive(self, owner: str) -> bool:
        """Say whether an owner has renewed itself in time, by the clock of the server."""
        found = await self._connections.read(
            "SELECT 1 FROM holdfast.owners WHERE tenant = %s AND owner = %s "
            "AND until > holdfast.lease_clock()",
            [self.target.tenant, owner],
        )
        return bool(found)

    async def release(self, session_id: str, epoch: int) -> None:
        """Give a lease back; one that is already lost is left alone."""
        if is_name(session_id):
            # What was accepted before is stored before.
            await self._appender.finish()
            values = (self.target.tenant, session_id, epoch, CHANNEL)
            await self._connections.write(_RELEASE, values)
            self._appender.drop(session_id)
            self._watch.wake()

    async def redact(self, session_id: str, reduced: dict[int, bytes], note: Draft) -> None:
        """Replace payloads by their redacted form and append the note that says so."""
        request = AppendRequest(session_id=session_id, drafts=(note,), epoch=None)
        async with self._connections.begin_transaction() as connection:
            stream, _ = await _lock(connection, self.target.tenant, session_id)
            await self._appender.append_within(connection, request)
            await connection.execute(
                "UPDATE holdfast.events e SET payload = i.data, placement = %s "
                "FROM unnest(%s::bigint[], %s::bytea[]) AS i(number, data) "
                "WHERE e.stream = %s AND e.session_seq = i.number",
                (REDACTED, list(reduced), list(reduced.values()), stream),
            )
            await fold_session(connection, self._tables, self.target.tenant, stream)
        self._appender.drop(session_id)
        self._watch.wake()

    async def delete(self, session_id: str, note: Draft, epoch: int) -> None:
        """Remove a session held under `epoch`; the note goes to the system chain."""
        tenant = self.target.tenant
        request = AppendRequest(session_id=SYSTEM_SESSION, drafts=(note,), epoch=None)
        async with self._connections.begin_transaction() as connection:
            stream, current = await _lock(connection, tenant, session_id)
            if current != epoch:
                raise LeaseLost(session_id=session_id, current=current, held=epoch)
            await self._appender.append_within(connection, request)
            for table in self._tables.tables.values():
                clearing = f"DELETE FROM {table.name} WHERE stream = %s"
                await connection.execute(clearing, (stream,))
            await connection.execute("DELETE FROM holdfast.events WHERE stream = %s", (stream,))
            await connection.execute("DELETE FROM holdfast.streams WHERE stream = %s", (stream,))
        self._appender.drop(session_id)
        self._watch.wake()

    async def rebuild(self, progress: Callable[[int, int], None]) -> int:
        """Make all rows of this tenant anew, in one transaction."""
        async with self._connections.begin_transaction() as connection:
            done = await rebuild_tenant(connection, self._tables, self.target.tenant, progress)
        self._appender.forget()
        return done

    async def examine(self) -> list[Finding]:
        """Return what is wrong with the tables, which follow from the log."""
        async with self._connections.begin_transaction(is_one_moment=True) as connection:
            return await examine(connection, self._tables, self.target.tenant)

    async def mend(self) -> MendReport:
        """Refuse: a damaged server is restored from its backup."""
        raise UsageError(
            detail="A database server is mended with its own tools: restore it from a backup."
        )

    async def collect(self) -> dict[str, int]:
        """Remove blobs that no event refers to."""
        async with self._connections.begin_transaction() as connection:
            # No append can name a blob between the look and the removal.
            await connection.execute(
                "SELECT 1 FROM holdfast.counters WHERE tenant = %s FOR UPDATE",
                (self.target.tenant,),
            )
            cursor = await connection.execute(
                "DELETE FROM holdfast.blobs b WHERE b.tenant = %s AND NOT EXISTS "
                "(SELECT 1 FROM holdfast.events e WHERE e.tenant = b.tenant "
                "AND e.digest = b.digest AND e.placement = 1) RETURNING length(data)",
                (self.target.tenant,),
            )
            sizes = [row[0] for row in await cursor.fetchall()]
        return {"blobs": len(sizes), "bytes": sum(sizes)}

    @contextlib.asynccontextmanager
    async def alone(self, name: str) -> AsyncIterator[None]:
        """Exclude all others who ask for the same name, on any machine, for a short time.

        A process that stands still inside loses it after a minute.
        """
        async with self._alone, self._connections.begin_separately() as connection:
            key = hashlib.sha256(f"{self.target.tenant}\n{name}".encode()).digest()[:8]
            await connection.execute(
                "SELECT pg_advisory_xact_lock(%s)", (int.from_bytes(key, "big", signed=True),)
            )
            yield

    async def changed(self, after: int, timeout_s: float) -> bool:
        """Wait until an event beyond `after` exists, a lease was released, or time is up."""
        if not self._connections.is_open:
            raise self._connections.fail_closed()
        return await self._watch.wait(after, timeout_s)

    async def stats(self) -> dict[str, Any]:
        """Count sessions, events, blobs and bytes of this tenant."""
        tenant = self.target.tenant
        [(sessions, events, inline, blobs, large)] = await self._connections.read(
            "SELECT (SELECT count(*) FROM holdfast.streams WHERE tenant = %s), count(*), "
            "coalesce(sum(length(payload)), 0)::bigint, "
            "(SELECT count(*) FROM holdfast.blobs WHERE tenant = %s), "
            "(SELECT coalesce(sum(length(data)), 0)::bigint FROM holdfast.blobs WHERE tenant = %s) "
            "FROM holdfast.events WHERE tenant = %s",
            [tenant] * 4,
        )
        return {"sessions": sessions, "events": events, "blobs": blobs, "bytes": inline + large}


def _make_head(row: Sequence[Any]) -> Head:
    return Head(
        session_id=row[0],
        session_seq=row[1],
        hash=row[2].hex() if row[2] is not None else GENESIS,
        epoch=row[3],
        owner=row[4],
        is_held=row[5],
        unproved_epoch=row[6],
    )


async def _lock(connection: Connection, tenant: str, session_id: str) -> tuple[int, int]:
    """Return a session's short number and its epoch, and hold its row; it must exist.

    That of the system chain is held too, in the order in which appends take them.
    """
    rows: list[tuple[Any, ...]] = []
    if is_name(session_id):
        cursor = await connection.execute(
            "SELECT stream, epoch, session_id FROM holdfast.streams WHERE tenant = %s "
            "AND session_id = ANY(%s) ORDER BY stream FOR UPDATE",
            (tenant, [session_id, SYSTEM_SESSION]),
        )
        rows = [row for row in await cursor.fetchall() if row[2] == session_id]
    if not rows:
        raise NotFound(kind="session", value=session_id)
    return rows[0][0], rows[0][1]


def _open(address: SplitResult, options: StoreOptions) -> PostgresStore:
    target = parse_postgres_target(address)
    return PostgresStore(target, projections=options.projections, clock=options.clock)


async def _migrate(address: SplitResult, options: StoreOptions, is_dry: bool) -> SchemaStatus:
    target, steps = parse_postgres_target(address), list_migrations()
    tables = PostgresTables(options.projections)
    try:
        async with await psycopg.AsyncConnection.connect(
            target.conninfo, autocommit=True
        ) as connection:
            applied = [] if is_dry else await migrate(connection, target.shown)
            version, _ = await read_version(connection)
            if not is_dry:
                await prepare_tables(connection, tables, target.shown)
            found = await read_table_versions(connection) if version else {}
            tables.check_versions(found)
            old = [one for one in tables.projections if found.get(one.name) != one.version]
    except psycopg.Error as error:
        raise translate(error, target.shown) from error
    pending = [f"{one.version:04}_{one.name}" for one in steps if one.version > version]
    return SchemaStatus(
        store=target.shown,
        version=version,
        known=steps[-1].version,
        applied=tuple(f"{one.version:04}_{one.name}" for one in applied),
        pending=(*pending, *(f"table {one.name} version {one.version}" for one in old)),
    )


async def _grant(address: SplitResult, role: str, kind: RoleKind) -> None:
    target = parse_postgres_target(address)
    try:
        async with await psycopg.AsyncConnection.connect(
            target.conninfo, autocommit=True
        ) as connection:
            await grant_role(connection, role, kind)
    except psycopg.Error as error:
        raise translate(error, target.shown) from error


def _find_tenant_url(address: SplitResult, tenant: str) -> str:
    target = parse_postgres_target(address)
    if tenant == target.tenant:
        raise UsageError(
            detail=f"The tenant {tenant!r} is the one that storage.url itself names: its records "
            "are the operator's."
        )
    rest = [(k, v) for k, v in parse_qsl(address.query, keep_blank_values=True) if k != _TENANT]
    return urlunsplit(address._replace(query=urlencode([*rest, (_TENANT, tenant)])))


async def _erase(address: SplitResult) -> None:
    target = parse_postgres_target(address)
    connections = Connections(target)
    await connections.open()
    try:
        async with connections.begin_transaction() as connection:
            await erase_tenant(connection, target.tenant)
    finally:
        await connections.close()


KIND = StoreKind(
    open=_open, migrate=_migrate, grant=_grant, tenant_url=_find_tenant_url, erase_tenant=_erase
)
"""`postgresql://USER@HOST/DATABASE`: many machines, one log."""
