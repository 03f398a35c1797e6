"""Filters of artifacts as queries of the catalogue, and cursors of its pages."""

from __future__ import annotations

import base64
import binascii

import msgspec

from holdfast.artifacts.artifact import ArtifactFilter
from holdfast.artifacts.catalogue import (
    ARTIFACTS,
    GRANTS,
    USAGE,
    ArtifactRow,
    ArtifactUsage,
    GrantRow,
)
from holdfast.errors import InvalidCursor
from holdfast.journal import Condition, Journal, RowQuery

_LONGEST = 200
_LONGEST_ID = 64


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


class CatalogueReader(msgspec.Struct, frozen=True, eq=False):
    """Finds rows of one tenant in the tables of artifacts."""

    journal: Journal
    tenant: str

    async def rows(self, artifact_id: str) -> list[tuple[str, ArtifactRow]]:
        """Return an artifact with its chain; a fork has one of its own of the same id."""
        if not 0 < len(artifact_id) <= _LONGEST_ID:
            return []
        found = await self.journal.rows(
            RowQuery(
                projection=ARTIFACTS,
                key=artifact_id,
                where=(Condition("tenant", "=", self.tenant), Condition("is_live", "=", True)),
                limit=1_000,
            )
        )
        return [(keyed.session_id, keyed.row) for keyed in found]

    async def find_newest(self, session_id: str, lineage: str) -> ArtifactRow | None:
        """Return the newest version of a file, a deleted one too, `None` if there is none."""
        found = await self._list_lineage(session_id, lineage, (), limit=1)
        return found[0] if found else None

    async def versions(self, session_id: str, lineage: str, *, limit: int) -> list[ArtifactRow]:
        """Return the versions of a file that are there, newest first."""
        is_live = (Condition("is_live", "=", True),)
        return await self._list_lineage(session_id, lineage, is_live, limit=limit)

    async def _list_lineage(
        self, session_id: str, lineage: str, where: tuple[Condition, ...], limit: int
    ) -> list[ArtifactRow]:
        found = await self.journal.rows(
            RowQuery(
                projection=ARTIFACTS,
                session_id=session_id,
                where=(
                    Condition("lineage", "=", lineage),
                    Condition("tenant", "=", self.tenant),
                    *where,
                ),
                order="version",
                descending=True,
                limit=limit,
            )
        )
        return [keyed.row for keyed in found]

    async def grants(self, session_id: str, artifact_id: str) -> list[GrantRow]:
        """Return what was given of an artifact; it may have expired."""
        found = await self.journal.rows(
            RowQuery(
                projection=GRANTS,
                session_id=session_id,
                where=(Condition("artifact_id", "=", artifact_id),),
                limit=1_000,
            )
        )
        return [keyed.row for keyed in found]

    async def usage(self) -> ArtifactUsage:
        """Return how much the artifacts of the tenant take."""
        is_ours = (Condition("tenant", "=", self.tenant),)
        query = RowQuery(projection=USAGE, where=is_ours, limit=10_000)
        rows = [keyed.row for keyed in await self.journal.rows(query)]
        return ArtifactUsage(
            tenant=self.tenant,
            bytes=sum(row.bytes for row in rows),
            count=sum(row.count for row in rows),
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


__all__ = ["CatalogueReader", "filter_query", "read_cursor", "write_cursor"]
