"""Postgres as a database of memories: its index of words (tsvector), and what else is its own.

The words of a memory are cut here and stemmed by the server, as SQLite does it, and ranked by the
same formula (BM25), so that the same question finds the same memories in both.
"""

from __future__ import annotations

import array
import functools
import math
import re
import struct
import sys
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec
import psycopg

from holdfast.memory.storage import LexicalHit, MemoryPlace, WordCounts
from holdfast.memory.stores._database import Rows
from holdfast.memory.stores._reading import (
    build_places_sql,
    name_mark,
    read_revision,
    select_telling,
)
from holdfast.memory.words import is_pair_start

_MARKS = re.compile(r"'[^']*'|\?|%")
_WORD = re.compile(r"[^\W_]+")
_MANY = 1_000
"""So many rows a search weighs, beyond those of its rarest word."""
_MOST_COUNTED = 20_000
"""Up to so many memories that hold a word are counted; beyond, their number is a guess."""
_MOST_PLACES = 16_383
"""A tsvector knows no later place of a word."""
_MOST_TEXT = 400_000
"""Bytes of words; a tsvector holds a megabyte."""
_LONGEST_WORD = 250
_MOST_STEMS = 50_000
# As SQLite weighs words (BM25).
_SATURATION = 1.2
_BY_LENGTH = 0.75
_LEAST_WEIGHT = 1e-6


class PostgresDatabase:
    """One connection to Postgres inside a transaction; see `MemoryDatabase`."""

    unindexed = ""
    last_character = "right(rtrim(m.content), 1)"

    def __init__(
        self, connection: psycopg.Connection[tuple[Any, ...]], known: WordStatistics
    ) -> None:
        """Ask this connection; `known` is kept between transactions."""
        self._connection = connection
        self._known = known

    def execute(self, sql: str, values: Sequence[object] = ()) -> Rows:
        """Run a statement."""
        return cast("Rows", self._connection.execute(_mark_values(sql), values))

    def require_index(self, name: str) -> str:
        """Nothing: the server chooses."""
        return ""

    def build_metadata_sql(
        self, key: str, value: str | int | float | bool | None
    ) -> tuple[str, list[object]]:
        """Return the condition that metadata holds a value."""
        found = "(m.metadata::json -> ?::text)"
        if isinstance(value, int | float) and not isinstance(value, bool):
            is_number = f"json_typeof{found} = 'number'"
            holds = f"CASE WHEN {is_number} THEN {found}::text::numeric = ? ELSE FALSE END"
            return holds, [key, key, value]
        # What is kept was written by the same encoder.
        return f"coalesce({found}::text = ?, FALSE)", [key, msgspec.json.encode(value).decode()]

    def insert_memory(self, sql: str, values: Sequence[object]) -> int:
        """Insert a memory and return its row."""
        return int(self.execute(f"{sql} RETURNING row", values).fetchone()[0])

    def insert_vector(self, tenant: str, row: int, model: str, vector: bytes) -> None:
        """Keep a vector."""
        self.execute(
            "INSERT INTO vectors (tenant, row, model, dimension, embedding) VALUES (?, ?, ?, ?, ?)",
            (tenant, row, model, len(vector) // 2, self.write_vector(vector)),
        )

    def write_vector(self, vector: bytes) -> str:
        """Return a vector as pgvector reads it."""
        return f"[{','.join(map(repr, struct.unpack(f'<{len(vector) // 2}e', vector)))}]"

    def read_vector(self, found: bytes) -> bytes:
        """Return a vector from the form in which the server sends it: big-endian, with a head."""
        numbers = array.array("H", found[4:])
        if sys.byteorder == "little":
            numbers.byteswap()
        return numbers.tobytes()

    # --- words ------------------------------------------------------------------------

    def index_words(self, row: int, marks: str, own: str, before: str) -> None:
        """Let a memory be found by its words."""
        said, behind = _limit(_cut(own), _MOST_TEXT), _limit(_cut(before), _MOST_TEXT // 8)
        counts = len(marks.split()) + len(said), len(behind)
        text = self._make_vector([*marks.split(), self._known.mark], said, behind)
        self.execute(
            "INSERT INTO words (row, own, before, words) VALUES (?, ?, ?, ?::tsvector)",
            (row, *counts, text),
        )
        self.execute(
            "UPDATE revisions SET indexed = indexed + 1, words = words + ?", (sum(counts),)
        )

    def index_before(self, row: int, before: str) -> None:
        """Replace the words that stand before a memory."""
        found = self.execute("SELECT before FROM words WHERE row = ?", (row,)).fetchone()
        if found is None:
            return
        behind = _limit(_cut(before), _MOST_TEXT // 8)
        # What is there keeps its places; what is new stands behind all of them.
        self.execute(
            "UPDATE words SET words = ts_filter(words, '{a,d}') || ?::tsvector, before = ?"
            " WHERE row = ?",
            (self._make_vector((), (), behind), len(behind), row),
        )
        self.execute("UPDATE revisions SET words = words + ?", (len(behind) - found[0],))

    def drop_words(self, row: int) -> None:
        """Let a memory no longer be found by words."""
        gone = "DELETE FROM words WHERE row = ? RETURNING own + before"
        found = self.execute(gone, (row,)).fetchone()
        if found is not None:
            self.execute(
                "UPDATE revisions SET indexed = indexed - 1, words = words - ?", (found[0],)
            )

    def clear_words(self) -> None:
        """Empty the index of words."""
        self.execute("DELETE FROM words")
        self.execute("UPDATE revisions SET indexed = 0, words = 0")

    def search_lexical(
        self, places: Sequence[MemoryPlace], words: Sequence[str]
    ) -> list[LexicalHit]:
        """Return how well rows fit the words, alone and together with the turn before."""
        terms = [term for term in dict.fromkeys(self._make_terms(words)) if term.parts]
        if not terms or not places:
            return []
        self._known.keep_up(self)
        counts = self._count(terms)
        marks = " | ".join(sorted({f"'{name_mark(place)}'" for place in places}))
        where = f"'{self._known.mark}' & ({marks})"
        if self._known.indexed > _MANY and not self._is_small(where):
            terms = select_telling(counts, _MANY) or terms
        weights = {term: self._weigh(counts[term]) for term in terms}
        condition, values = build_places_sql(places)
        lexemes = [part for term in terms if not term.is_prefix for part in term.parts]
        prefixes = [f"{term.parts[0]}%" for term in terms if term.is_prefix]
        rows = self.execute(
            "SELECT w.row, w.own + w.before, u.lexeme,"
            " cardinality(array_positions(u.weights, 'A')),"
            " cardinality(array_positions(u.weights, 'B'))"
            " FROM words w JOIN memories m ON m.row = w.row, unnest(w.words) u"
            " WHERE w.words @@ ?::tsquery"
            f" AND {condition} AND (u.lexeme = ANY(?) OR u.lexeme LIKE ANY(?)) ORDER BY w.row",
            (_make_query(where, terms), *values, lexemes, prefixes),
        )
        return self._score(rows.fetchall(), weights)

    def count_words(self, words: Sequence[str]) -> WordCounts:
        """Return how many memories hold each word."""
        self._known.keep_up(self)
        terms = self._make_terms(words)
        counts = self._count(terms)
        return WordCounts(
            {word: counts.get(term, 0) for word, term in zip(words, terms, strict=True)},
            self._known.indexed,
        )

    # --- inside -----------------------------------------------------------------------

    def _make_vector(self, marks: Sequence[str], said: Sequence[str], behind: Sequence[str]) -> str:
        """Return the words of a memory as a tsvector."""
        stems = self._stem([*said, *behind])
        places: dict[str, list[str]] = {mark: ["1"] for mark in marks}
        # A gap, so that no phrase goes from the one into the other.
        for words, start, weight in ((said, 2, "A"), (behind, len(said) + 3, "B")):
            for place, word in enumerate(words, start):
                places.setdefault(stems[word], []).append(f"{min(place, _MOST_PLACES)}{weight}")
        return " ".join(f"'{word}':{','.join(spots)}" for word, spots in places.items())

    def _stem(self, words: Sequence[str]) -> dict[str, str]:
        """Return the stems of words, from memory where they are known."""
        stems = self._known.stems
        fresh = list({word for word in words if word not in stems})
        if len(stems) + len(fresh) > _MOST_STEMS:
            stems.clear()
            fresh = list(set(words))
        if fresh:
            # As in SQLite, what is very short or long is left as it is.
            found = self.execute(
                "SELECT w, CASE WHEN octet_length(w) BETWEEN 3 AND 64"
                " THEN coalesce((ts_lexize('holdfast_memory.stem', w))[1], w) ELSE w END"
                " FROM unnest(?::text[]) w",
                (fresh,),
            )
            stems.update(found.fetchall())
        return {word: stems[word] for word in words}

    def _make_terms(self, words: Sequence[str]) -> list[_Term]:
        """Return what is looked for, one for each word of a question."""
        cut = [_cut(word) for word in words]
        stems = self._stem([part for parts in cut for part in parts])
        return [
            _Term(
                tuple(stems[part] for part in parts),
                is_prefix=len(parts) == 1 and is_pair_start(parts[0]),
            )
            for parts in cut
        ]

    def _count(self, terms: Sequence[_Term]) -> dict[_Term, int]:
        """Return how many memories of this tenant hold each of some terms."""
        known = self._known.counts
        fresh = [term for term in dict.fromkeys(terms) if term.parts and term not in known]
        if fresh:
            own = f"'{self._known.mark}'"
            found = self.execute(
                "SELECT i.number, (SELECT count(*) FROM (SELECT 1 FROM words w"
                " WHERE w.words @@ i.query LIMIT ?) s)"
                " FROM unnest(?::tsquery[]) WITH ORDINALITY i(query, number)",
                (_MOST_COUNTED, [_make_query(own, [term]) for term in fresh]),
            )
            total = max(self._known.indexed, _MOST_COUNTED)
            # Counting ends at some number: from there to all, the geometric mean is a fair guess.
            many = round(math.sqrt(_MOST_COUNTED * total))
            for number, count in found.fetchall():
                known[fresh[number - 1]] = many if count >= _MOST_COUNTED else count
        return {term: known[term] for term in terms if term.parts}

    def _is_small(self, where: str) -> bool:
        """Say whether the places with these marks hold few memories together."""
        small = self._known.small
        if where not in small:
            found = self.execute(
                "SELECT count(*) FROM"
                " (SELECT 1 FROM words w WHERE w.words @@ ?::tsquery LIMIT ?) s",
                (where, _MANY),
            )
            small[where] = found.fetchone()[0] < _MANY
        return small[where]

    def _weigh(self, count: int) -> float:
        """Return how much a word says that so many memories hold."""
        total = max(self._known.indexed, count)
        return max(math.log((total - count + 0.5) / (count + 0.5)), _LEAST_WEIGHT)

    def _score(
        self, rows: Sequence[tuple[int, int, str, int, int]], weights: Mapping[_Term, float]
    ) -> list[LexicalHit]:
        """Return the scores of memories, from how often each holds the words."""
        average = max(self._known.words / max(self._known.indexed, 1), 1.0)
        held: dict[int, tuple[int, Counter[str], Counter[str]]] = {}
        for row, count, lexeme, own, before in rows:
            one = held.setdefault(row, (count, Counter(), Counter()))
            one[1][lexeme] += own
            one[2][lexeme] += own + before
        hits = []
        for row, (count, *columns) in held.items():
            length = _SATURATION * (1.0 - _BY_LENGTH + _BY_LENGTH * count / average)
            scores = [
                sum(
                    weight * often * (_SATURATION + 1.0) / (often + length)
                    for term, weight in weights.items()
                    if (often := term.count(column))
                )
                for column in columns
            ]
            hits.append(LexicalHit(row, *scores))
        return hits


class _Term(NamedTuple):
    """A word that is looked for: its stem, several in a row, or the beginning of one."""

    parts: tuple[str, ...]
    is_prefix: bool

    @property
    def query(self) -> str:
        """The term as a tsquery; its parts are letters and digits."""
        if self.is_prefix:
            return f"'{self.parts[0]}':*"
        return f"({' <-> '.join(repr(part) for part in self.parts)})"

    def count(self, column: Counter[str]) -> int:
        """Return how often it stands among the words of a memory; of several in a row about."""
        if self.is_prefix:
            return sum(n for word, n in column.items() if word.startswith(self.parts[0]))
        return min(column[part] for part in self.parts)


class WordStatistics:
    """What is known of the words of one tenant, until anything changes; and stems, which do not."""

    def __init__(self, mark: str) -> None:
        """Know nothing; the mark stands in the index for the tenant as a whole."""
        self.mark = mark
        self.stems: dict[str, str] = {}
        self.counts: dict[_Term, int] = {}
        self.small: dict[str, bool] = {}
        self.indexed = 0
        self.words = 0
        self._revision = -1

    def keep_up(self, db: PostgresDatabase) -> None:
        """Forget what may have changed."""
        # Asked first: what is counted is at least as new.
        last = read_revision(db)
        if last != self._revision or len(self.counts) + len(self.small) >= _MOST_STEMS:
            self.counts, self.small = {}, {}
            found = db.execute("SELECT indexed, words FROM revisions").fetchone()
            self.indexed, self.words = found
            self._revision = last


@functools.lru_cache(maxsize=512)
def _mark_values(sql: str) -> str:
    """Return a statement with the marks for values that the driver knows."""
    return _MARKS.sub(
        lambda found: _MARK[found[0]] if found[0] in _MARK else found[0].replace("%", "%%"), sql
    )


_MARK = {"?": "%s", "%": "%%"}


def _cut(text: str) -> list[str]:
    """Return the words of a text, without case and accents."""
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text)
        text = "".join(one for one in text if unicodedata.category(one) != "Mn")
    return [word[:_LONGEST_WORD] for word in _WORD.findall(text.casefold())]


def _limit(words: list[str], most: int) -> list[str]:
    """Return the first words, as many as an index takes."""
    total = 0
    for number, word in enumerate(words):
        total += len(word.encode()) + 8
        if total > most:
            return words[:number]
    return words


def _make_query(where: str, terms: Sequence[_Term]) -> str:
    return f"{where} & ({' | '.join(term.query for term in terms)})"


__all__ = ["PostgresDatabase", "WordStatistics"]
