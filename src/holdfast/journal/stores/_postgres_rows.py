"""Projection rows in Postgres: one table per projection and version, made from its declaration.

Texts are kept as bytes in UTF-8 (`bytea`): any text fits, and they are compared byte by byte.
`contains` is decided here, because no collation of the server folds case as Python does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, LiteralString, TypeAlias

import msgspec

from holdfast.errors import SchemaTooNew, UsageError
from holdfast.journal.envelope import Event, Payload
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

_encode = msgspec.json.Encoder().encode
_TYPES: dict[type, str] = {str: "bytea", bool: "boolean", int: "bigint", float: "double precision"}
_TABLE = "holdfast.p_{}_v{}"
_CHUNK = 500


class Table:
    """The table of one projection, and the statements that it takes."""

    def __init__(self, projection: AnyProjection) -> None:
        """Prepare the statements; touches no database."""
        self.projection = projection
        self.name = _TABLE.format(projection.name, projection.version)
        self.types = {column: _find_type(projection, column) for column in projection.columns}
        self._decoder = msgspec.json.Decoder(projection.row_type)
        columns = "".join(f", c_{column}" for column in projection.columns)
        updates = "".join(f", c_{one} = excluded.c_{one}" for one in projection.columns)
        arrays = "".join(f", %b::{kind}[]" for kind in self.types.values())
        places = f"AS i(request, key, data{columns})"
        self.upsert = (
            f"INSERT INTO {self.name} (tenant, stream, key, data{columns}) "
            f"SELECT n.tenant, o.stream, i.key, i.data"
            + "".join(f", i.c_{one}" for one in projection.columns)
            + f" FROM unnest(%b::integer[], %b::bytea[], %b::bytea[]{arrays}) {places} "
            "JOIN accepted o USING (request) CROSS JOIN numbers n "
            f"ON CONFLICT (stream, key) DO UPDATE SET data = excluded.data{updates}"
        )
        self.remove = (
            f"DELETE FROM {self.name} p "
            "USING unnest(%b::integer[], %b::bytea[]) AS i(request, key) "
            "JOIN accepted o USING (request) CROSS JOIN numbers n "
            "WHERE p.stream = o.stream AND p.key = i.key"
        )

    def list_values(self, changes: Iterable[tuple[int, str, Any]]) -> list[list[Any]]:
        """Return the arrays that `upsert` takes, for rows of requests by their keys."""
        arrays: list[list[Any]] = [[] for _ in range(3 + len(self.types))]
        for request, key, row in changes:
            values = [request, key.encode(), _encode(row)]
            values += [self.encode(name, getattr(row, name)) for name in self.types]
            for array, value in zip(arrays, values, strict=True):
                array.append(value)
        return arrays

    def encode(self, column: str, value: Any) -> Any:  # noqa: ANN401 - of any column
        """Return a value as its column holds it."""
        return encode_scalar(value, self.types[column])

    def decode(self, data: bytes) -> Any:  # noqa: ANN401 - a row of any projection
        """Return a row from its bytes."""
        return self._decoder.decode(data)

    def list_creation(self) -> list[str]:
        """Return the statements that create the table and its indexes."""
        columns = "".join(f", c_{one} {kind} NOT NULL" for one, kind in self.types.items())
        statements = [
            f"CREATE TABLE {self.name} (tenant text NOT NULL, stream bigint NOT NULL, "
            f"key bytea NOT NULL, data bytea NOT NULL{columns}, PRIMARY KEY (stream, key))",
            f"ALTER TABLE {self.name} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
            f"CREATE POLICY tenants ON {self.name} "
            "USING (tenant = current_setting('holdfast.tenant', true))",
        ]
        for named in self.projection.indexes:
            listed = ", ".join("stream" if name == "session" else f"c_{name}" for name in named)
            start = "" if "session" in named else "tenant, "
            statements.append(f"CREATE INDEX ON {self.name} ({start}{listed})")
        return statements


def encode_scalar(value: Any, kind: str) -> Any:  # noqa: ANN401 - of any column
    """Return a value as a column of a type holds it.

    Raises:
        UsageError: it can never be in such a column.
    """
    if kind == "bytea":
        if not isinstance(value, str):
            raise UsageError(detail=f"A text is never compared with {value!r}.")
        return value.encode()
    if isinstance(value, str):
        raise UsageError(detail=f"A number is never compared with {value!r}.")
    if kind == "boolean":
        return bool(value)
    return float(value) if kind == "double precision" else value


def choose_cast(values: Iterable[Any], kind: str) -> str:
    """Return the type as which values are compared: a fraction must not become a whole number."""
    is_fraction = kind == "bigint" and any(isinstance(value, float) for value in values)
    return "double precision" if is_fraction else kind


def _find_type(projection: AnyProjection, column: str) -> str:
    """Return the type of a column, from the declaration of the row."""
    found = msgspec.inspect.type_info(projection.row_type)
    assert isinstance(found, msgspec.inspect.StructType)
    for field in found.fields:
        if field.name == column:
            kinds = {_find_python_type(one) for one in _list_types(field.type)}
            return _TYPES[float if kinds == {int, float} else kinds.pop()]
    # A property of the row.
    getter = getattr(projection.row_type, column)
    names = {"str": str, "int": int, "float": float, "bool": bool}
    noted = getter.fget.__annotations__["return"]
    return _TYPES[names[noted] if isinstance(noted, str) else noted]


def _list_types(kind: msgspec.inspect.Type) -> list[msgspec.inspect.Type]:
    return list(kind.types) if isinstance(kind, msgspec.inspect.UnionType) else [kind]


def _find_python_type(kind: msgspec.inspect.Type) -> type:
    if isinstance(kind, msgspec.inspect.LiteralType):
        return type(kind.values[0])
    known: dict[type, type] = {
        msgspec.inspect.StrType: str,
        msgspec.inspect.BoolType: bool,
        msgspec.inspect.IntType: int,
        msgspec.inspect.FloatType: float,
    }
    return known.get(type(kind), str)


class PostgresTables:
    """The tables of a fixed set of projections."""

    def __init__(self, projections: Sequence[AnyProjection]) -> None:
        """Prepare; touches no database."""
        self.projections = tuple(projections)
        self.tables = {one.name: Table(one) for one in projections}
        self._by_kind = group_by_kind(projections)

    def folds(self, kind: str) -> bool:
        """Say whether any projection follows this kind."""
        return kind in self._by_kind

    def list_needed(self, facts: Sequence[Fact], known: Mapping[Place, Any]) -> set[Place]:
        """Return the rows that have to be read before events can be folded."""
        needed: set[Place] = set()
        begun: set[Place] = set()
        for event, payload in facts:
            for projection in self._by_kind.get(event.kind, ()):
                key = projection.key(event, payload)
                place = (projection.name, key)
                if not key or place in known or place in begun:
                    continue
                if event.kind in projection.beginnings:
                    begun.add(place)
                else:
                    needed.add(place)
        return needed

    def fold(self, facts: Sequence[Fact], known: Mapping[Place, Any]) -> Changes:
        """Return what becomes of the rows; those that `list_needed` named are `known`."""
        changes: Changes = {}
        for event, payload in facts:
            for projection in self._by_kind.get(event.kind, ()):
                key = projection.key(event, payload)
                if not key:
                    continue
                place = (projection.name, key)
                row = changes[place] if place in changes else known.get(place)
                if event.kind in projection.beginnings:
                    row = None
                changes[place] = projection.apply(row, event, payload)
        return changes

    def check_versions(self, found: Mapping[str, int]) -> bool:
        """Say whether a table is missing or older than its declaration.

        Raises:
            SchemaTooNew: a newer Holdfast built a table; it is left alone.
        """
        for projection in self.projections:
            version = found.get(projection.name, 0)
            if version > projection.version:
                raise SchemaTooNew(
                    what=f"table {projection.name}", found=version, known=projection.version
                )
        return any(found.get(one.name) != one.version for one in self.projections)

    def build_query(
        self, query: RowQuery[Any], tenant: str, after: tuple[Any, bytes] | None, limit: int
    ) -> tuple[LiteralString, list[Any]]:
        """Return the statement for a checked query, but for what `contains` says.

        It gives the session, the key, the row and the value by which it is sorted.
        """
        table = self.tables[query.projection.name]
        parts: list[str] = ["p.tenant = %s"]
        values: list[Any] = [tenant]
        if query.session_id:
            parts.append(
                "p.stream = (SELECT stream FROM holdfast.streams "
                "WHERE tenant = %s AND session_id = %s)"
            )
            values += [tenant, query.session_id]
        if query.key:
            parts.append("p.key = %s")
            values.append(query.key.encode())
        for condition in query.where:
            if condition.operator != "contains":
                part, more = _build_condition(condition, table)
                parts.append(part)
                values += more
        order = f"p.c_{query.order}" if query.order else "p.key"
        direction = "DESC" if query.descending else "ASC"
        if after is not None:
            kind = choose_cast(after, table.types[query.order] if query.order else "bytea")
            parts.append(
                f"({order}, p.key) {'<' if query.descending else '>'} (%s::{kind}, %s::bytea)"
            )
            values += after
        statement = (
            f"SELECT s.session_id, p.key, p.data, {order} FROM {table.name} p "
            f"JOIN holdfast.streams s USING (stream) WHERE {' AND '.join(parts)} "
            f"ORDER BY {order} {direction}, p.key {direction} LIMIT %s"
        )
        return statement, [*values, limit]

    def encode_edge(self, query: RowQuery[Any]) -> tuple[Any, bytes] | None:
        """Return the place after which a query goes on, as the columns hold it."""
        if query.after is None:
            return None
        value, key = query.after
        table = self.tables[query.projection.name]
        kind = table.types[query.order] if query.order else "bytea"
        return encode_scalar(value, kind), key.encode()

    def decode_row(self, query: RowQuery[Any], found: Sequence[Any]) -> KeyedRow[Any] | None:
        """Return a row that was found, `None` if a `contains` leaves it out."""
        row = self.tables[query.projection.name].decode(found[2])
        for condition in query.where:
            if condition.operator == "contains":
                text = getattr(row, condition.column)
                if not isinstance(text, str):
                    raise UsageError(detail=f"{condition.column} is no text.")
                assert isinstance(condition.value, str)
                if condition.value.casefold() not in text.casefold():
                    return None
        return KeyedRow(found[0], found[1].decode(), row)


def _build_condition(condition: Condition, table: Table) -> tuple[str, list[Any]]:
    column, kind = f"p.c_{condition.column}", table.types[condition.column]
    value = condition.value
    if isinstance(value, tuple):
        given = [encode_scalar(one, kind) for one in value]
        kind = choose_cast(given, kind)
        if condition.operator == "outside":
            return f"{column} NOT BETWEEN %s::{kind} AND %s::{kind}", given
        return f"{column} = ANY(%s::{kind}[])", [given]
    operator = "<>" if condition.operator == "!=" else condition.operator
    given = [encode_scalar(value, kind)]
    return f"{column} {operator} %s::{choose_cast(given, kind)}", given
