"""Ranking: words and meaning, alone and in their conversation, added up.

Every part is brought to 0..1 among the candidates, weighted, and added; then a memory takes
over a share of the score of its neighbours in the conversation and of the best one of its
session. How the weights were chosen is told in `docs/concepts/memory.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from holdfast.memory.entry import ScoreParts

if TYPE_CHECKING:
    from holdfast.memory.shelf import Flags, Floats, Ints, Shelf
    from holdfast.memory.storage import LexicalHit

_FAR = 0.15
"""Below this cosine, and without any word in common, a memory has nothing to do with it."""


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """How much each part counts; only their proportions matter."""

    lexical: float = 0.22
    lexical_context: float = 0.33
    vector: float = 0.18
    vector_context: float = 0.27
    speaker: float = 0.16
    """For what was said by somebody whom the query names."""
    before: float = 0.08
    """Share of the score of the turn before."""
    after: float = 0.18
    """Share of the score of the turn after, which is often the answer to this one."""
    session: float = 0.4
    """Share of the best score in the same session."""
    importance: float = 0.2
    recency: float = 0.0
    half_life_s: float = 30 * 86_400.0


class Scores(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a ranking: positions, best first, and what they were made of."""

    rows: list[int]
    scores: list[float]
    parts: list[ScoreParts]


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked for, as the ranking needs it."""

    now: float
    hits: Sequence[LexicalHit]
    vector: Any = None
    """A unit vector as an array, or None."""
    former: tuple[Any, ...] = ()
    """Shelf and vector of embedders that were used before, for what has no newer vector."""
    speakers: frozenset[str] = frozenset()
    """Names that the query mentions."""
    limit: int = 10


def rank(shelf: Shelf, mask: Flags, query: Query, weights: Weights) -> Scores:
    """Return the best memories among those that the mask allows."""
    # Every row keeps its place during the sums, since neighbours are found by place.
    own, context = _lexical(shelf, mask, query)
    cosine, near = _cosines(shelf, query, context)
    parts: dict[str, Floats] = {
        "lexical": weights.lexical * _spread(own, mask),
        "lexical_context": weights.lexical_context * _spread(context, mask),
        "vector": weights.vector * _spread(cosine, mask),
        "vector_context": weights.vector_context * _spread(near, mask),
        "speaker": weights.speaker * _spoken_by(shelf, query.speakers),
    }
    base = np.where(mask, np.sum(list(parts.values()), axis=0), 0.0).astype(np.float32)
    parts["neighbours"] = _neighbours(shelf.previous, base, weights)
    parts["session"] = weights.session * _best_of_session(shelf, base)
    above = (shelf.column("importance") - 0.5).astype(np.float32)
    parts["importance"] = weights.importance * above
    parts["recency"] = weights.recency * _recency(shelf, query.now, weights)
    total = base + np.sum([parts[name] for name in _LATER], axis=0)
    fits = mask & _is_related(shelf, context, cosine, near)
    return _best(shelf, fits, total, (parts, cosine), query.limit)


_LATER = ("neighbours", "session", "importance", "recency")


def _lexical(shelf: Shelf, mask: Flags, query: Query) -> tuple[Floats, Floats]:
    own = np.zeros(shelf.count, np.float32)
    context = np.zeros(shelf.count, np.float32)
    if query.hits:
        # Doubles hold row numbers exactly as far as anybody will ever count.
        hits = np.array(query.hits, np.float64)
        places = shelf.positions(hits[:, 0].astype(np.int64))
        known = places >= 0
        own[places[known]] = hits[known, 1]
        context[places[known]] = hits[known, 2]
    return own * mask, context * mask


def _cosines(shelf: Shelf, query: Query, context: Floats) -> tuple[Floats, Floats]:
    """Return how near each memory is, and how near it is together with the turn before.

    The vector of two turns is the direction of their sum, so its cosine follows from those
    of the two and from their likeness; it need not be kept.
    """
    if query.vector is None or not shelf.dimension or not shelf.count:
        nothing = np.zeros(shelf.count, np.float32)
        return nothing, nothing
    cosine = shelf.cosines(query.vector, np.flatnonzero(context > 0))
    has_vector = shelf.column("has_vector")
    for other, vector in query.former:
        places = other.positions(shelf.column("row"))
        known = (places >= 0) & ~has_vector
        cosine[known] = other.cosines(vector, places[known])[places[known]]
    previous = shelf.previous
    pair = (cosine + cosine[previous]) / np.sqrt(np.maximum(2.0 + 2.0 * shelf.likeness, 0.1))
    is_whole = has_vector & shelf.column("is_living")
    is_pair = (previous >= 0) & has_vector & is_whole[previous]
    return cosine, np.where(is_pair, pair, cosine).astype(np.float32)


def _spread(values: Floats, mask: Flags) -> Floats:
    """Bring the allowed values to 0..1; nothing in common is 0, also where nothing is worse."""
    if not mask.any():
        return np.zeros_like(values)
    allowed = values[mask]
    low, high = min(float(allowed.min()), 0.0), float(allowed.max())
    if high - low < 1e-12:
        return np.zeros_like(values)
    spread: Floats = np.clip((values - low) / (high - low), 0.0, 1.0).astype(np.float32)
    return spread


def _spoken_by(shelf: Shelf, names: frozenset[str]) -> Floats:
    codes = [code for name, code in shelf.speakers.items() if name and name in names]
    if not codes:
        return np.zeros(shelf.count, np.float32)
    spoken: Floats = np.isin(shelf.column("speaker"), codes).astype(np.float32)
    return spoken


def _neighbours(previous: Ints, base: Floats, weights: Weights) -> Floats:
    lifted = np.zeros(len(base), np.float32)
    has_one = previous >= 0
    lifted[has_one] += weights.before * base[previous[has_one]]
    np.add.at(lifted, previous[has_one], weights.after * base[has_one])
    return lifted


def _best_of_session(shelf: Shelf, base: Floats) -> Floats:
    if len(shelf.sessions) < 2:
        return np.zeros(len(base), np.float32)
    best = np.zeros(len(shelf.sessions), np.float32)
    session = shelf.column("session")
    np.maximum.at(best, session, base)
    lifted: Floats = best[session]
    return lifted


def _recency(shelf: Shelf, now: float, weights: Weights) -> Floats:
    if not weights.recency:
        return np.zeros(shelf.count, np.float32)
    age = np.maximum(now - shelf.column("created"), 0.0)
    fresh: Floats = np.exp2(-age / weights.half_life_s).astype(np.float32)
    return fresh


def _is_related(shelf: Shelf, context: Floats, cosine: Floats, near: Floats) -> Flags:
    is_hit = (context > 0) | (cosine >= _FAR) | (near >= _FAR)
    previous = shelf.previous
    beside = is_hit.copy()
    has_one = previous >= 0
    beside[has_one] |= is_hit[previous[has_one]]
    np.logical_or.at(beside, previous[has_one], is_hit[has_one])
    return beside


def _best(
    shelf: Shelf,
    fits: Flags,
    total: Floats,
    made_of: tuple[dict[str, Floats], Floats],
    limit: int,
) -> Scores:
    parts, cosine = made_of
    places = np.flatnonzero(fits)
    if len(places) > limit:
        places = places[np.argpartition(-total[places], limit - 1)[:limit]]
    rows = shelf.column("row")
    # Equal scores: the newer one first, always in the same order.
    order = sorted(places.tolist(), key=lambda place: (-float(total[place]), -int(rows[place])))
    has_vector = shelf.column("has_vector")
    return Scores(
        rows=[int(rows[place]) for place in order],
        scores=[float(total[place]) for place in order],
        parts=[
            ScoreParts(
                **{name: float(values[place]) for name, values in parts.items()},
                cosine=float(cosine[place]) if has_vector[place] else None,
            )
            for place in order
        ],
    )


__all__ = ["Query", "Scores", "Weights", "rank"]
