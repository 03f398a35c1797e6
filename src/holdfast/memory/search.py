"""One search: find by words and by meaning, rank, and fetch the best."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from holdfast.errors import EmbeddingFailed
from holdfast.memory.embedder import MemoryEmbedder, packed
from holdfast.memory.entry import MemoryEntry
from holdfast.memory.library import Library
from holdfast.memory.storage import MemoryFilter, MemoryStorage, Place
from holdfast.memory.times import named_times
from holdfast.memory.words import name_words, query_words, without_names

if TYPE_CHECKING:
    from holdfast.memory.ranking import Query, Scores, Weights
    from holdfast.memory.shelf import Shelf

_AT_ONCE = 20_000
"""Ranking so many takes about a millisecond, less than it is worth to hand over."""
_log = structlog.get_logger("holdfast.memory")


class Searcher:
    """Searches a storage with an embedder, and with those that came before it."""

    def __init__(
        self,
        storage: MemoryStorage,
        embedder: MemoryEmbedder,
        *,
        former: Sequence[MemoryEmbedder] = (),
        weights: Weights | None = None,
    ) -> None:
        """Use these; weights are the built-in ones unless given."""
        self._storage = storage
        self._embedder = embedder
        self._former = tuple(one for one in former if one.model_id)
        self._weights = weights
        self._library = Library(storage)

    async def search(
        self, places: tuple[Place, ...], query: str, where: MemoryFilter, *, now: float, limit: int
    ) -> list[MemoryEntry]:
        """Return the best memories of the places, best first, with their scores.

        An embedder that fails costs its part of the score, not the search.
        """
        from holdfast.memory import ranking  # noqa: PLC0415 - loads numpy

        async with contextlib.AsyncExitStack() as stack:
            lend = self._library.shelf
            shelf = await stack.enter_async_context(
                lend(places, self._embedder.model_id, self._embedder.dimension)
            )
            mentioned, names = _mentioned(query, shelf.speakers)
            words = query_words(query, leave_out=names)
            hits = await self._storage.lexical(places, words)
            meaning = without_names(query, mentioned)
            former = []
            if self._former and not shelf.column("has_vector").all():
                for one in self._former:
                    vector = await _embed(one, meaning)
                    if vector is not None:
                        old = await stack.enter_async_context(
                            lend(places, one.model_id, one.dimension)
                        )
                        former.append((old, vector))
            asked = ranking.Query(
                now=now,
                hits=hits,
                vector=await _embed(self._embedder, meaning),
                former=tuple(former),
                speakers=mentioned,
                times=named_times(query),
                limit=limit,
            )
            rows = None
            if not where.is_plain:
                rows = await self._storage.rows_where(places, where, now=now)
            weights = self._weights or ranking.Weights()
            if shelf.count <= _AT_ONCE:
                scores = _rank(shelf, rows, where, asked, weights)
            else:
                scores = await asyncio.to_thread(_rank, shelf, rows, where, asked, weights)
        found: dict[int, MemoryEntry] = {}
        if scores.rows:
            found = await self._storage.by_row(places[0].tenant, scores.rows)
        return [
            msgspec.structs.replace(found[row], relevance_score=score, parts=parts)
            for row, score, parts in zip(scores.rows, scores.scores, scores.parts, strict=True)
            if row in found
        ]

    def forget_shelves(self) -> None:
        """Drop what is kept in memory."""
        self._library.clear()


def _rank(
    shelf: Shelf, rows: list[int] | None, where: MemoryFilter, query: Query, weights: Weights
) -> Scores:
    import numpy as np  # noqa: PLC0415 - loaded when used

    from holdfast.memory import ranking  # noqa: PLC0415 - loads numpy

    mask = shelf.column("is_living") & (shelf.column("expires") > query.now)
    if not where.include_superseded:
        at = query.now if where.as_of is None else where.as_of
        mask &= (shelf.column("valid_from") <= at) & (shelf.column("valid_to") > at)
    if rows is not None:
        allowed = np.zeros(shelf.count, np.bool_)
        places = shelf.positions(np.asarray(rows, np.int64))
        allowed[places[places >= 0]] = True
        mask &= allowed
    return ranking.rank(shelf, mask, query, weights)


def _mentioned(query: str, speakers: dict[str, int]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the speakers that a query names, and the words of their names."""
    asked = name_words(query)
    found: set[str] = set()
    words: set[str] = set()
    for speaker in speakers:
        own = name_words(speaker) & asked
        if own:
            found.add(speaker)
            words |= own
    return frozenset(found), frozenset(words)


async def _embed(embedder: MemoryEmbedder, text: str) -> Any:  # noqa: ANN401 - an array, or None
    if not embedder.model_id:
        return None
    import numpy as np  # noqa: PLC0415 - loaded when used

    try:
        (vector,) = await embedder.embed([text])
        data = packed(vector, embedder.dimension, embedder.model_id)
    except Exception as error:  # noqa: BLE001 - a foreign embedder may raise anything
        kind = error.code if isinstance(error, EmbeddingFailed) else type(error).__name__
        _log.warning("memory.query_not_embedded", model=embedder.model_id, error=kind)
        return None
    return np.frombuffer(data, "<f2").astype(np.float32)


__all__ = ["Searcher"]
