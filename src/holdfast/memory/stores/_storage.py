"""A storage of memories over a database: what SQLite and Postgres have in common."""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from holdfast.memory.entry import MemoryEntry
from holdfast.memory.space import VectorSpace
from holdfast.memory.storage import (
    Choose,
    IndexRow,
    LexicalHit,
    MemoryDraft,
    MemoryFilter,
    MemoryPassage,
    MemoryPlace,
    MemoryStats,
    Purge,
    Relation,
    Unembedded,
    WordCounts,
)
from holdfast.memory.stores import _reading, _writing
from holdfast.memory.stores._database import MemoryDatabase

T = TypeVar("T")


class SqlMemoryStorage(abc.ABC):
    """Memories in a database that is asked in threads; who inherits it says how.

    A store is one transaction, during which no other process writes for the same tenant.
    """

    @abc.abstractmethod
    def run_reading(self, work: Callable[[MemoryDatabase], T]) -> T:
        """Do what only reads, in the thread of the caller."""

    @abc.abstractmethod
    def run_writing(self, work: Callable[[MemoryDatabase], T]) -> T:
        """Do something in one transaction, in the thread of the caller."""

    @abc.abstractmethod
    def measure_bytes(self) -> int:
        """Return how many bytes all of it takes."""

    # --- reading ----------------------------------------------------------------------

    async def get(self, tenant: str, ids: Sequence[str], *, model: str = "") -> list[MemoryEntry]:
        """Return memories by id, in the order asked for."""

        def read(db: MemoryDatabase) -> list[MemoryEntry]:
            found = {
                entry.id: entry
                if not model
                else _reading.read_with_vector(db, tenant, row, entry, model)
                for row, entry in _reading.index_by_id(db, tenant, list(ids)).items()
            }
            return [found[memory_id] for memory_id in ids if memory_id in found]

        return await self._read(read)

    async def find(
        self,
        places: Sequence[MemoryPlace],
        where: MemoryFilter,
        *,
        now: float,
        limit: int,
        after: str,
    ) -> list[MemoryEntry]:
        """Return memories, newest first."""

        def read(db: MemoryDatabase) -> list[MemoryEntry]:
            place, values = _reading.build_places_sql(places)
            condition, more = _reading.build_filter_sql(db, where, now)
            condition, values = f"{place} AND {condition}", [*values, *more]
            if after:
                condition += (
                    " AND (m.created, m.row) < (SELECT a.created, a.row FROM memories a"
                    " WHERE a.tenant = m.tenant AND a.id = ?)"
                )
                values.append(after)
            tail = "ORDER BY m.created DESC, m.row DESC LIMIT ?"
            return list(_reading.list_entries(db, condition, [*values, limit], tail).values())

        return await self._read(read)

    async def select(
        self,
        places: Sequence[MemoryPlace],
        words: Sequence[str],
        where: MemoryFilter,
        choose: Choose,
        *,
        now: float,
    ) -> dict[int, MemoryEntry]:
        """Return what is picked among the rows that hold words and pass a filter."""

        def work() -> dict[int, MemoryEntry]:
            hits = self.search_words(places, words)
            passing = None
            if not where.is_plain:
                passing = self.run_reading(
                    lambda db: _reading.list_rows_where(db, places, where, now)
                )
            # Others may read meanwhile.
            rows = choose(hits, passing, StorageLookup(self, places))
            if not rows:
                return {}
            return self.run_reading(lambda db: _reading.index_by_row(db, places, rows))

        # One thread for all of it: each change of threads costs as much as a query.
        return await asyncio.to_thread(work)

    def search_words(self, places: Sequence[MemoryPlace], words: Sequence[str]) -> list[LexicalHit]:
        """Return how well rows fit the words, in the thread of the caller."""
        return self.run_reading(lambda db: db.search_lexical(places, words))

    async def revision(self) -> int:
        """Return the number of the last change."""
        return await self._read(_reading.read_revision)

    async def changes(self, place: MemoryPlace, model: str, *, after: int) -> list[IndexRow]:
        """Return what changed in a place."""
        return await self._read(lambda db: _reading.list_changes(db, place, model, after))

    async def list_unembedded(
        self, model: str, limit: int, *, after: int = 0, needs_tokens: bool = False
    ) -> list[Unembedded]:
        """Return memories without a vector of the model, or without its tokens."""
        return await self._read(
            lambda db: _reading.list_unembedded(db, model, limit, after, needs_tokens=needs_tokens)
        )

    async def list_spaces(self) -> list[VectorSpace]:
        """Return the spaces of all vectors."""
        return await self._read(_reading.list_spaces)

    async def stats(self, tenant: str) -> MemoryStats:
        """Count what is there."""
        taken = await asyncio.to_thread(self.measure_bytes)
        return await self._read(lambda db: _reading.make_stats(db, tenant, taken))

    # --- changing ---------------------------------------------------------------------

    async def add(self, drafts: Sequence[MemoryDraft]) -> None:
        """Store memories, all or none."""
        await self._write(lambda db: [_writing.add(db, draft) for draft in drafts])

    async def put_vectors(
        self,
        model: str,
        vectors: Mapping[int, bytes],
        refused: Mapping[int, str],
        *,
        space: VectorSpace | None = None,
        tokens: Mapping[int, bytes] | None = None,
        revisions: Mapping[int, int] | None = None,
    ) -> None:
        """Keep vectors, tokens, refusals, and how the model is reached."""

        def write(db: MemoryDatabase) -> None:
            changed = _writing.list_changed_since(db, revisions or {})
            _writing.put_vectors(
                db,
                model,
                {row: one for row, one in vectors.items() if row not in changed},
                {row: why for row, why in refused.items() if row not in changed},
                {row: some for row, some in (tokens or {}).items() if row not in changed},
                space,
            )

        await self._write(write)

    async def pin(self, tenant: str, memory_id: str, is_pinned: bool) -> None:
        """Protect a memory from retention, or no longer."""
        await self._write(lambda db: _writing.pin(db, tenant, memory_id, is_pinned))

    async def link(self, tenant: str, memory_id: str, relation: Relation, other: str) -> None:
        """Note how two memories relate."""
        await self._write(lambda db: _writing.link_ids(db, tenant, memory_id, relation, other))

    async def forget(
        self, tenant: str, ids: Sequence[str], *, now: float, reason: str
    ) -> list[str]:
        """Remove memories for good."""
        return await self._write(
            lambda db: _writing.forget(db, tenant, ids, now=now, reason=reason)
        )

    async def purge(self, tenant: str, rule: Purge) -> list[str]:
        """Forget what a rule no longer keeps."""
        return await self._write(lambda db: _writing.purge(db, tenant, rule))

    async def reindex(self) -> int:
        """Make the index of words anew."""
        return await self._write(_writing.reindex)

    async def drop_vectors(self, model: str) -> int:
        """Remove all vectors of a model."""
        return await self._write(lambda db: _writing.drop_vectors(db, model))

    async def tidy(self) -> None:
        """Look at lines that an older version stored, in steps: who says them."""
        while await self._write(_writing.infer_old_turns):
            pass

    # --- inside -----------------------------------------------------------------------

    async def _read(self, work: Callable[[MemoryDatabase], T]) -> T:
        return await asyncio.to_thread(self.run_reading, work)

    async def _write(self, work: Callable[[MemoryDatabase], T]) -> T:
        # Runs to its end even if the caller is cancelled: no caller may find half of it open.
        return await asyncio.to_thread(self.run_writing, work)


class StorageLookup:
    """What a search reads while it chooses; see `SearchLookup`."""

    def __init__(self, storage: SqlMemoryStorage, places: Sequence[MemoryPlace]) -> None:
        """Read only what lies in these places."""
        self._storage = storage
        self._places = places

    def passages(self, rows: Sequence[int], model: str) -> dict[int, MemoryPassage]:
        """Return the texts at some rows."""
        return self._storage.run_reading(
            lambda db: _reading.list_passages(db, self._places, rows, model)
        )

    def tokens(self, rows: Sequence[int], model: str) -> dict[int, bytes]:
        """Return the tokens at some rows."""
        tenants = {place.tenant for place in self._places}
        return self._storage.run_reading(lambda db: _reading.list_tokens(db, tenants, rows, model))

    def count_words(self, words: Sequence[str]) -> WordCounts:
        """Return how many memories hold each word."""
        return self._storage.run_reading(lambda db: db.count_words(words))


__all__ = ["StorageLookup", "SqlMemoryStorage"]
