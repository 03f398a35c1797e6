"""Questions to a database of memories: which rows, and what stands in them."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from holdfast.canonical import JsonObject
from holdfast.memory.dialogue import StoredLine, drop_label
from holdfast.memory.entry import MemoryEntry, Provenance
from holdfast.memory.space import VectorSpace
from holdfast.memory.storage import (
    IndexRow,
    MemoryFilter,
    MemoryPassage,
    MemoryPlace,
    MemoryStats,
    Unembedded,
)
from holdfast.memory.stores._database import MemoryDatabase
from holdfast.memory.words import name_place

_COLUMNS = """m.row, m.id, m.session_id, m.content, m.metadata, m.created, m.scope, m.owner,
    m.kind, m.speaker, m.importance, m.is_pinned, m.valid_from, m.valid_to, m.expires,
    m.supersedes, m.superseded_by, m.provenance, m.forgotten,
    (SELECT p.id FROM memories p WHERE p.row = m.previous)"""
_VECTOR = IndexRow.__struct_fields__.index("vector")
Word = TypeVar("Word")
_metadata = msgspec.json.Decoder(JsonObject)
_provenance = msgspec.json.Decoder(Provenance)
_CHUNK = 500
_SAID = "CASE WHEN m.speaker = '' THEN coalesce(m.inferred_speaker, '') ELSE m.speaker END"
_PASSAGE_CHARACTERS = 2_000
_LINE_CHARACTERS = 64
"""The label of a line is in its beginning."""


def describe_places(tenant: str, scope: str, owner: str) -> str:
    """Return the words that mark a row's place in the index."""
    own = name_place(tenant, scope, owner)
    return f"{own} {name_place(tenant, 'session')}" if scope == "session" else own


def name_mark(place: MemoryPlace) -> str:
    """Return the word by which rows of a place are found."""
    if place.owner is None:
        return name_place(place.tenant, place.scope)
    return name_place(place.tenant, place.scope, place.owner)


def build_places_sql(places: Sequence[MemoryPlace], *, sign: str = "") -> tuple[str, list[object]]:
    """Return the SQL condition for rows of some places; `sign` may keep it from an index."""
    parts, values = [], []
    for place in places:
        text = f"{sign}m.tenant = ? AND {sign}m.scope = ?"
        values += [place.tenant, place.scope]
        if place.owner is not None:
            text += f" AND {sign}m.owner = ?"
            values.append(place.owner)
        parts.append(f"({text})")
    return f"({' OR '.join(parts) or 'FALSE'})", list(values)


def build_filter_sql(
    db: MemoryDatabase, where: MemoryFilter, now: float
) -> tuple[str, list[object]]:
    """Return the SQL condition of a filter; values are bound, never written into it."""
    parts = ["m.forgotten IS NULL", "(m.expires IS NULL OR m.expires > ? OR m.is_pinned)"]
    values: list[object] = [now]
    if not where.include_superseded:
        at = now if where.as_of is None else where.as_of
        parts.append("m.valid_from <= ? AND (m.valid_to IS NULL OR m.valid_to > ?)")
        values += [at, at]
    for column, wanted in (("m.kind", where.kinds), (_SAID, where.speakers)):
        if wanted:
            parts.append(f"{column} IN ({', '.join('?' * len(wanted))})")
            values += wanted
    if where.since is not None:
        parts.append("m.created >= ?")
        values.append(where.since)
    if where.until is not None:
        parts.append("m.created < ?")
        values.append(where.until)
    if where.pinned is not None:
        parts.append("m.is_pinned = ?")
        values.append(where.pinned)
    for key, value in where.metadata.items():
        holds, more = db.build_metadata_sql(key, value)
        parts.append(holds)
        values += more
    return " AND ".join(parts), values


def list_entries(
    db: MemoryDatabase, condition: str, values: Sequence[object], tail: str = ""
) -> dict[int, MemoryEntry]:
    """Return whole memories by row, in the order of the query."""
    found = db.execute(f"SELECT {_COLUMNS} FROM memories m WHERE {condition} {tail}", values)
    rows = found.fetchall()
    links = _read_links(db, [row[0] for row in rows])
    return {row[0]: _make_entry(row, links.get(row[0], {})) for row in rows}


def read_entries_by(
    db: MemoryDatabase,
    column: str,
    keys: Sequence[object],
    condition: str,
    values: list[object],
) -> dict[int, MemoryEntry]:
    """Return whole memories whose `row` or `id` is among the keys, and that meet a condition."""
    found: dict[int, MemoryEntry] = {}
    for start in range(0, len(keys), _CHUNK):
        chunk = keys[start : start + _CHUNK]
        known = f"m.{column} IN ({', '.join('?' * len(chunk))})"
        found |= list_entries(db, f"{known} AND {condition}", [*chunk, *values])
    return found


def index_by_id(db: MemoryDatabase, tenant: str, ids: Sequence[str]) -> dict[int, MemoryEntry]:
    """Return memories of a tenant by their ids, tombstones too."""
    return read_entries_by(db, "id", ids, "m.tenant = ?", [tenant])


def index_by_row(
    db: MemoryDatabase, places: Sequence[MemoryPlace], rows: Sequence[int]
) -> dict[int, MemoryEntry]:
    """Return living memories of some places by their rows."""
    # The sign keeps SQLite from walking through whole places instead of looking rows up.
    condition, values = build_places_sql(places, sign=db.unindexed)
    return read_entries_by(db, "row", rows, f"{condition} AND m.forgotten IS NULL", values)


def list_rows_where(
    db: MemoryDatabase, places: Sequence[MemoryPlace], where: MemoryFilter, now: float
) -> list[int]:
    """Return the rows of some places that pass a filter, ascending."""
    place, values = build_places_sql(places)
    condition, more = build_filter_sql(db, where, now)
    sql = f"SELECT m.row FROM memories m WHERE {place} AND {condition} ORDER BY m.row"
    return [row for (row,) in db.execute(sql, [*values, *more])]


def _read_links(db: MemoryDatabase, rows: Sequence[int]) -> dict[int, dict[str, list[str]]]:
    found: dict[int, dict[str, list[str]]] = {}
    for start in range(0, len(rows), _CHUNK):
        chunk = rows[start : start + _CHUNK]
        marks = ", ".join("?" * len(chunk))
        for row, relation, other in db.execute(
            "SELECT l.row, l.relation, o.id FROM links l JOIN memories o ON o.row = l.other"
            f" AND o.tenant = l.tenant WHERE l.row IN ({marks}) ORDER BY l.other",
            chunk,
        ):
            found.setdefault(row, {}).setdefault(relation, []).append(other)
    return found


def _make_entry(row: Sequence[Any], links: dict[str, list[str]]) -> MemoryEntry:
    return MemoryEntry(
        id=row[1],
        session_id=row[2],
        content=row[3],
        metadata=_metadata.decode(row[4]),
        created=row[5],
        scope=row[6],
        owner=row[7],
        kind=row[8],
        speaker=row[9],
        importance=row[10],
        is_pinned=bool(row[11]),
        valid_from=row[12],
        valid_to=row[13],
        expires=row[14],
        supersedes=row[15],
        superseded_by=row[16],
        provenance=_provenance.decode(row[17]),
        forgotten=row[18],
        previous_id=row[19] or "",
        contradicts=tuple(links.get("contradicts", ())),
        derived_from=tuple(links.get("derived_from", ())),
    )


def read_revision(db: MemoryDatabase) -> int:
    """Return the number of the last change."""
    last: int = db.execute("SELECT last FROM revisions").fetchone()[0]
    return last


def select_telling(counts: Mapping[Word, int], most: int) -> list[Word]:
    """Return the rarest words, as many as hold no more than so many memories together."""
    chosen: list[Word] = []
    total = 0
    for word, count in sorted(counts.items(), key=lambda one: (one[1], str(one[0]))):
        if chosen and total + count > most:
            break
        if count:
            chosen.append(word)
            total += count
    return chosen


def list_passages(
    db: MemoryDatabase, places: Sequence[MemoryPlace], rows: Sequence[int], model: str
) -> dict[int, MemoryPassage]:
    """Return the texts of living memories of some places, with tokens of a model."""
    condition, values = build_places_sql(places, sign=db.unindexed)
    found: dict[int, MemoryPassage] = {}
    for start in range(0, len(rows), _CHUNK):
        chunk = rows[start : start + _CHUNK]
        sql = (
            f"SELECT m.row, substr(m.content, 1, {_PASSAGE_CHARACTERS}), t.tokens"
            " FROM memories m LEFT JOIN tokens t ON t.row = m.row"
            f" AND {db.unindexed}t.model = ?"
            f" WHERE m.row IN ({', '.join('?' * len(chunk))}) AND {condition}"
            " AND m.forgotten IS NULL"
        )
        for row, *rest in db.execute(sql, [model, *chunk, *values]).fetchall():
            found[row] = tuple.__new__(MemoryPassage, rest)
    return found


def list_tokens(
    db: MemoryDatabase, tenants: Collection[str], rows: Sequence[int], model: str
) -> dict[int, bytes]:
    """Return the tokens of memories of some tenants; forgotten ones have none."""
    found: dict[int, bytes] = {}
    for start in range(0, len(rows), _CHUNK):
        chunk = rows[start : start + _CHUNK]
        sql = (
            f"SELECT row, tokens FROM tokens WHERE row IN ({', '.join('?' * len(chunk))})"
            f" AND {db.unindexed}model = ? AND tenant IN ({', '.join('?' * len(tenants))})"
        )
        found.update(db.execute(sql, [*chunk, model, *tenants]).fetchall())
    return found


def list_lines_before(
    db: MemoryDatabase, session: tuple[str, str, str, str], row: int, limit: int
) -> list[StoredLine]:
    """Return the beginnings of the last lines of a session before a row, newest first.

    A line whose speaker was named is empty: it needs no guessing, and ends a run of labels.
    """
    found = db.execute(
        "SELECT row,"
        f" CASE WHEN speaker = '' THEN substr(content, 1, {_LINE_CHARACTERS}) ELSE '' END,"
        f" coalesce(inferred_speaker, '') FROM memories {db.require_index('memories_by_session')}"
        " WHERE tenant = ? AND scope = ? AND owner = ? AND session_id = ? AND row < ?"
        " AND forgotten IS NULL ORDER BY row DESC LIMIT ?",
        (*session, row, limit),
    )
    return [StoredLine(*line) for line in found]


def list_changes(db: MemoryDatabase, place: MemoryPlace, model: str, after: int) -> list[IndexRow]:
    """Return what changed in a place after a revision."""
    condition, values = build_places_sql([place])
    return list_index_rows(db, f"{condition} AND m.revision > ?", [*values, after], model)


def list_index_rows(
    db: MemoryDatabase, condition: str, values: Sequence[object], model: str
) -> list[IndexRow]:
    """Return what ranking needs of memories that meet a condition, oldest change first."""
    found = db.execute(
        f"SELECT m.row, m.session_id, {_SAID}, m.created, m.valid_from, m.valid_to,"
        " CASE WHEN m.is_pinned THEN NULL ELSE m.expires END,"
        " m.importance, m.previous, m.forgotten, m.revision,"
        f" v.vector, length(m.content), {db.last_character} IN ('?', '\uff1f', '\u061f')"
        " FROM memories m LEFT JOIN vectors v"
        " ON v.tenant = m.tenant AND v.row = m.row AND v.model = ?"
        f" WHERE {condition} ORDER BY m.revision",
        [model, *values],
    )
    rows = []
    for values in map(list, found):
        if values[_VECTOR] is not None:
            values[_VECTOR] = db.read_vector(values[_VECTOR])
        rows.append(IndexRow(*values))
    return rows


def list_unembedded(
    db: MemoryDatabase, model: str, limit: int, after: int, *, needs_tokens: bool
) -> list[Unembedded]:
    """Return memories that have no vector or tokens of a model and were not refused."""
    has_vector = "EXISTS (SELECT 1 FROM vectors v WHERE v.model = ? AND v.row = m.row)"
    has_tokens = "EXISTS (SELECT 1 FROM tokens t WHERE t.model = ? AND t.row = m.row)"
    found = db.execute(
        "SELECT m.row, m.tenant, m.content, m.scope, m.owner,"
        f" coalesce(m.inferred_speaker, ''), {has_vector}, m.revision FROM memories m"
        f" WHERE m.row > ? AND m.forgotten IS NULL"
        f" AND NOT ({has_vector} AND (NOT ? OR {has_tokens}))"
        " AND NOT EXISTS (SELECT 1 FROM refusals r"
        "  WHERE r.tenant = m.tenant AND r.row = m.row AND r.model = ?)"
        " ORDER BY m.row LIMIT ?",
        (model, after, model, needs_tokens, model, model, limit),
    ).fetchall()
    names: dict[tuple[str, ...], tuple[str, ...]] = {}
    for _, tenant, _, scope, owner, *_ in found:
        if (tenant, scope, owner) not in names:
            names[tenant, scope, owner] = list_speakers(db, [MemoryPlace(tenant, scope, owner)])
    return [
        Unembedded(
            row,
            tenant,
            drop_label(content) if inferred else content,
            names[tenant, scope, owner],
            bool(has),
            revision,
        )
        for row, tenant, content, scope, owner, inferred, has, revision in found
    ]


def list_spaces(db: MemoryDatabase) -> list[VectorSpace]:
    """Return the spaces of all vectors: one look into the index per model, not per vector."""
    found = db.execute(
        "WITH RECURSIVE models (model) AS (SELECT min(model) FROM vectors UNION ALL"
        " SELECT (SELECT min(v.model) FROM vectors v WHERE v.model > models.model)"
        " FROM models WHERE models.model IS NOT NULL)"
        " SELECT models.model, coalesce(s.dimension, 0), coalesce(s.provider, ''),"
        " coalesce(s.base_url, ''), coalesce(s.name, '')"
        " FROM models LEFT JOIN spaces s ON s.model = models.model"
        " WHERE models.model IS NOT NULL ORDER BY models.model"
    )
    return [
        VectorSpace(
            model_id=model, dimension=dimension, provider=provider, base_url=base_url, model=name
        )
        for model, dimension, provider, base_url, name in found
    ]


def list_speakers(
    db: MemoryDatabase, places: Sequence[MemoryPlace], limit: int = 50
) -> tuple[str, ...]:
    """Return who speaks in some places."""
    condition, values = build_places_sql(places)
    found = db.execute(
        f"SELECT DISTINCT {_SAID} FROM memories m WHERE {condition} AND {_SAID} != '' LIMIT ?",
        [*values, limit],
    )
    return tuple(row[0] for row in found)


def make_stats(db: MemoryDatabase, tenant: str, file_bytes: int) -> MemoryStats:
    """Count what is there."""
    counts = db.execute(
        "SELECT count(*) FILTER (WHERE forgotten IS NULL),"
        " count(*) FILTER (WHERE forgotten IS NOT NULL),"
        " count(*) FILTER (WHERE superseded_by != '' AND forgotten IS NULL),"
        " count(*) FILTER (WHERE is_pinned AND forgotten IS NULL),"
        " coalesce(sum(bytes) FILTER (WHERE forgotten IS NULL), 0)"
        " FROM memories WHERE tenant = ?",
        (tenant,),
    ).fetchone()
    models = db.execute(
        "SELECT model, count(*) FROM vectors WHERE tenant = ? GROUP BY model", (tenant,)
    )
    tokens = db.execute(
        "SELECT model, count(*) FROM tokens WHERE tenant = ? GROUP BY model", (tenant,)
    )
    refused = db.execute("SELECT count(*) FROM refusals WHERE tenant = ?", (tenant,))
    return MemoryStats(
        memories=counts[0],
        forgotten=counts[1],
        superseded=counts[2],
        pinned=counts[3],
        content_bytes=counts[4],
        file_bytes=file_bytes,
        vectors=dict(models.fetchall()),
        tokens=dict(tokens.fetchall()),
        refused=refused.fetchone()[0],
    )


def read_with_vector(
    db: MemoryDatabase, tenant: str, row: int, entry: MemoryEntry, model: str
) -> MemoryEntry:
    """Return a memory with its vector and tokens of a model, if it has any."""
    found = db.execute(
        "SELECT v.vector, t.tokens FROM vectors v LEFT JOIN tokens t"
        f" ON t.row = v.row AND {db.unindexed}t.model = v.model AND t.tenant = v.tenant"
        " WHERE v.tenant = ? AND v.row = ? AND v.model = ?",
        (tenant, row, model),
    ).fetchone()
    if found is None:
        return entry
    vector = db.read_vector(found[0])
    numbers = list(struct.unpack(f"<{len(vector) // 2}e", vector))
    return msgspec.structs.replace(entry, embedding=numbers, tokens=found[1])
