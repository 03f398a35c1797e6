"""SQLite as a database of memories: its index of words (FTS5), and what else is its own."""

from __future__ import annotations

import functools
import math
import sqlite3
from collections.abc import Sequence

from holdfast.memory.storage import LexicalHit, MemoryPlace, WordCounts
from holdfast.memory.stores._reading import (
    build_places_sql,
    name_mark,
    read_revision,
    select_telling,
)
from holdfast.memory.words import match_expression, match_place, match_word

_MANY = 1_000
"""So many rows a search weighs, beyond those of its rarest word."""
_FEW_SEGMENTS = 4
"""So many parts of the index of words cost a search next to nothing."""
_MERGED_AT_ONCE = 500
"""Pages of the index; some milliseconds for which no other process can write."""


class SqliteDatabase:
    """One connection to a file of memories; see `MemoryDatabase`."""

    unindexed = "+"
    last_character = "substr(rtrim(m.content), -1)"

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Ask this connection, in whatever transaction it is."""
        self.connection = connection
        self.execute = connection.execute
        self.statistics = IndexStatistics()

    def require_index(self, name: str) -> str:
        """Name the index that has to be used."""
        return f"INDEXED BY {name}"

    def build_metadata_sql(
        self, key: str, value: str | int | float | bool | None
    ) -> tuple[str, list[object]]:
        """Return the condition that metadata holds a value."""
        holds = (
            "EXISTS (SELECT 1 FROM json_each(m.metadata) j WHERE j.key = ? AND j.value IS ?"
            f" AND j.type IN ({_list_json_types(value)}))"
        )
        return holds, [key, value]

    def insert_memory(self, sql: str, values: Sequence[object]) -> int:
        """Insert a memory and return its row."""
        row = self.execute(sql, values).lastrowid
        assert row is not None
        return row

    def insert_vector(self, tenant: str, row: int, model: str, vector: bytes) -> None:
        """Keep a vector."""
        self.execute(
            "INSERT INTO vectors VALUES (?, ?, ?, ?, ?)",
            (tenant, row, model, len(vector) // 2, vector),
        )

    def write_vector(self, vector: bytes) -> bytes:
        """Return a vector, which is kept as it is."""
        return vector

    def read_vector(self, found: bytes) -> bytes:
        """Return a vector, which is kept as it is used."""
        return found

    # --- words ------------------------------------------------------------------------

    def index_words(self, row: int, marks: str, own: str, before: str) -> None:
        """Let a memory be found by its words."""
        self.execute(
            "INSERT INTO words (rowid, place, own, before) VALUES (?, ?, ?, ?)",
            (row, marks, own, before),
        )

    def index_before(self, row: int, before: str) -> None:
        """Replace the words that stand before a memory."""
        self.execute("UPDATE words SET before = ? WHERE rowid = ?", (before, row))

    def drop_words(self, row: int) -> None:
        """Let a memory no longer be found by words."""
        self.execute("DELETE FROM words WHERE rowid = ?", (row,))

    def clear_words(self) -> None:
        """Empty the index of words, also where it is broken."""
        create = self.execute("SELECT sql FROM sqlite_master WHERE name = 'words'").fetchone()[0]
        self.execute("DROP TABLE words")
        self.execute(create)
        if sqlite3.sqlite_version_info >= (3, 42):
            self.execute("INSERT INTO words (words, rank) VALUES ('secure-delete', 1)")

    def search_lexical(
        self, places: Sequence[MemoryPlace], words: Sequence[str]
    ) -> list[LexicalHit]:
        """Return how well rows fit the words, alone and together with the turn before."""
        if not words or not places:
            return []
        marks = tuple(name_mark(place) for place in places)
        # Rows of other places are refused by their own columns in any case. Where a place is
        # small, its mark in the index also keeps them from being weighed, so that a word counts
        # however often other places hold it; a large one's mark would cost more than it saves.
        query = (
            match_expression(marks, words)
            if self.statistics.are_small(self, marks)
            else match_expression([], self._select_telling(words))
        )
        condition, values = build_places_sql(places)
        # SQLite's scores are better the lower they are.
        found = self.execute(
            "SELECT words.rowid, -bm25(words, 0.0, 1.0, 0.0), -bm25(words, 0.0, 1.0, 1.0)"
            " FROM words CROSS JOIN memories m ON m.row = words.rowid"
            f" WHERE words MATCH ? AND {condition}",
            [query, *values],
        )
        # `tuple.__new__` without a call of Python per row: there may be a thousand.
        return list(map(functools.partial(tuple.__new__, LexicalHit), found.fetchall()))

    def count_words(self, words: Sequence[str]) -> WordCounts:
        """Return how many memories hold each word, over the whole file."""
        total = self._find_last_row()
        counts = {word: self.statistics.count(self, word) for word in words}
        # Counting ends at some number: from there to all, the geometric mean is a fair guess.
        many = round(math.sqrt(_MANY * max(total, _MANY)))
        return WordCounts(
            {word: many if count >= _MANY else count for word, count in counts.items()}, total
        )

    def begin_merging(self) -> bool:
        """Begin to merge the index of words if a search has to look into many parts of it.

        Not before a tenth of its pages is outside of the largest part, which small parts reach
        sooner than a tenth of the memories. Returns whether there may be more to do.
        """
        sql = "SELECT count(*) FROM words_idx GROUP BY segid"
        parts = [pages for (pages,) in self.execute(sql)]
        if len(parts) <= _FEW_SEGMENTS or max(parts) > 0.9 * sum(parts):
            return False
        return self._merge(-_MERGED_AT_ONCE)

    def go_on_merging(self) -> bool:
        """Merge some more of the index of words; returns whether there may be more to do."""
        return self._merge(_MERGED_AT_ONCE)

    def merge_all(self) -> None:
        """Merge the whole index of words, so that nothing removed is left in it."""
        self.execute("INSERT INTO words (words) VALUES ('optimize')")

    def _merge(self, pages: int) -> bool:
        before = self.connection.total_changes
        # A negative number begins anew with all parts, a positive one goes on with what has begun.
        self.execute("INSERT INTO words (words, rank) VALUES ('merge', ?)", (pages,))
        # The statement itself is one change.
        return self.connection.total_changes - before > 1

    def _select_telling(self, words: Sequence[str]) -> Sequence[str]:
        """Return the rarer words where all together would match more than a search can weigh.

        A word that half of all memories hold says little and costs much.
        """
        if self._find_last_row() <= _MANY or len(words) < 2:
            return words
        counts = {word: self.statistics.count(self, word) for word in words}
        return select_telling(counts, _MANY) or words

    def _find_last_row(self) -> int:
        last: int = self.execute("SELECT max(row) FROM memories").fetchone()[0] or 0
        return last


class IndexStatistics:
    """Which places hold few memories, and how many hold a word; known until anything changes."""

    def __init__(self) -> None:
        """Know nothing."""
        self._revision = -1
        self._small: dict[tuple[str, ...], bool] = {}
        self._counts: dict[str, int] = {}

    def are_small(self, db: SqliteDatabase, marks: tuple[str, ...]) -> bool:
        """Say whether the places with these marks hold few memories together."""
        self._keep_up(db)
        if marks not in self._small:
            self._small[marks] = sum(_count(db, match_place(mark)) for mark in marks) < _MANY
        return self._small[marks]

    def count(self, db: SqliteDatabase, word: str) -> int:
        """Return how many memories hold a word, or that they are many."""
        self._keep_up(db)
        if word not in self._counts:
            self._counts[word] = _count(db, match_word(word))
        return self._counts[word]

    def _keep_up(self, db: SqliteDatabase) -> None:
        # Asked first: what is counted is at least as new.
        last = read_revision(db)
        if last != self._revision or len(self._small) + len(self._counts) >= _MANY:
            self._revision = last
            self._small.clear()
            self._counts.clear()


def _count(db: SqliteDatabase, query: str) -> int:
    """Return how many rows a query finds, or that they are many."""
    sql = "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)"
    found: int = db.execute(sql, (query, _MANY)).fetchone()[0]
    return found


def _list_json_types(value: object) -> str:
    """Return the JSON types that a value may have; 1 and true are not the same."""
    if isinstance(value, bool):
        return "'true', 'false'"
    if isinstance(value, int | float):
        return "'integer', 'real'"
    return "'null'" if value is None else "'text'"


__all__ = ["SqliteDatabase"]
