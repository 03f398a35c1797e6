"""Does every table in Postgres follow from the log?

Nothing is compared by example: all rows are made anew from the log, one session at a time, and
held against those that are stored.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.errors import HoldfastError
from holdfast.journal.envelope import SYSTEM_SESSION
from holdfast.journal.store import Finding
from holdfast.journal.stores._postgres_connections import Connection
from holdfast.journal.stores._postgres_rows import Changes, PostgresTables, Table
from holdfast.journal.stores._postgres_tables import EVENTS, read_event

_MOST_FINDINGS = 1_000
_CHUNK = 1_000
_ENDS = """
SELECT s.session_id, s.session_seq, s.hash, s.epoch,
       l.session_seq, l.hash, (SELECT max(epoch) FROM holdfast.events WHERE stream = s.stream)
FROM holdfast.streams s LEFT JOIN LATERAL (
    SELECT session_seq, hash FROM holdfast.events e WHERE e.stream = s.stream
    ORDER BY session_seq DESC LIMIT 1) l ON true
WHERE s.tenant = %s ORDER BY s.stream
"""
_LOST = """
SELECT count(*) FROM holdfast.events e WHERE e.tenant = %s
    AND NOT EXISTS (SELECT 1 FROM holdfast.streams s WHERE s.stream = e.stream)
"""
_PLACES = """
SELECT s.session_id, e.session_seq, e.seq FROM holdfast.events e
JOIN holdfast.streams s USING (stream)
WHERE e.tenant = %s AND e.place IS DISTINCT FROM e.seq
    + (('x' || lpad(encode(substring(e.hash FROM 1 FOR 4), 'hex'), 16, '0'))::bit(64)::bigint)
ORDER BY e.seq LIMIT %s
"""
_NUMBERS = """
SELECT coalesce(max(e.seq), 0), (SELECT last FROM holdfast.counters WHERE tenant = %(tenant)s)
FROM holdfast.events e WHERE e.tenant = %(tenant)s
"""


async def examine(connection: Connection, tables: PostgresTables, tenant: str) -> list[Finding]:
    """Return what is wrong with a tenant's records besides its chains; [] if nothing is."""
    # One moment of the database, however long this takes and whatever is written meanwhile.
    await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
    findings: list[Finding] = []
    for name, end, hash_, epoch, last, last_hash, highest in await _fetch(
        connection, _ENDS, (tenant,)
    ):
        if last is None:
            findings.append(_find(name, "the session has no events left"))
        elif (end, hash_) != (last, last_hash):
            findings.append(_find(name, "its chain does not end where its row says"))
        elif epoch < highest:
            findings.append(_find(name, "its epoch is lower than that of its events"))
    [(lost,)] = await _fetch(connection, _LOST, (tenant,))
    if lost:
        findings.append(_find("", f"{lost} events belong to no session"))
    for name, number, seq in await _fetch(connection, _PLACES, (tenant, _MOST_FINDINGS)):
        problem = f"its store-wide number is not {seq}: numbers were changed or exchanged"
        findings.append(Finding(session_id=name, session_seq=number, problem=problem))
    [(highest, counted)] = await _fetch(connection, _NUMBERS, {"tenant": tenant})
    if highest > (counted or 0):
        findings.append(_find("", "the counter of events was put back"))
    return findings or await _compare_tables(connection, tables, tenant)


async def _fetch(connection: Connection, statement: str, values: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401
    return await (await connection.execute(statement, values)).fetchall()


async def _compare_tables(
    connection: Connection, tables: PostgresTables, tenant: str
) -> list[Finding]:
    findings: list[Finding] = []
    known = await _fetch(
        connection,
        "SELECT stream, session_id FROM holdfast.streams WHERE tenant = %s ORDER BY stream",
        (tenant,),
    )
    for stream, name in known:
        made = await _fold(connection, tables, stream)
        for table in tables.tables.values():
            for key, problem in await _list_differences(connection, table, stream, made):
                text = f"table {table.projection.name}: the row {key[:80]!r} {problem}"
                findings.append(_find(name, text))
        if len(findings) >= _MOST_FINDINGS:
            return findings[:_MOST_FINDINGS]
    for table in tables.tables.values():
        [(strays,)] = await _fetch(
            connection,
            f"SELECT count(*) FROM {table.name} p WHERE p.tenant = %s AND NOT EXISTS "
            "(SELECT 1 FROM holdfast.streams s WHERE s.stream = p.stream AND s.tenant = p.tenant)",
            (tenant,),
        )
        if strays:
            problem = f"table {table.projection.name}: {strays} rows belong to no session"
            findings.append(_find("", problem))
    return findings


async def _fold(connection: Connection, tables: PostgresTables, stream: int) -> Changes:
    """Return the rows of a session as they follow from its log."""
    rows: Changes = {}
    after = 0
    statement = (
        f"{EVENTS} WHERE e.stream = %s AND e.session_seq > %s ORDER BY e.session_seq LIMIT {_CHUNK}"
    )
    while found := await _fetch(connection, statement, (stream, after)):
        for event in map(read_event, found):
            after = event.session_seq
            if tables.folds(event.kind):
                try:
                    rows.update(tables.fold([(event, event.decode())], rows))
                except HoldfastError:
                    continue  # what cannot be read is found when the chains are checked
    return rows


async def _list_differences(
    connection: Connection, table: Table, stream: int, made: Changes
) -> list[tuple[str, str]]:
    """Return the rows in which a table and the log differ: key, and how."""
    name = table.projection.name
    wanted = {key: row for (of, key), row in made.items() if of == name and row is not None}
    columns = "".join(f", c_{column}" for column in table.types)
    found = []
    for key, data, *values in await _fetch(
        connection, f"SELECT key, data{columns} FROM {table.name} WHERE stream = %s", (stream,)
    ):
        text = key.decode(errors="replace")
        row = wanted.pop(text, None)
        if row is None:
            found.append((text, "does not follow from the log"))
            continue
        try:
            is_same = table.decode(data) == row
        except msgspec.MsgspecError:
            is_same = False
        if not is_same or values != [table.encode(c, getattr(row, c)) for c in table.types]:
            found.append((text, "is not what the log says"))
    return found + [(key, "is missing") for key in wanted]


def _find(session_id: str, problem: str) -> Finding:
    return Finding(session_id=session_id or SYSTEM_SESSION, session_seq=0, problem=problem)
