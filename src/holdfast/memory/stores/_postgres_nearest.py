"""What of a large place a search weighs: found by the indexes of words and of vectors (HNSW)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.memory.storage import IndexRow, MemoryFilter, MemoryPlace, NearestQuery
from holdfast.memory.stores._database import MemoryDatabase
from holdfast.memory.stores._reading import build_filter_sql, build_places_sql, list_index_rows

_MOST_NEAREST = 1_000
_LONGEST = 4_000
"""pgvector has no index of longer vectors of this kind."""
# The index goes on looking until enough of what it finds passes the filter (iterative scan).
_SETTINGS = (
    "SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true),"
    " set_config('hnsw.ef_search', ?, true)"
)
_AROUND = """
WITH first AS (SELECT unnest(?::bigint[]) AS row),
second AS (
    SELECT row FROM first
    UNION SELECT m.previous FROM memories m JOIN first USING (row) WHERE m.previous IS NOT NULL
    UNION SELECT m.row FROM memories m JOIN first ON m.previous = first.row
)
SELECT row FROM second
UNION SELECT m.previous FROM memories m JOIN second USING (row) WHERE m.previous IS NOT NULL
UNION SELECT m.row FROM memories m JOIN second ON m.previous = second.row
"""


def list_nearest(
    db: MemoryDatabase,
    places: Sequence[MemoryPlace],
    where: MemoryFilter,
    near: NearestQuery,
    now: float,
) -> list[int]:
    """Return the rows of some places that are nearest, among those that pass a filter."""
    dimension = len(near.vector) // 2
    if not 0 < dimension <= _LONGEST:
        return []
    limit = min(near.limit, _MOST_NEAREST)
    place, values = build_places_sql(places)
    condition, more = build_filter_sql(db, where, now)
    db.execute(_SETTINGS, (str(limit),))
    # A number of ours: the index is chosen by it, and a value that is bound would hide it.
    length = f"halfvec({dimension})"
    found = db.execute(
        "SELECT v.row FROM vectors v JOIN memories m ON m.row = v.row"
        f" WHERE v.dimension = {dimension} AND v.model = ? AND {place} AND {condition}"
        f" ORDER BY v.embedding::{length} <=> ?::{length} LIMIT ?",
        [near.model, *values, *more, db.write_vector(near.vector), limit],
    )
    return [row for (row,) in found]


def list_newest(
    db: MemoryDatabase,
    places: Sequence[MemoryPlace],
    where: MemoryFilter,
    now: float,
    limit: int,
) -> list[int]:
    """Return the newest rows that pass a filter, so that none is missing where little fits."""
    place, values = build_places_sql(places)
    condition, more = build_filter_sql(db, where, now)
    found = db.execute(
        f"SELECT m.row FROM memories m WHERE {place} AND {condition}"
        " ORDER BY m.created DESC, m.row DESC LIMIT ?",
        [*values, *more, limit],
    )
    return [row for (row,) in found]


def list_around(
    db: MemoryDatabase, places: Sequence[MemoryPlace], rows: Iterable[int], model: str
) -> list[IndexRow]:
    """Return what ranking needs of rows, and of the two turns before and after each of them."""
    around = [row for (row,) in db.execute(_AROUND, (sorted(rows),))]
    condition, values = build_places_sql(places)
    return list_index_rows(db, f"{condition} AND m.row = ANY(?)", [*values, around], model)


def list_passing_among(
    db: MemoryDatabase,
    places: Sequence[MemoryPlace],
    where: MemoryFilter,
    now: float,
    rows: Sequence[int],
) -> list[int]:
    """Return which of some rows pass a filter, ascending."""
    place, values = build_places_sql(places)
    condition, more = build_filter_sql(db, where, now)
    found = db.execute(
        f"SELECT m.row FROM memories m WHERE {place} AND {condition} AND m.row = ANY(?)"
        " ORDER BY m.row",
        [*values, *more, list(rows)],
    )
    return [row for (row,) in found]


__all__ = ["list_around", "list_nearest", "list_newest", "list_passing_among"]
