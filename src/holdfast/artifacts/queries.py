"""Filters of artifacts as queries of the catalogue, and cursors of its pages."""

from __future__ import annotations

import base64
import binascii

import msgspec

from holdfast.artifacts.artifact import ArtifactFilter
from holdfast.artifacts.catalogue import ARTIFACTS, ArtifactRow
from holdfast.errors import InvalidCursor
from holdfast.journal import Condition, RowQuery

_LONGEST = 200


def filter_query(
    wanted: ArtifactFilter, tenant: str, *, after: tuple[float, str] | None, limit: int
) -> RowQuery[ArtifactRow]:
    """Return the rows that a filter wants, newest first."""
    where = [Condition("tenant", "=", tenant), Condition("is_live", "=", True)]
    if wanted.name:
        where.append(Condition("name", "contains", wanted.name))
    if wanted.tag:
        where.append(Condition("tag_lines", "contains", f"\n{wanted.tag}\n"))
    for column in ("kind", "scope", "media_type"):
        value = getattr(wanted, column)
        if value:
            where.append(Condition(column, "=", value))
    if wanted.since is not None:
        where.append(Condition("time", ">=", float(wanted.since)))
    if wanted.until is not None:
        where.append(Condition("time", "<=", float(wanted.until)))
    if wanted.min_size is not None:
        where.append(Condition("size", ">=", wanted.min_size))
    if wanted.max_size is not None:
        where.append(Condition("size", "<=", wanted.max_size))
    return RowQuery(
        projection=ARTIFACTS,
        session_id=wanted.session_id,
        where=tuple(where),
        order="time",
        descending=True,
        after=after,
        limit=limit,
    )


def write_cursor(after: tuple[float, str]) -> str:
    """Return where a page ended as text."""
    return base64.urlsafe_b64encode(msgspec.json.encode(after)).decode()


def read_cursor(cursor: str) -> tuple[float, str] | None:
    """Return where a page ended, `None` for the beginning.

    Raises:
        InvalidCursor: it is not one that a page gave.
    """
    if not cursor:
        return None
    try:
        if len(cursor) > _LONGEST:
            raise ValueError("too long")
        data = base64.b64decode(cursor, altchars=b"-_", validate=True)
        return msgspec.json.decode(data, type=tuple[float, str])
    except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
        raise InvalidCursor(value=cursor[:_LONGEST]) from error


__all__ = ["filter_query", "read_cursor", "write_cursor"]
