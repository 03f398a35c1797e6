"""Projections: tables that follow from the log.

A projection is a keyed reducer: an event names the row it touches, and `apply` turns the
old row into the new one. Rules live here and in the rooms; a store only keeps the rows, in
the same transaction as the events (of lazy ones: before any process sees them), and can drop and
rebuild them at any time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

import msgspec

from holdfast.errors import UsageError
from holdfast.journal.envelope import Event, Payload

Row = TypeVar("Row", bound=msgspec.Struct)
Scalar: TypeAlias = str | int | float | bool | None
Operator: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">=", "in", "contains", "outside"]


_INT_END = 2**63


class Projection(ABC, Generic[Row]):
    """A table of rows of one type, keyed within each session."""

    name: ClassVar[str]
    """Lower-case letters and underscores; names the table."""
    version: ClassVar[int]
    """Raise it when rows change their shape or meaning: the table is then rebuilt."""
    row_type: type[Row]
    columns: ClassVar[tuple[str, ...]]
    """Attributes of the row that can be filtered and sorted by; never `None`."""
    indexes: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Columns worth an index, for listings that must stay quick; `session` stands for it."""
    kinds: ClassVar[frozenset[str]]
    """The kinds of events that it folds."""
    beginnings: ClassVar[frozenset[str]] = frozenset()
    """Those of them after which a row is the same whatever it was before."""
    is_lazy: ClassVar[bool] = False
    """Rows change with nearly every event: while another owner holds the session's lease, a store
    may
    make and write them later, as long as every query sees them. So they must not depend on
    `Event.seq` or on its bytes (`Event.payload`; what it says is handed over beside it), and
    `apply` cannot refuse an event: it is stored by then."""

    @abstractmethod
    def key(self, event: Event, payload: Payload) -> str:
        """Return the key of the row that the event touches, or "" for none."""

    @abstractmethod
    def apply(self, row: Row | None, event: Event, payload: Payload) -> Row | None:
        """Return the row after the event; `None` removes it. Pure."""


AnyProjection: TypeAlias = Projection[Any]


class Condition(msgspec.Struct, frozen=True):
    """A comparison of one column.

    Text is compared byte by byte, `contains` ignores case, `in` and `outside` take a tuple:
    the values, or the two ends of a range that is left out.
    """

    column: str
    operator: Operator
    value: Scalar | tuple[Scalar, ...]


class RowQuery(msgspec.Struct, Generic[Row], frozen=True, kw_only=True):
    """Which rows, in which order; `after` is the sort value and key of the last row seen.

    Without `session_id` the rows of all sessions are searched. Rows are ordered by `order`
    and, where that is equal, by key, so that pages never overlap as long as keys are unique
    in what the query covers.
    """

    projection: Projection[Row]
    session_id: str = ""
    key: str = ""
    where: tuple[Condition, ...] = ()
    order: str = ""
    descending: bool = False
    after: tuple[Scalar, str] | None = None
    limit: int = 100


class KeyedRow(msgspec.Struct, Generic[Row], frozen=True):
    """A row with the session and key under which it is kept."""

    session_id: str
    key: str
    row: Row


def check_query(query: RowQuery[Any]) -> None:
    """Refuse a query that names a column the projection does not have.

    Column names reach SQL as text; only declared ones may.
    """
    if not query.where and not query.order and query.after is None and query.limit == 1:
        # One row by its key, which is asked for all the time.
        check_value(query.session_id)
        check_value(query.key)
        return
    known = query.projection.columns
    named = [condition.column for condition in query.where]
    named += [query.order] if query.order else []
    for column in named:
        if column not in known:
            raise UsageError(
                detail=f"{query.projection.name} cannot be filtered or sorted by {column!r}; "
                f"choose one of {', '.join(known)}."
            )
    for condition in query.where:
        if (condition.operator in ("in", "outside")) != isinstance(condition.value, tuple):
            raise UsageError(detail=f"`{condition.operator}` cannot take {condition.value!r}.")
        values = condition.value if isinstance(condition.value, tuple) else (condition.value,)
        if condition.operator == "outside" and len(values) != 2:
            raise UsageError(detail="`outside` takes the two ends of a range.")
        if condition.operator == "contains" and not isinstance(condition.value, str):
            raise UsageError(detail=f"`contains` takes a text, not {condition.value!r}.")
        for value in values:
            check_value(value)
    for value in (query.session_id, query.key, *(query.after or ())):
        check_value(value)
    if not 1 <= query.limit <= 10_000:
        raise UsageError(detail=f"A limit lies between 1 and 10000, not {query.limit}.")


def check_value(value: Scalar) -> None:
    """Refuse a value that no database can hold; cursors and filters come from outside."""
    if value is None:
        raise UsageError(detail="A row is never compared with nothing.")
    if isinstance(value, str) and not value.isascii() and not _is_text(value):
        raise UsageError(detail="A text holds a lone surrogate, which is no character.")
    if isinstance(value, int) and not -_INT_END <= value < _INT_END:
        raise UsageError(detail="A whole number lies beyond 64 bits.")


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def group_by_kind(projections: Sequence[AnyProjection]) -> dict[str, tuple[AnyProjection, ...]]:
    """Group projections by the kinds they fold; names must be unique."""
    names = [projection.name for projection in projections]
    if len(set(names)) != len(names):
        raise UsageError(detail=f"Projections must have different names: {', '.join(names)}.")
    kinds = {kind for projection in projections for kind in projection.kinds}
    return {
        kind: tuple(projection for projection in projections if kind in projection.kinds)
        for kind in kinds
    }
