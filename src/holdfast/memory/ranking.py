"""Ranking: words and meaning, alone and in their conversation, added up.

Every part is brought to 0..1 among the candidates, weighted, and added; then a memory takes
over a share of the score of its neighbours in the conversation and of the best one of its
session. How the weights were chosen is told in `docs/concepts/memory.md`.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.memory import vector_index
from holdfast.memory.entry import ScoreParts
from holdfast.memory.times import NamedTime
from holdfast.memory.weights import Query, Scores, Weights

if TYPE_CHECKING:
    from holdfast.memory.vector_index import Flags, Floats, Ints, VectorIndex

_FAR = 0.15
"""Below this cosine, and without any word in common, a memory has nothing to do with it."""
_WEEK = 7.0


@dataclass(frozen=True)
class Ranking:
    """The best memories in order, and what their scores are made of; all of one length."""

    places: Ints
    """Positions in the index."""
    totals: Floats
    parts: dict[str, Floats]
    cosine: Floats
    space: Ints
    """Whose vector told the cosine: a place among `models`; -1 for none."""
    models: tuple[str, ...]
    speaker: Floats
    """1 for what was said by a speaker whom the query names."""
    time: Floats
    """Up to 1 for what was said when the query says."""

    def list_scores(self, index: VectorIndex, limit: int) -> Scores:
        """Return the first ones as they are told to callers."""
        places, count = self.places[:limit], min(limit, len(self.places))
        columns = zip(*(values[:count].tolist() for values in self.parts.values()), strict=True)
        told = zip(columns, self.cosine[:count].tolist(), self.space[:count].tolist(), strict=True)
        return Scores(
            rows=index.column("row").take(places).tolist(),
            scores=self.totals[:count].tolist(),
            parts=[
                ScoreParts(
                    **dict(zip(self.parts, values, strict=True)),
                    cosine=cosine if space >= 0 else None,
                    vector_model=self.models[space] if space >= 0 else "",
                )
                for values, cosine, space in told
            ],
        )


def rank(index: VectorIndex, mask: Flags, query: Query, weights: Weights) -> Ranking:
    """Return the best memories among those that the mask allows, as many as are wanted."""
    table = _read_table(index, mask, query)
    own, context = table.lexical
    cosine, near, space = _compute_cosines(table, query)
    allowed = table.allowed
    substance: Floats = table.column("substance")
    spoken, then = _score_speakers(table, query.speakers), _score_times(table, query.times)
    spread = functools.partial(_spread, mask=allowed, is_open=bool(allowed.all()))
    parts: dict[str, Floats] = {
        "lexical": weights.lexical * spread(own),
        "lexical_context": weights.lexical_context * spread(context),
        "vector": weights.vector * spread(cosine),
        "vector_context": weights.vector_context * spread(near),
        "speaker": weights.speaker * spoken,
        "time": weights.time * then,
        "substance": weights.substance * substance,
    }
    base: Floats = _sum(parts.values()) * allowed
    parts["neighbours"] = _score_neighbours(table, base, weights)
    parts["session"] = weights.session * _score_session_best(table, base)
    parts["importance"] = weights.importance * (table.column("importance") - np.float32(0.5))
    parts["recency"] = weights.recency * _score_recency(table, query.now, weights)
    is_far = ~_is_related(table, context, cosine, near)
    parts["unrelated"] = np.float32(weights.unrelated) * is_far
    total = base + _sum(parts[name] for name in _LATER)
    best = _select_best(allowed, total, query.limit)
    return Ranking(
        places=table.places.take(best),
        totals=total.take(best),
        parts={name: values.take(best) for name, values in parts.items()},
        cosine=cosine.take(best),
        space=space.take(best),
        models=query.models,
        speaker=spoken.take(best),
        time=then.take(best),
    )


_LATER = ("neighbours", "session", "importance", "recency", "unrelated")


@dataclass(frozen=True)
class _CandidateTable:
    """The candidates, by place, and how they stand to each other."""

    index: VectorIndex
    places: Ints
    allowed: Flags
    previous: Ints
    """Index of the turn before among the candidates; -1 if it is none."""
    following: Ints
    lexical: tuple[Floats, Floats]

    def column(self, name: str) -> np.ndarray[Any, Any]:
        values = self.index.column(name)
        return values if len(self.places) == self.index.count else values.take(self.places)

    @functools.cached_property
    def has_turns(self) -> bool:
        """Whether any candidate has a turn before or after it among them."""
        return bool((self.previous >= 0).any() or (self.following >= 0).any())


def _read_table(index: VectorIndex, mask: Flags, query: Query) -> _CandidateTable:
    # Doubles hold row numbers exactly as far as any caller will ever count.
    numbers = itertools.chain.from_iterable(query.hits)
    hits = np.fromiter(numbers, np.float64, 3 * len(query.hits)).reshape(-1, 3)
    found = index.find_positions(hits[:, 0].astype(np.int64))
    hits, found = hits[found >= 0], found[found >= 0]
    places = _select_candidates(index, mask, query, found)
    # One more at the end, which is where -1 leads.
    ordinal = np.full(index.count + 1, -1, np.int64)
    ordinal[places] = np.arange(len(places))
    allowed = mask[places]
    own, context = np.zeros((2, len(places)), np.float32)
    own[ordinal[found]], context[ordinal[found]] = hits[:, 1], hits[:, 2]
    return _CandidateTable(
        index,
        places,
        allowed,
        ordinal[index.previous[places]],
        ordinal[index.following[places]],
        (own * allowed, context * allowed),
    )


def _select_candidates(index: VectorIndex, mask: Flags, query: Query, found: Ints) -> Ints:
    """Return the places to weigh: all of a few, else the nearest with their neighbours."""
    if index.count <= vector_index.WHOLE:
        return np.arange(index.count)
    wanted = max(vector_index.NEAREST, 4 * query.limit)
    chosen = np.zeros(index.count + 1, np.bool_)
    chosen[found] = True
    if query.vector is not None and index.dimension:
        chosen[index.find_nearest(query.vector, mask, wanted)] = True
    for other, vector in query.former:
        everybody = np.ones(other.count, np.bool_)
        rows = other.column("row")[other.find_nearest(vector, everybody, wanted)]
        chosen[index.find_positions(rows)] = True
    if np.count_nonzero(chosen[:-1] & mask) < query.limit:
        chosen[np.flatnonzero(mask)[-query.limit :]] = True  # the newest, so that none is missing
    some = np.flatnonzero(chosen[:-1])
    for _ in range(2):
        beside = np.concatenate([index.previous.take(some), index.following.take(some)])
        if not (beside >= 0).any():
            break
        chosen[beside] = True
        some = np.flatnonzero(chosen[:-1])
    return some


def _compute_cosines(table: _CandidateTable, query: Query) -> tuple[Floats, Floats, Ints]:
    """Return how near each memory is, how near with the turn before, and in which space.

    The vector of two turns is the direction of their sum, so its cosine follows from those
    of the two and from their likeness; it need not be kept. The space is the place of the
    embedder among `Query.models`, -1 where there is no vector of any.
    """
    index = table.index
    space = np.full(len(table.places), -1, np.int64)
    cosine = np.zeros(len(table.places), np.float32)
    if not len(table.places):
        return cosine, cosine, space
    has_vector, likeness = table.column("has_vector"), table.column("likeness")
    if query.vector is not None and index.dimension:
        cosine = index.compute_cosines(query.vector, table.places)
        space[has_vector] = 0
    for number, (other, vector) in enumerate(query.former, 1):
        places = other.find_positions(table.column("row"))
        known = (places >= 0) & ~has_vector & (space < 0)
        known &= other.column("has_vector")[places]
        cosine[known] = other.compute_cosines(vector, places[known])
        likeness = np.where(known, other.column("likeness")[places], likeness)
        space[known] = number
    if not table.has_turns:
        return cosine, cosine, space
    previous = table.previous
    pair = (cosine + cosine[previous]) / np.sqrt(np.maximum(2.0 + 2.0 * likeness, 0.1))
    is_pair = (previous >= 0) & (space >= 0) & (space == space[previous])
    is_pair &= table.column("is_living")[previous]
    return cosine, np.where(is_pair, pair, cosine).astype(np.float32), space


def _sum(parts: Any) -> Floats:  # noqa: ANN401 - arrays of one length, at least one
    total: Floats = np.sum(list(parts), axis=0, dtype=np.float32)
    return total


def _spread(values: Floats, *, mask: Flags, is_open: bool) -> Floats:
    """Bring the allowed values to 0..1; nothing in common is 0, also where nothing is worse.

    `is_open` says that the mask allows everything.
    """
    allowed = values if is_open else values[mask]
    low, high = (min(float(allowed.min()), 0.0), float(allowed.max())) if len(allowed) else (0, 0)
    if high - low < 1e-12:
        return np.zeros_like(values)
    spread: Floats = (values - np.float32(low)) * np.float32(1.0 / (high - low))
    return np.minimum(np.maximum(spread, 0.0, out=spread), 1.0, out=spread)


def _score_speakers(table: _CandidateTable, names: frozenset[str]) -> Floats:
    codes = [code for name, code in table.index.speakers.items() if name and name in names]
    if not codes:
        return np.zeros(len(table.places), np.float32)
    spoken: Floats = np.isin(table.column("speaker"), codes).astype(np.float32)
    return spoken


def _score_times(table: _CandidateTable, times: tuple[NamedTime, ...]) -> Floats:
    """Return 1 for what was said in a named month; the less, the farther from a named day."""
    best = np.zeros(len(table.places), np.float32)
    if not times or not len(best):
        return best
    seconds = np.clip(table.column("created"), 0.0, 4e9).astype("datetime64[s]")
    months = seconds.astype("datetime64[M]").astype(np.int64)
    days = seconds.astype("datetime64[D]").astype(np.int64)
    for one in times:
        year = months // 12 if not one.year else np.full(len(best), one.year - 1970)
        first = 12 * year + one.month - 1
        if one.day:
            wanted = first.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
            away = np.abs(days - (wanted + one.day - 1))
            fits = np.exp2(-away / _WEEK).astype(np.float32)
        else:
            fits = (months == first).astype(np.float32)
        best = np.maximum(best, fits)
    return best


def _score_neighbours(table: _CandidateTable, base: Floats, weights: Weights) -> Floats:
    if not table.has_turns:
        return np.zeros(len(base), np.float32)
    previous, following = table.previous, table.following

    def at(places: Ints) -> Floats:
        return np.where(places >= 0, base[places], np.float32(0.0))

    before = np.where(previous >= 0, previous[previous], -1)
    behind = np.where(following >= 0, following[following], -1)
    lifted: Floats = (
        np.float32(weights.before) * at(previous)
        + np.float32(weights.after) * at(following)
        + np.float32(weights.two_away) * (at(before) + at(behind))
    )
    return lifted


def _score_session_best(table: _CandidateTable, base: Floats) -> Floats:
    if len(table.index.sessions) < 2 or not len(base):
        return np.zeros(len(base), np.float32)
    best = np.zeros(len(table.index.sessions), np.float32)
    session = table.column("session")
    np.maximum.at(best, session, base)
    lifted: Floats = best[session]
    return lifted


def _score_recency(table: _CandidateTable, now: float, weights: Weights) -> Floats:
    if not weights.recency:
        return np.zeros(len(table.places), np.float32)
    age = np.maximum(now - table.column("created"), 0.0)
    fresh: Floats = np.exp2(-age / weights.half_life_s).astype(np.float32)
    return fresh


def _is_related(table: _CandidateTable, context: Floats, cosine: Floats, near: Floats) -> Flags:
    is_hit = (context > 0) | (cosine >= _FAR) | (near >= _FAR)
    if not table.has_turns:
        return is_hit
    beside: Flags = is_hit.copy()
    for there in (table.previous, table.following):
        beside |= (there >= 0) & is_hit[there]
    return beside


def _select_best(fits: Flags, total: Floats, limit: int) -> Ints:
    places = np.flatnonzero(fits)
    if len(places) > limit:
        places = places[np.argpartition(-total[places], limit - 1)[:limit]]
    # Equal scores: the newer one first, always in the same order.
    order: Ints = places[np.lexsort((-places, -total[places]))]
    return order


__all__ = ["Ranking", "rank"]
