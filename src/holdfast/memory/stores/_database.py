"""What the statements of this folder run on: two databases that understand the same SQL.

Statements are written once, with `?` for values, in what both SQLite and Postgres understand.
What they do not share (the index of words, vectors, a few functions) is behind these methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from holdfast.memory.storage import LexicalHit, MemoryPlace, WordCounts

if TYPE_CHECKING:
    import sqlite3

Rows: TypeAlias = "sqlite3.Cursor"
"""What a statement found; a cursor of psycopg is used in the same way."""


class MemoryDatabase(Protocol):
    """A connection inside one transaction, that sees one tenant of the database."""

    unindexed: str
    """Stands before a column that a query must not look up in an index; see SQLite's `+`."""
    last_character: str
    """The last character of a content that is no space."""

    def execute(self, sql: str, values: Sequence[object] = ()) -> Rows:
        """Run a statement."""
        ...

    def require_index(self, name: str) -> str:
        """Return what follows a table that has to be read by this index."""
        ...

    def build_metadata_sql(
        self, key: str, value: str | int | float | bool | None
    ) -> tuple[str, list[object]]:
        """Return the condition that metadata holds a value, which has a JSON type."""
        ...

    def insert_memory(self, sql: str, values: Sequence[object]) -> int:
        """Run a statement that inserts a memory, and return its row."""
        ...

    def insert_vector(self, tenant: str, row: int, model: str, vector: bytes) -> None:
        """Keep a vector of a memory that has none of this model."""
        ...

    def write_vector(self, vector: bytes) -> object:
        """Return little-endian float16 as a column keeps it."""
        ...

    def read_vector(self, found: bytes) -> bytes:
        """Return a vector, as it was found in a column, as little-endian float16."""
        ...

    # --- words ------------------------------------------------------------------------

    def index_words(self, row: int, marks: str, own: str, before: str) -> None:
        """Let a memory be found by its words, by those before it, and by the marks of its place."""
        ...

    def index_before(self, row: int, before: str) -> None:
        """Replace the words that stand before a memory."""
        ...

    def drop_words(self, row: int) -> None:
        """Let a memory no longer be found by words."""
        ...

    def clear_words(self) -> None:
        """Empty the index of words, also where it is broken."""
        ...

    def search_lexical(
        self, places: Sequence[MemoryPlace], words: Sequence[str]
    ) -> list[LexicalHit]:
        """Return how well rows fit the words, alone and together with the turn before."""
        ...

    def count_words(self, words: Sequence[str]) -> WordCounts:
        """Return how many memories hold each word."""
        ...


__all__ = ["MemoryDatabase", "Rows"]
