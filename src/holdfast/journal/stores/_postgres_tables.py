"""Events that are already stored in Postgres: read, put back, folded into rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import psycopg

from holdfast.errors import StorageError
from holdfast.journal.envelope import Event
from holdfast.journal.store import BLOB_THRESHOLD
from holdfast.journal.stores._postgres_append import BLOB, INLINE, REDACTED
from holdfast.journal.stores._postgres_connections import Connection
from holdfast.journal.stores._postgres_rows import Changes, PostgresTables

EVENTS = """
SELECT e.seq, s.session_id, e.session_seq, e.kind, e.version, e.time, e.run_id, e.agent_path,
       e.correlation_id, e.causation_id, e.epoch, e.digest, e.hash, e.placement,
       coalesce(e.payload, (SELECT data FROM holdfast.blobs b
                            WHERE b.tenant = e.tenant AND b.digest = e.digest)), e.stream
FROM holdfast.events e JOIN holdfast.streams s USING (stream)
"""
_CHUNK = 1_000
_LOCK = 0x686F6C65
_INSERT = """
INSERT INTO holdfast.events (tenant, seq, stream, session_seq, kind, version, time, run_id,
    agent_path, correlation_id, causation_id, epoch, digest, hash, placement, payload, place)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""


def read_event(row: Sequence[Any]) -> Event:
    """Return the event in a row of `EVENTS`."""
    return Event(
        seq=row[0],
        session_id=row[1],
        session_seq=row[2],
        kind=row[3],
        version=row[4],
        time=row[5],
        run_id=row[6],
        agent_path=row[7],
        correlation_id=row[8],
        causation_id=row[9],
        epoch=row[10],
        payload_digest=row[11].hex(),
        hash=row[12].hex(),
        is_redacted=row[13] == REDACTED,
        # A blob that is gone reads as empty; `audit verify` then names the event.
        payload=row[14] or b"",
    )


async def insert_restored(
    connection: Connection, tenant: str, events: Sequence[Event], *, keeps_numbers: bool
) -> int:
    """Store a whole session, under new numbers unless it keeps its own; returns its short one."""
    last = events[-1]
    cursor = await connection.execute(
        "INSERT INTO holdfast.streams (tenant, session_id, session_seq, hash, epoch) "
        "VALUES (%s, %s, %s, %s, %s) RETURNING stream",
        (
            tenant,
            last.session_id,
            last.session_seq,
            bytes.fromhex(last.hash),
            max(event.epoch for event in events),
        ),
    )
    found = await cursor.fetchone()
    assert found is not None
    counting = "greatest(c.last, excluded.last)" if keeps_numbers else "c.last + excluded.last"
    cursor = await connection.execute(
        "INSERT INTO holdfast.counters AS c (tenant, last) VALUES (%s, %s) "
        f"ON CONFLICT (tenant) DO UPDATE SET last = {counting} RETURNING last",
        (tenant, last.seq if keeps_numbers else len(events)),
    )
    numbered = await cursor.fetchone()
    assert numbered is not None
    first = numbered[0] - len(events) + 1
    seqs = [event.seq if keeps_numbers else first + at for at, event in enumerate(events)]
    async with connection.cursor() as inserting:
        large = [e for e in events if len(e.payload) > BLOB_THRESHOLD and not e.is_redacted]
        await inserting.executemany(
            "INSERT INTO holdfast.blobs (tenant, digest, data) VALUES (%s, %s, %s) "
            "ON CONFLICT DO NOTHING",
            [(tenant, bytes.fromhex(event.payload_digest), event.payload) for event in large],
        )
        await inserting.executemany(
            _INSERT,
            [_list_row(tenant, found[0], e, seq) for e, seq in zip(events, seqs, strict=True)],
        )
    return int(found[0])


def _list_row(tenant: str, stream: int, event: Event, seq: int) -> tuple[Any, ...]:
    is_large = len(event.payload) > BLOB_THRESHOLD and not event.is_redacted
    return (
        tenant,
        seq,
        stream,
        event.session_seq,
        event.kind,
        event.version,
        event.time,
        event.run_id,
        event.agent_path,
        event.correlation_id,
        event.causation_id,
        event.epoch,
        bytes.fromhex(event.payload_digest),
        bytes.fromhex(event.hash),
        REDACTED if event.is_redacted else BLOB if is_large else INLINE,
        None if is_large else event.payload,
        int(event.hash[:8], 16) + seq,
    )


async def fold_session(
    connection: Connection, tables: PostgresTables, tenant: str, stream: int
) -> None:
    """Make all rows of one session anew, from its log."""
    for table in tables.tables.values():
        await connection.execute(f"DELETE FROM {table.name} WHERE stream = %s", (stream,))
    rows: Changes = {}
    after = 0
    statement = (
        f"{EVENTS} WHERE e.stream = %s AND e.session_seq > %s ORDER BY e.session_seq LIMIT {_CHUNK}"
    )
    while found := await (await connection.execute(statement, (stream, after))).fetchall():
        facts = [read_event(row) for row in found]
        after = facts[-1].session_seq
        rows.update(tables.fold([(e, e.decode()) for e in facts if tables.folds(e.kind)], rows))
    await write_rows(connection, tables, tenant, stream, rows)


async def write_rows(
    connection: Connection, tables: PostgresTables, tenant: str, stream: int, rows: Changes
) -> None:
    """Store rows of one session that has none."""
    for name, table in tables.tables.items():
        values = table.list_values(
            (stream, key, row) for (of, key), row in rows.items() if of == name and row is not None
        )
        if not values[0]:
            continue
        columns = "".join(f", c_{column}" for column in table.types)
        marks = ", ".join(["%s"] * (4 + len(table.types)))
        async with connection.cursor() as cursor:
            await cursor.executemany(
                (f"INSERT INTO {table.name} (tenant, stream, key, data{columns}) VALUES ({marks})"),
                [(tenant, *row) for row in zip(*values, strict=True)],
            )


async def rebuild_tenant(
    connection: Connection,
    tables: PostgresTables,
    tenant: str,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> int:
    """Make all rows of a tenant anew; no process appends meanwhile."""
    # First the streams, which every append changes: what is at work ends, and nothing else begins.
    await connection.execute("LOCK TABLE holdfast.streams IN EXCLUSIVE MODE")
    cursor = await connection.execute(
        "SELECT stream, session_seq FROM holdfast.streams WHERE tenant = %s ORDER BY stream",
        (tenant,),
    )
    streams = await cursor.fetchall()
    cursor = await connection.execute(
        "SELECT count(*) FROM holdfast.events WHERE tenant = %s", (tenant,)
    )
    counted = await cursor.fetchone()
    assert counted is not None
    done, total = 0, int(counted[0])
    for stream, count in streams:
        await fold_session(connection, tables, tenant, stream)
        done += count
        progress(done, total)
    return total


async def erase_tenant(connection: Connection, tenant: str) -> None:
    """Remove all that is kept of a tenant, its wake-ups too, in the transaction that is open."""
    found = await connection.execute(
        "SELECT c.oid::regclass::text FROM pg_catalog.pg_class c "
        "JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant' "
        "WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind = 'r' "
        "AND NOT a.attisdropped"
    )
    for (name,) in await found.fetchall():
        await connection.execute(f"DELETE FROM {name} WHERE tenant = %s", (tenant,))
    await connection.execute(
        "DELETE FROM holdfast_jobs.procrastinate_jobs WHERE split_part(queue_name, '/', 2) = %s",
        (tenant,),
    )


async def read_table_versions(connection: Connection) -> dict[str, int]:
    """Return which projection tables there are, and in which version."""
    cursor = await connection.execute("SELECT name, version FROM holdfast.projections")
    return dict(msgspec.convert(await cursor.fetchall(), list[tuple[str, int]]))


async def prepare_tables(connection: Connection, tables: PostgresTables, where: str) -> None:
    """Build tables that are missing or older than their declarations, for all tenants.

    Raises:
        SchemaTooNew: a newer Holdfast built a table; it is left alone.
        StorageError: this role may not build them.
    """
    # A look first: a store that is up to date opens also while another process writes.
    if not tables.check_versions(await read_table_versions(connection)):
        return
    try:
        await _build_tables(connection, tables)
    except psycopg.errors.InsufficientPrivilege as error:
        raise StorageError(
            path=where,
            detail="its tables have to be made or changed, and this role may not: "
            "`holdfast storage migrate` with the address of its owner does it",
        ) from error


async def _build_tables(connection: Connection, tables: PostgresTables) -> None:
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        found = await read_table_versions(connection)
        if not tables.check_versions(found):
            return
        await connection.execute("LOCK TABLE holdfast.streams IN EXCLUSIVE MODE")
        outdated = [one for one in tables.projections if found.get(one.name) != one.version]
        for projection in outdated:
            if projection.name in found:
                old = f"holdfast.p_{projection.name}_v{found[projection.name]}"
                await connection.execute(f"DROP TABLE {old}")
            for statement in tables.tables[projection.name].list_creation():
                await connection.execute(statement)
            await connection.execute(
                "INSERT INTO holdfast.projections (name, version) VALUES (%s, %s) "
                "ON CONFLICT (name) DO UPDATE SET version = excluded.version",
                (projection.name, projection.version),
            )
        await _fill(connection, PostgresTables(outdated))


async def _fill(connection: Connection, tables: PostgresTables) -> None:
    # The owner may see for once which tenants there are; no other process does before the commit.
    await connection.execute("ALTER TABLE holdfast.counters NO FORCE ROW LEVEL SECURITY")
    cursor = await connection.execute("SELECT tenant FROM holdfast.counters")
    await connection.execute("ALTER TABLE holdfast.counters FORCE ROW LEVEL SECURITY")
    for (tenant,) in await cursor.fetchall():
        await connection.execute("SELECT set_config('holdfast.tenant', %s, true)", (tenant,))
        await rebuild_tenant(connection, tables, tenant)
