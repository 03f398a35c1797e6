"""Pages: a slice of a listing and the cursor that continues it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.canonical import digest
from holdfast.errors import InvalidCursor
from holdfast.journal.journal import Journal
from holdfast.journal.projection import KeyedRow, RowQuery, Scalar

T = TypeVar("T")
Row = TypeVar("Row", bound=msgspec.Struct)


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Some items of a listing; `next_cursor` is empty on the last page."""

    items: tuple[T, ...]
    next_cursor: str = ""


class _Cursor(msgspec.Struct, frozen=True, array_like=True):
    listing: str
    value: Scalar
    key: str


async def fetch_page(
    journal: Journal, query: RowQuery[Row], cursor: str, make: Callable[[KeyedRow[Row]], T]
) -> Page[T]:
    """Return the page of a listing that follows a cursor ("" for the first one).

    Raises:
        InvalidCursor: the cursor is not one of this listing, with this filter and order.
    """
    listing = _listing(query)
    if cursor:
        found = _decode(cursor, listing)
        query = msgspec.structs.replace(query, after=(found.value, found.key))
    rows = await journal.rows(msgspec.structs.replace(query, limit=query.limit + 1))
    shown = rows[: query.limit]
    next_cursor = ""
    if len(rows) > query.limit:
        last = shown[-1]
        value = getattr(last.row, query.order) if query.order else last.key
        next_cursor = _encode(_Cursor(listing, value, last.key))
    return Page(items=tuple(make(row) for row in shown), next_cursor=next_cursor)


def _listing(query: RowQuery[Any]) -> str:
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


def _decode(text: str, listing: str) -> _Cursor:
    shown = text if len(text) <= 80 else f"{text[:77]}..."
    try:
        padded = text + "=" * (-len(text) % 4)
        found = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=_Cursor)
    except (binascii.Error, msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidCursor(value=shown) from error
    if found.listing != listing:
        raise InvalidCursor(value=shown)
    return found
