"""Projection rows in SQLite: one table per projection and version, made from its declaration.

The version is part of the table's name, so that a process that still runs an older version
fails loudly after an upgrade instead of missing rows silently.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from holdfast.errors import SchemaTooNew
from holdfast.journal.envelope import Draft, Event, Payload
from holdfast.journal.projection import (
    AnyProjection,
    Condition,
    KeyedRow,
    RowQuery,
    group_by_kind,
)

Place: TypeAlias = tuple[str, str]
"""The name of a projection and the key of a row, within one session."""
Changes: TypeAlias = dict[Place, Any]
"""Rows as they become; `None` for one that goes."""

Fact: TypeAlias = tuple[Event, Payload]
"""An event and what it says."""

blob = bytearray
"""How bytes are handed to `sqlite3`: it asks any other object (`bytes` too) whether it would
rather be something else, which takes five times as long as this copy."""

_encode = msgspec.json.Encoder().encode
_MOST_KNOWN = 1_000
"""So many rows of a session are remembered, and those that wait."""
_NOT_READ: Any = object()


class SessionRows(msgspec.Struct):
    """Rows of one session as they follow from its log; some wait to be written.

    Those of lazy projections are made right before they are written, all in one go.
    """

    stream: int
    known: Changes = msgspec.field(default_factory=dict)
    waiting: Changes = msgspec.field(default_factory=dict)
    """What the database holds now in the places of rows that are not written yet."""
    unfolded: list[Fact] = msgspec.field(default_factory=list)
    """What lazy projections follow and have not been told of yet, in order.

    Without the bytes of the events: many sessions wait at a time, and what they say is here.
    """

    def forget_all_but(self, key: str) -> None:
        """Forget the rows that are written, but for those under one key."""
        self.known = {place: row for place, row in self.known.items() if place[1] == key}


class RowTables:
    """Reads and writes the rows of a fixed set of projections."""

    def __init__(self, projections: Sequence[AnyProjection]) -> None:
        """Prepare the statements; touches no database."""
        self.projections = tuple(projections)
        self._named = {p.name: p for p in projections}
        lazy = [p for p in projections if p.is_lazy]
        self._all_by_kind = group_by_kind(projections)
        self._lazy_by_kind = group_by_kind(lazy)
        self.lazy_kinds = sorted(self._lazy_by_kind)
        self._eager_by_kind = group_by_kind([p for p in projections if not p.is_lazy])
        self._tables = {p.name: f"p_{p.name}_v{p.version}" for p in projections}
        self._decoders = {p.name: msgspec.json.Decoder(p.row_type) for p in projections}
        self._select = {
            name: f"SELECT data FROM {table} WHERE stream = ? AND key = ?"
            for name, table in self._tables.items()
        }
        self._insert = {p.name: self._insert_sql(p) for p in projections}
        self._update: dict[tuple[str, tuple[str, ...]], str] = {}
        self._one = {
            name: f"SELECT (SELECT data FROM {table} WHERE stream = s.stream AND key = ?), "
            "rows_from FROM streams s WHERE session_id = ?"
            for name, table in self._tables.items()
        }
        self._delete = {
            name: f"DELETE FROM {table} WHERE stream = ? AND key = ?"
            for name, table in self._tables.items()
        }

    def folds(self, kind: str) -> bool:
        """Say whether any projection follows this kind."""
        return kind in self._all_by_kind

    def read_lazily(self, events: Sequence[Event], drafts: Sequence[Draft]) -> list[Fact] | None:
        """Return those of new events of which rows may be told later.

        Returns `None` if one changes a row that is written together with it.
        """
        later = []
        for event, draft in zip(events, drafts, strict=True):
            for projection in self._eager_by_kind.get(event.kind, ()):
                if projection.key(event, draft.value):
                    return None
            if event.kind in self._lazy_by_kind:
                later.append((replace(event, payload=b""), draft.value))
        return later

    def fold(self, connection: sqlite3.Connection, rows: SessionRows, new: Sequence[Fact]) -> None:
        """Take new events into account; the rows wait to be written."""
        self._fold(connection, rows, new, self._eager_by_kind)
        for event, payload in new:
            if event.kind in self._lazy_by_kind:
                rows.unfolded.append((replace(event, payload=b""), payload))

    def _fold(
        self,
        connection: sqlite3.Connection,
        rows: SessionRows,
        new: Sequence[Fact],
        projections: Mapping[str, Sequence[AnyProjection]],
    ) -> None:
        changes: Changes = {}
        for event, payload in new:
            for projection in projections.get(event.kind, ()):
                key = projection.key(event, payload)
                if not key:
                    continue
                place = (projection.name, key)
                if place in changes:
                    row = changes[place]
                elif event.kind in projection.beginnings:
                    row = None
                elif place in rows.known:
                    row = rows.known[place]
                else:
                    sql, decoder = self._select[projection.name], self._decoders[projection.name]
                    found = connection.execute(sql, (rows.stream, key)).fetchone()
                    row = rows.known[place] = decoder.decode(found[0]) if found else None
                changes[place] = projection.apply(row, event, payload)
        if len(rows.known) > _MOST_KNOWN:
            rows.known = {place: rows.known[place] for place in rows.waiting}
        for place, row in changes.items():
            stored = rows.known.get(place, _NOT_READ)
            if row is not stored:
                rows.waiting.setdefault(place, stored)
            rows.known[place] = row

    def write(self, connection: sqlite3.Connection, rows: SessionRows, *, also_lazy: bool) -> None:
        """Store rows that wait; those of lazy projections only if asked to."""
        if also_lazy and rows.unfolded:
            self._fold(connection, rows, rows.unfolded, self._lazy_by_kind)
            rows.unfolded = []
        new: dict[str, list[list[Any]]] = {}
        waiting, rows.waiting = rows.waiting, {}
        for place, stored in waiting.items():
            (name, key), row = place, rows.known[place]
            if row is None:
                connection.execute(self._delete[name], (rows.stream, key))
            elif stored is None or stored is _NOT_READ:
                values = map(getattr, itertools.repeat(row), self._named[name].columns)
                new.setdefault(name, []).append([rows.stream, key, blob(_encode(row)), *values])
            else:
                self._change(connection, rows.stream, place, stored, row)
        for name, inserted in new.items():
            connection.executemany(self._insert[name], inserted)

    def _change(
        self,
        connection: sqlite3.Connection,
        stream: int,
        place: Place,
        stored: Any,  # noqa: ANN401 - a row of any projection
        row: Any,  # noqa: ANN401
    ) -> None:
        """Store what became of a row; an index whose columns stay the same is not touched."""
        name, key = place
        columns = self._named[name].columns
        changed = tuple([c for c in columns if getattr(row, c) != getattr(stored, c)])
        sql = self._update.get((name, changed))
        if sql is None:
            sql = self._update[name, changed] = self._update_sql(name, changed)
        values = map(getattr, itertools.repeat(row), changed)
        connection.execute(sql, (blob(_encode(row)), *values, stream, key))

    def forget(self, connection: sqlite3.Connection, stream: int) -> None:
        """Remove all rows of a session."""
        for table in self._tables.values():
            connection.execute(f"DELETE FROM {table} WHERE stream = ?", (stream,))

    def find(
        self, connection: sqlite3.Connection, query: RowQuery[Any]
    ) -> tuple[list[KeyedRow[Any]], bool]:
        """Return the row of one key, and whether rows of its session may wait elsewhere."""
        name = query.projection.name
        found = connection.execute(self._one[name], (query.key, query.session_id)).fetchone()
        data, rows_from = found or (None, 0)
        if data is None:
            return [], rows_from > 0
        row = self._decoders[name].decode(data)
        return [KeyedRow(query.session_id, query.key, row)], rows_from > 0

    def select(self, connection: sqlite3.Connection, query: RowQuery[Any]) -> list[KeyedRow[Any]]:
        """Run a checked query."""
        decode = self._decoders[query.projection.name].decode
        sql, given = self._select_sql(query)
        return [
            KeyedRow(session_id, key, decode(data))
            for session_id, key, data in connection.execute(sql, given).fetchall()
        ]

    def is_outdated(self, connection: sqlite3.Connection) -> bool:
        """Say whether a table is missing or older than its declaration.

        Raises:
            SchemaTooNew: a newer Holdfast built a table; it is left alone.
        """
        found = dict(connection.execute("SELECT name, version FROM projections"))
        for projection in self.projections:
            version = found.get(projection.name, 0)
            if version > projection.version:
                raise SchemaTooNew(
                    what=f"table {projection.name}", found=version, known=projection.version
                )
        return any(found.get(p.name) != p.version for p in self.projections)

    def recreate(self, connection: sqlite3.Connection) -> None:
        """Drop every projection table, old versions too, and create empty ones."""
        old = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'p_*_v[0-9]*'"
        ).fetchall()
        for (table,) in old:
            connection.execute(f'DROP TABLE "{table}"')
        connection.execute("DELETE FROM projections")
        for projection in self.projections:
            for statement in self._create_sql(projection):
                connection.execute(statement)
            connection.execute(
                "INSERT INTO projections VALUES (?, ?)", (projection.name, projection.version)
            )

    def prepare_scratch(self, connection: sqlite3.Connection) -> None:
        """Create empty tables in a database that has none, to compare them with others."""
        connection.execute("CREATE TABLE projections (name TEXT, version INTEGER)")
        self.recreate(connection)

    def select_all(self, name: str) -> str:
        """Return the statement that reads all rows of a projection, in the order of their keys."""
        return f"SELECT * FROM {self._tables[name]} ORDER BY stream, key"

    def _create_sql(self, projection: AnyProjection) -> list[str]:
        table = self._tables[projection.name]
        columns = "".join(f", c_{column} NOT NULL" for column in projection.columns)
        statements = [
            f"CREATE TABLE {table} (stream INTEGER NOT NULL, key TEXT NOT NULL, "
            f"data BLOB NOT NULL{columns}, PRIMARY KEY (stream, key)) WITHOUT ROWID"
        ]
        for number, columns_of_index in enumerate(projection.indexes):
            listed = ", ".join(
                "stream" if name == "session" else f"c_{name}" for name in columns_of_index
            )
            statements.append(f"CREATE INDEX {table}_i{number} ON {table} ({listed})")
        return statements

    def _insert_sql(self, projection: AnyProjection) -> str:
        """A row that is there already is replaced: not every row is read before it is written."""
        marks = ", ?" * len(projection.columns)
        columns = "".join(f", c_{column} = excluded.c_{column}" for column in projection.columns)
        return (
            f"INSERT INTO {self._tables[projection.name]} VALUES (?, ?, ?{marks}) "
            f"ON CONFLICT (stream, key) DO UPDATE SET data = excluded.data{columns}"
        )

    def _update_sql(self, name: str, changed: tuple[str, ...]) -> str:
        columns = "".join(f", c_{column} = ?" for column in changed)
        return f"UPDATE {self._tables[name]} SET data = ?{columns} WHERE stream = ? AND key = ?"

    def _select_sql(self, query: RowQuery[Any]) -> tuple[str, list[Any]]:
        table = self._tables[query.projection.name]
        parts: list[str] = ["1"]
        values: list[Any] = []
        if query.session_id:
            parts.append("p.stream = (SELECT stream FROM streams WHERE session_id = ?)")
            values.append(query.session_id)
        if query.key:
            parts.append("p.key = ?")
            values.append(query.key)
        for condition in query.where:
            part, more = _build_condition_sql(condition)
            parts.append(part)
            values += more
        order = f"p.c_{query.order}" if query.order else "p.key"
        direction = "DESC" if query.descending else "ASC"
        if query.after is not None:
            compare = "<" if query.descending else ">"
            parts.append(f"({order}, p.key) {compare} (?, ?)")
            values += query.after
        sql = (
            f"SELECT s.session_id, p.key, p.data FROM {table} p JOIN streams s USING (stream) "
            f"WHERE {' AND '.join(parts)} ORDER BY {order} {direction}, p.key {direction} LIMIT ?"
        )
        return sql, [*values, query.limit]


def is_for_one(query: RowQuery[Any]) -> bool:
    """Say whether a query asks for the row of one key in one session, and nothing else."""
    return bool(query.session_id and query.key) and not query.where and query.after is None


def _build_condition_sql(condition: Condition) -> tuple[str, list[Any]]:
    column = f"p.c_{condition.column}"
    value = condition.value
    if isinstance(value, tuple):
        if condition.operator == "outside":
            return f"{column} NOT BETWEEN ? AND ?", list(value)
        return f"{column} IN ({', '.join('?' * len(value))})", list(value)
    if condition.operator == "contains":
        return f"instr(casefold({column}), casefold(?)) > 0", [value]
    return f"{column} {condition.operator} ?", [value]
