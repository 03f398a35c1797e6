"""One search: find by words and by meaning, rank, and fetch the best."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import MissingExtra
from holdfast.memory import index_cache
from holdfast.memory.embedder import (
    MemoryEmbedder,
    NoEmbedder,
    TokenEmbedder,
    UnreadyEmbedder,
)
from holdfast.memory.entry import MemoryEntry
from holdfast.memory.former import (
    Former,
    FormerEmbedders,
    check_unit_vector,
    find_code,
    make_unit_vector,
)
from holdfast.memory.index_cache import CachedIndex, IndexCache
from holdfast.memory.storage import (
    IndexRow,
    LexicalHit,
    MemoryFilter,
    MemoryPlace,
    MemoryStorage,
    NearestQuery,
    NearestStorage,
    SearchLookup,
)
from holdfast.memory.times import find_named_times
from holdfast.memory.weights import Query, RerankQuery, Scores, TokenQuery, Weights
from holdfast.memory.word_index import WordIndex
from holdfast.memory.word_ranking import make_scores, rank_by_words, rerank_by_words
from holdfast.memory.words import drop_names, name_words, query_words
from holdfast.observability import Logger

if TYPE_CHECKING:
    from holdfast.memory.late_interaction import QueryTokens
    from holdfast.memory.ranking import Ranking
    from holdfast.memory.vector_index import VectorIndex

_log = Logger("holdfast.memory")
_NEAREST = 512
"""So many of the nearest of a large place are weighed."""


class Searcher:
    """Searches a storage with an embedder, and with those that came before it."""

    def __init__(
        self,
        storage: MemoryStorage,
        embedder: MemoryEmbedder,
        former: FormerEmbedders,
        *,
        weights: Callable[[], Weights],
        rerank_within_s: float | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        """Use these; the weights are asked for with each search.

        A search that has taken `rerank_within_s` seconds is answered by its first ranking.
        """
        self._storage = storage
        self._embedder = embedder
        # Asked once: looking through a protocol takes as long as a small query.
        self._token_embedder = embedder if isinstance(embedder, TokenEmbedder) else None
        self.former = former
        self._weights = weights
        self._rerank_within_s = rerank_within_s
        self._clock = clock
        self._indexes = IndexCache(storage)
        self._nearest = storage if isinstance(storage, NearestStorage) else None
        self._is_told = False

    async def search(
        self,
        places: tuple[MemoryPlace, ...],
        query: str,
        where: MemoryFilter,
        *,
        now: float,
        limit: int,
    ) -> list[MemoryEntry]:
        """Return the best memories of the places, best first, with their scores.

        An embedder that fails costs its part of the score, not the search.
        """
        self._say_what_is_missing()
        is_late = self._start_timer()
        if self._nearest is not None and await self._nearest.is_large(places):
            return await self._search_large(self._nearest, places, query, where, now, limit)
        cached = await self._indexes.get(places, self._embedder.model_id, self._embedder.dimension)
        async with cached.lock:
            mentioned, names = _find_mentioned(query, cached.index.speakers)
            is_whole = cached.index.is_whole
        words = query_words(query, leave_out=names)
        # No caller waits for another one's embedder: the locks are open meanwhile.
        seen = await self._read_seen(places, drop_names(query, mentioned), is_whole=is_whole)
        asked = Query(
            now=now,
            vector=seen.vector,
            former=tuple((old.index, vector) for old, vector in seen.former),
            models=seen.models,
            speakers=mentioned,
            times=find_named_times(query),
            limit=limit,
        )
        again = self._rerank(query, words, seen.tokens, is_late)
        ranker = _Ranker(cached.index, where, asked, again, self._weights())
        async with contextlib.AsyncExitStack() as stack:
            for one in (cached, *(old for old, _ in seen.former)):
                await stack.enter_async_context(one.lock)
            found = await self._storage.select(places, words, where, ranker.choose, now=now)
        return ranker.add_scores(found)

    async def _search_large(
        self,
        storage: NearestStorage,
        places: tuple[MemoryPlace, ...],
        text: str,
        where: MemoryFilter,
        now: float,
        limit: int,
    ) -> list[MemoryEntry]:
        """Search places that do not lie in memory: the storage finds what may be among the best.

        What only has vectors of an embedder that was used before is found by its words.
        """
        is_late = self._start_timer()
        speakers = dict.fromkeys(await storage.list_speakers(places), 0)
        mentioned, names = _find_mentioned(text, speakers)
        words = query_words(text, leave_out=names)
        vector, tokens = await self._embed(drop_names(text, mentioned))
        own = self._embedder
        asked = Query(
            now=now,
            vector=vector,
            models=(own.model_id,),
            speakers=mentioned,
            times=find_named_times(text),
            limit=limit,
        )
        again = self._rerank(text, words, tokens, is_late)
        index = index_cache.make_index(own.dimension)
        ranker = _Ranker(index, where, asked, again, self._weights())

        def choose(
            hits: list[LexicalHit],
            passing: list[int] | None,
            lookup: SearchLookup,
            rows: list[IndexRow],
        ) -> list[int]:
            index.apply(rows)
            return ranker.choose(hits, passing, lookup)

        packed = b"" if vector is None else vector.astype("<f2").tobytes()
        near = NearestQuery(model=own.model_id, vector=packed, limit=max(_NEAREST, 4 * limit))
        found = await storage.select_nearest(places, words, where, near, choose, now=now)
        return ranker.add_scores(found)

    def clear_indexes(self) -> None:
        """Drop what is kept in memory."""
        self._indexes.clear()

    def _say_what_is_missing(self) -> None:
        """Say once that meaning is not looked at, and what to install for it."""
        missing = self._embedder.missing if isinstance(self._embedder, NoEmbedder) else None
        if self._embedder.model_id and not index_cache.has_numpy():
            missing = MissingExtra(what="Search by meaning", package="numpy", extra="memory")
        if missing is not None and not self._is_told:
            effect = "Memories are found by their words, not by their meaning."
            _log.warning("memory.by_words_only", effect=effect, next_step=missing.hint)
        self._is_told = True

    def _start_timer(self) -> Callable[[], bool]:
        """Return what says whether the time for a search that begins now is over."""
        within_s, began = self._rerank_within_s, self._clock.monotonic()
        if within_s is None:
            return lambda: False
        return lambda: self._clock.monotonic() - began >= within_s

    def _rerank(
        self,
        query: str,
        words: Sequence[str],
        tokens: QueryTokens | None,
        is_late: Callable[[], bool],
    ) -> RerankQuery:
        late = None
        if tokens is not None and self._token_embedder is not None:
            late = TokenQuery(tokens, self._token_embedder, self._embedder.model_id)
        return RerankQuery(query, words, late, is_late)

    async def _read_seen(
        self, places: tuple[MemoryPlace, ...], text: str, *, is_whole: bool
    ) -> _Seen:
        """Embed a query, also in the spaces of older vectors that these places still hold."""
        own = self._embedder.model_id
        if not index_cache.has_numpy() or (is_whole and not self.former.is_any):
            vector, tokens = await self._embed(text)
            return _Seen(vector, tokens, (), (own,))
        holding: list[tuple[Former, CachedIndex]] = []
        for one in await self.former.list_left():
            old = await self._indexes.get(places, one.space.model_id, one.embedder.dimension)
            async with old.lock:
                if old.index.has_vectors:
                    holding.append((one, old))
        patience_s = self.former.patience_s
        (vector, tokens), *others = await asyncio.gather(
            self._embed(text), *(one.ask(text, patience_s) for one, _ in holding)
        )
        answered = [
            (one.space.model_id, old, found)
            for (one, old), found in zip(holding, others, strict=True)
            if found is not None
        ]
        former = tuple((old, found) for _, old, found in answered)
        return _Seen(vector, tokens, former, (own, *(model for model, _, _ in answered)))

    async def _embed(self, text: str) -> tuple[Any, QueryTokens | None]:
        """Return the direction of a query and its tokens, from one pass; None where none is."""
        embedder = self._embedder
        if (
            not embedder.model_id
            or isinstance(embedder, UnreadyEmbedder)
            or not index_cache.has_numpy()
        ):
            return None, None
        try:
            if self._token_embedder is not None:
                vector, tokens = await self._token_embedder.embed_query(text)
                return check_unit_vector(vector, embedder), tokens
            return await make_unit_vector(embedder, text), None
        except Exception as error:  # noqa: BLE001 - a foreign embedder may raise anything
            kind = find_code(error)
            _log.warning("memory.query_not_embedded", model=embedder.model_id, error=kind)
            return None, None


class _Ranker:
    """Picks the best memories of an index, and knows what made them so."""

    def __init__(
        self,
        index: VectorIndex | WordIndex,
        where: MemoryFilter,
        query: Query,
        again: RerankQuery,
        weights: Weights,
    ) -> None:
        self._index = index
        self._where = where
        self._query = query
        self._again = again
        self._weights = weights
        self._scores: Scores | None = None

    def choose(
        self, hits: list[LexicalHit], passing: list[int] | None, lookup: SearchLookup
    ) -> list[int]:
        """Return the rows of the best; the storage calls this, in one of its threads."""
        wanted = self._query.limit
        rules = self._weights.reranking
        query = msgspec.structs.replace(self._query, hits=hits, limit=max(wanted, rules.candidates))
        if isinstance(self._index, WordIndex):
            first = rank_by_words(self._index, passing, self._where, query, self._weights)
            again = rerank_by_words(self._index, first, self._again, rules, lookup)
            self._scores = make_scores(again, wanted)
        else:
            from holdfast.memory.reranking import rerank  # noqa: PLC0415 - loads numpy

            found = _rank(self._index, passing, self._where, query, self._weights)
            found = rerank(self._index, found, self._again, rules, lookup)
            self._scores = found.list_scores(self._index, wanted)
        return self._scores.rows

    def add_scores(self, found: dict[int, MemoryEntry]) -> list[MemoryEntry]:
        """Return what the storage found, best first, with scores."""
        if self._scores is None:
            return []
        told = zip(self._scores.rows, self._scores.scores, self._scores.parts, strict=True)
        return [
            msgspec.structs.replace(found[row], relevance_score=score, parts=parts)
            for row, score, parts in told
            if row in found
        ]


class _Seen(NamedTuple):
    """A query as the embedders see it."""

    vector: Any
    tokens: QueryTokens | None
    former: tuple[tuple[CachedIndex, Any], ...]
    models: tuple[str, ...]


def _rank(
    index: VectorIndex, rows: list[int] | None, where: MemoryFilter, query: Query, weights: Weights
) -> Ranking:
    import numpy as np  # noqa: PLC0415 - loaded when used

    from holdfast.memory import ranking  # noqa: PLC0415 - loads numpy

    mask = index.column("is_living") & (index.column("expires") > query.now)
    if not where.include_superseded:
        at = query.now if where.as_of is None else where.as_of
        mask &= (index.column("valid_from") <= at) & (index.column("valid_to") > at)
    if rows is not None:
        allowed = np.zeros(index.count, np.bool_)
        places = index.find_positions(np.asarray(rows, np.int64))
        allowed[places[places >= 0]] = True
        mask &= allowed
    return ranking.rank(index, mask, query, weights)


def _find_mentioned(query: str, speakers: dict[str, int]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the speakers that a query names, and the words of their names."""
    found: set[str] = set()
    words: set[str] = set()
    named = [speaker for speaker in speakers if speaker]
    asked = name_words(query) if named else frozenset[str]()
    for speaker in named:
        own = _words_of_speaker(speaker) & asked
        if own:
            found.add(speaker)
            words |= own
    return frozenset(found), frozenset(words)


_words_of_speaker = functools.lru_cache(maxsize=1_024)(name_words)


__all__ = ["Searcher"]
