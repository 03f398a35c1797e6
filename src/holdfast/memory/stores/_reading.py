"""Questions to the file of memories: which rows, and what stands in them."""

from __future__ import annotations

import functools
import math
import sqlite3
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from holdfast.canonical import JsonObject
from holdfast.memory.dialogue import StoredLine, drop_label
from holdfast.memory.entry import MemoryEntry, Provenance
from holdfast.memory.space import VectorSpace
from holdfast.memory.storage import (
    IndexRow,
    LexicalHit,
    MemoryFilter,
    MemoryPassage,
    MemoryPlace,
    MemoryStats,
    Unembedded,
    WordCounts,
)
from holdfast.memory.words import match_expression, match_place, match_word, name_place

_COLUMNS = """m.row, m.id, m.session_id, m.content, m.metadata, m.created, m.scope, m.owner,
    m.kind, m.speaker, m.importance, m.is_pinned, m.valid_from, m.valid_to, m.expires,
    m.supersedes, m.superseded_by, m.provenance, m.forgotten,
    (SELECT p.id FROM memories p WHERE p.row = m.previous)"""
_metadata = msgspec.json.Decoder(JsonObject)
_provenance = msgspec.json.Decoder(Provenance)
_CHUNK = 500
_MANY = 1_000
"""So many rows a search weighs, beyond those of its rarest word."""
_PASSAGE_CHARACTERS = 2_000
_LINE_CHARACTERS = 64
"""The label of a line is in its beginning."""


def describe_places(tenant: str, scope: str, owner: str) -> str:
    """Return the words that mark a row's place in the index."""
    own = name_place(tenant, scope, owner)
    return f"{own} {name_place(tenant, 'session')}" if scope == "session" else own


def search_word(place: MemoryPlace) -> str:
    """Return the word by which rows of a place are found."""
    if place.owner is None:
        return name_place(place.tenant, place.scope)
    return name_place(place.tenant, place.scope, place.owner)


def build_places_sql(places: Sequence[MemoryPlace], *, sign: str = "") -> tuple[str, list[object]]:
    """Return the SQL condition for rows of some places; with the sign `+` not by an index."""
    parts, values = [], []
    for place in places:
        text = f"{sign}m.tenant = ? AND {sign}m.scope = ?"
        values += [place.tenant, place.scope]
        if place.owner is not None:
            text += f" AND {sign}m.owner = ?"
            values.append(place.owner)
        parts.append(f"({text})")
    return f"({' OR '.join(parts) or '0'})", list(values)


def list_passing(where: MemoryFilter, now: float) -> tuple[str, list[object]]:
    """Return the SQL condition of a filter; values are bound, never written into it."""
    parts = ["m.forgotten IS NULL", "(m.expires IS NULL OR m.expires > ? OR m.is_pinned)"]
    values: list[object] = [now]
    if not where.include_superseded:
        at = now if where.as_of is None else where.as_of
        parts.append("m.valid_from <= ? AND (m.valid_to IS NULL OR m.valid_to > ?)")
        values += [at, at]
    said = "iif(m.speaker = '', coalesce(m.inferred_speaker, ''), m.speaker)"
    for column, wanted in (("m.kind", where.kinds), (said, where.speakers)):
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
        values.append(int(where.pinned))
    for key, value in where.metadata.items():
        parts.append(
            "EXISTS (SELECT 1 FROM json_each(m.metadata) j"
            " WHERE j.key = ? AND j.value IS ? AND j.type IN "
            f"({_list_json_types(value)}))"
        )
        values += [key, value]
    return " AND ".join(parts), values


def _list_json_types(value: object) -> str:
    """Return the JSON types that a value may have; 1 and true are not the same."""
    if isinstance(value, bool):
        return "'true', 'false'"
    if isinstance(value, int | float):
        return "'integer', 'real'"
    return "'null'" if value is None else "'text'"


def list_entries(
    db: sqlite3.Connection, condition: str, values: Sequence[object], tail: str = ""
) -> dict[int, MemoryEntry]:
    """Return whole memories by row, in the order of the query."""
    found = db.execute(f"SELECT {_COLUMNS} FROM memories m WHERE {condition} {tail}", values)
    rows = found.fetchall()
    links = _read_links(db, [row[0] for row in rows])
    return {row[0]: _make_entry(row, links.get(row[0], {})) for row in rows}


def read_entries_by(
    db: sqlite3.Connection,
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


def index_by_id(db: sqlite3.Connection, tenant: str, ids: Sequence[str]) -> dict[int, MemoryEntry]:
    """Return memories of a tenant by their ids, tombstones too."""
    return read_entries_by(db, "id", ids, "m.tenant = ?", [tenant])


def index_by_row(
    db: sqlite3.Connection, places: Sequence[MemoryPlace], rows: Sequence[int]
) -> dict[int, MemoryEntry]:
    """Return living memories of some places by their rows."""
    # The sign keeps SQLite from walking through whole places instead of looking rows up.
    condition, values = build_places_sql(places, sign="+")
    return read_entries_by(db, "row", rows, f"{condition} AND m.forgotten IS NULL", values)


def list_rows_where(
    db: sqlite3.Connection, places: Sequence[MemoryPlace], where: MemoryFilter, now: float
) -> list[int]:
    """Return the rows of some places that pass a filter, ascending."""
    place, values = build_places_sql(places)
    condition, more = list_passing(where, now)
    sql = f"SELECT m.row FROM memories m WHERE {place} AND {condition} ORDER BY m.row"
    return [row for (row,) in db.execute(sql, [*values, *more])]


def _read_links(db: sqlite3.Connection, rows: Sequence[int]) -> dict[int, dict[str, list[str]]]:
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


def compute_revision(db: sqlite3.Connection) -> int:
    """Return the number of the last change."""
    last: int = db.execute("SELECT last FROM revisions").fetchone()[0]
    return last


class IndexStatistics:
    """Which places hold few memories, and how many hold a word; known until anything changes."""

    def __init__(self) -> None:
        """Know nothing."""
        self._revision = -1
        self._small: dict[tuple[str, ...], bool] = {}
        self._counts: dict[str, int] = {}

    def are_small(self, db: sqlite3.Connection, marks: tuple[str, ...]) -> bool:
        """Say whether the places with these marks hold few memories together."""
        self._keep_up(db)
        if marks not in self._small:
            self._small[marks] = sum(_count(db, match_place(mark)) for mark in marks) < _MANY
        return self._small[marks]

    def count(self, db: sqlite3.Connection, word: str) -> int:
        """Return how many memories hold a word, or that they are many."""
        self._keep_up(db)
        if word not in self._counts:
            self._counts[word] = _count(db, match_word(word))
        return self._counts[word]

    def _keep_up(self, db: sqlite3.Connection) -> None:
        # Asked first: what is counted is at least as new.
        last = compute_revision(db)
        if last != self._revision or len(self._small) + len(self._counts) >= _MANY:
            self._revision = last
            self._small.clear()
            self._counts.clear()


def search_lexical(
    db: sqlite3.Connection,
    places: Sequence[MemoryPlace],
    words: Sequence[str],
    known: IndexStatistics,
) -> list[LexicalHit]:
    """Return how well rows fit the words, alone and together with the turn before."""
    if not words or not places:
        return []
    marks = tuple(search_word(place) for place in places)
    # Rows of other places are refused by their own columns in any case. Where a place is
    # small, its mark in the index also keeps them from being weighed, so that a word counts
    # however often other places hold it; a large one's mark would cost more than it saves.
    query = (
        match_expression(marks, words)
        if known.are_small(db, marks)
        else match_expression([], _select_telling(db, words, known))
    )
    condition, values = build_places_sql(places)
    # SQLite's scores are better the lower they are.
    found = db.execute(
        "SELECT words.rowid, -bm25(words, 0.0, 1.0, 0.0), -bm25(words, 0.0, 1.0, 1.0)"
        " FROM words CROSS JOIN memories m ON m.row = words.rowid"
        f" WHERE words MATCH ? AND {condition}",
        [query, *values],
    )
    # `tuple.__new__` without a call of Python per row: there may be a thousand.
    return list(map(functools.partial(tuple.__new__, LexicalHit), found.fetchall()))


def _count(db: sqlite3.Connection, query: str) -> int:
    """Return how many rows a query finds, or that they are many."""
    sql = "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)"
    found: int = db.execute(sql, (query, _MANY)).fetchone()[0]
    return found


def _select_telling(
    db: sqlite3.Connection, words: Sequence[str], known: IndexStatistics
) -> Sequence[str]:
    """Return the rarer words where all together would match more than a search can weigh.

    A word that half of all memories hold says little and costs much.
    """
    if _find_last_row(db) <= _MANY or len(words) < 2:
        return words
    counts = [(known.count(db, word), word) for word in words]
    chosen: list[str] = []
    total = 0
    for count, word in sorted(counts):
        if chosen and total + count > _MANY:
            break
        if count:
            chosen.append(word)
            total += count
    return chosen or words


def _find_last_row(db: sqlite3.Connection) -> int:
    last: int = db.execute("SELECT max(row) FROM memories").fetchone()[0] or 0
    return last


def count_words(db: sqlite3.Connection, words: Sequence[str], known: IndexStatistics) -> WordCounts:
    """Return how many memories hold each word, over the whole file."""
    total = _find_last_row(db)
    counts = {word: known.count(db, word) for word in words}
    # Counting ends at some number: from there to all, the geometric mean is a fair guess.
    many = round(math.sqrt(_MANY * max(total, _MANY)))
    return WordCounts(
        {word: many if count >= _MANY else count for word, count in counts.items()}, total
    )


def list_passages(
    db: sqlite3.Connection, places: Sequence[MemoryPlace], rows: Sequence[int], model: str
) -> dict[int, MemoryPassage]:
    """Return the texts of living memories of some places, with tokens of a model."""
    condition, values = build_places_sql(places, sign="+")
    found: dict[int, MemoryPassage] = {}
    for start in range(0, len(rows), _CHUNK):
        chunk = rows[start : start + _CHUNK]
        sql = (
            f"SELECT m.row, substr(m.content, 1, {_PASSAGE_CHARACTERS}), t.tokens"
            " FROM memories m LEFT JOIN tokens t ON t.row = m.row AND +t.model = ?"
            f" WHERE m.row IN ({', '.join('?' * len(chunk))}) AND {condition}"
            " AND m.forgotten IS NULL"
        )
        for row, *rest in db.execute(sql, [model, *chunk, *values]).fetchall():
            found[row] = tuple.__new__(MemoryPassage, rest)
    return found


def list_tokens(
    db: sqlite3.Connection, tenants: Collection[str], rows: Sequence[int], model: str
) -> dict[int, bytes]:
    """Return the tokens of memories of some tenants; forgotten ones have none."""
    found: dict[int, bytes] = {}
    for start in range(0, len(rows), _CHUNK):
        chunk = rows[start : start + _CHUNK]
        sql = (
            f"SELECT row, tokens FROM tokens WHERE row IN ({', '.join('?' * len(chunk))})"
            f" AND +model = ? AND tenant IN ({', '.join('?' * len(tenants))})"
        )
        found.update(db.execute(sql, [*chunk, model, *tenants]).fetchall())
    return found


def list_lines_before(
    db: sqlite3.Connection, session: tuple[str, str, str, str], row: int, limit: int
) -> list[StoredLine]:
    """Return the beginnings of the last lines of a session before a row, newest first.

    A line whose speaker was named is empty: it needs no guessing, and ends a run of labels.
    """
    found = db.execute(
        f"SELECT row, iif(speaker = '', substr(content, 1, {_LINE_CHARACTERS}), ''),"
        " coalesce(inferred_speaker, '') FROM memories INDEXED BY memories_by_session"
        " WHERE tenant = ? AND scope = ? AND owner = ? AND session_id = ? AND row < ?"
        " AND forgotten IS NULL ORDER BY row DESC LIMIT ?",
        (*session, row, limit),
    )
    return [StoredLine(*line) for line in found]


def list_changes(
    db: sqlite3.Connection, place: MemoryPlace, model: str, after: int
) -> list[IndexRow]:
    """Return what changed in a place after a revision."""
    condition, values = build_places_sql([place])
    found = db.execute(
        "SELECT m.row, m.session_id,"
        " iif(m.speaker = '', coalesce(m.inferred_speaker, ''), m.speaker),"
        " m.created, m.valid_from, m.valid_to,"
        " iif(m.is_pinned, NULL, m.expires), m.importance, m.previous, m.forgotten, m.revision,"
        " v.vector, length(m.content),"
        " substr(rtrim(m.content), -1) IN ('?', '\uff1f', '\u061f')"
        " FROM memories m LEFT JOIN vectors v"
        " ON v.tenant = m.tenant AND v.row = m.row AND v.model = ?"
        f" WHERE {condition} AND m.revision > ? ORDER BY m.revision",
        [model, *values, after],
    )
    return [IndexRow(*row) for row in found]


def list_unembedded(
    db: sqlite3.Connection, model: str, limit: int, after: int, *, needs_tokens: bool
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
            names[tenant, scope, owner] = _list_speakers(db, tenant, scope, owner)
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


def list_spaces(db: sqlite3.Connection) -> list[VectorSpace]:
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


def _list_speakers(db: sqlite3.Connection, tenant: str, scope: str, owner: str) -> tuple[str, ...]:
    found = db.execute(
        "SELECT DISTINCT iif(speaker = '', coalesce(inferred_speaker, ''), speaker) AS said"
        " FROM memories WHERE tenant = ? AND scope = ? AND owner = ? AND said != '' LIMIT 50",
        (tenant, scope, owner),
    )
    return tuple(row[0] for row in found)


def make_stats(db: sqlite3.Connection, tenant: str, file_bytes: int) -> MemoryStats:
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
