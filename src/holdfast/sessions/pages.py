"""Pages: a slice of a listing and the cursor that continues it."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.canonical import digest
from holdfast.errors import InvalidCursor, UsageError
from holdfast.journal import Journal, KeyedRow, RowQuery, Scalar, check_query

T = TypeVar("T")
Row = TypeVar("Row", bound=msgspec.Struct)
LONGEST_PAGE = 1000
_LONGEST_CURSOR = 16 * 1024


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Some items of a listing; `next_cursor` is empty on the last page."""

    items: tuple[T, ...]
    next_cursor: str = ""


class _Cursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    listing: str
    value: Scalar
    key: str


async def fetch_page(
    journal: Journal,
    query: RowQuery[Row],
    cursor: str,
    *,
    keep: Callable[[Row], bool | Awaitable[bool]] = lambda row: True,
) -> Page[Row]:
    """Return the page of a listing that follows a cursor ("" for the first one).

    Rows that `keep` refuses are passed over.

    Raises:
        InvalidCursor: the cursor is not one of this listing, with this filter and order.
    """
    if not 1 <= query.limit <= LONGEST_PAGE:
        raise UsageError(detail=f"A page holds 1 to {LONGEST_PAGE} items, not {query.limit}.")
    check_query(query)
    listing = _format_listing(query)
    if cursor:
        query = msgspec.structs.replace(query, after=_decode(cursor, listing, query))
    found: list[KeyedRow[Row]] = []
    wanted = limit = query.limit
    while len(found) <= limit:
        wanted = limit + 1 - len(found)
        rows = await journal.rows(msgspec.structs.replace(query, limit=wanted))
        for keyed in rows:
            kept = keep(keyed.row)
            if kept if isinstance(kept, bool) else await kept:
                found.append(keyed)
        if len(rows) < wanted:
            break
        query = msgspec.structs.replace(query, after=_find_place(rows[-1], query))
    next_cursor = ""
    if len(found) > limit:
        next_cursor = _encode(_Cursor(listing, *_find_place(found[limit - 1], query)))
    return Page(items=tuple(keyed.row for keyed in found[:limit]), next_cursor=next_cursor)


def _find_place(last: KeyedRow[Row], query: RowQuery[Row]) -> tuple[Scalar, str]:
    return getattr(last.row, query.order), last.key


def _format_listing(query: RowQuery[Any]) -> str:
    """Name a listing by what it filters and how it sorts, so that cursors cannot be mixed up."""
    described = (
        query.projection.name,
        query.session_id,
        [(c.column, c.operator, c.value) for c in query.where],
        query.order,
        query.descending,
    )
    return digest(described)[:16]


def _encode(cursor: _Cursor) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode().rstrip("=")


def _decode(text: str, listing: str, query: RowQuery[Any]) -> tuple[Scalar, str]:
    """Return the place that a cursor names; only what `_encode` wrote is taken."""
    shown = text if len(text) <= 80 else f"{text[:77]}..."
    fields = msgspec.structs.fields(query.projection.row_type)
    column = next(field.type for field in fields if field.name == query.order)
    try:
        if len(text) > _LONGEST_CURSOR:
            raise ValueError("too long")
        padded = text + "=" * (-len(text) % 4)
        found = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=_Cursor)
        value = msgspec.convert(found.value, column)
        if found.listing != listing or _encode(found) != text or _is_huge(value):
            raise ValueError("not one of this listing")
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidCursor(value=shown) from error
    return value, found.key


def _is_huge(value: object) -> bool:
    return isinstance(value, int) and not -(2**63) <= value < 2**63
