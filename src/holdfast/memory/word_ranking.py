"""Ranking by words alone, without numpy: the same scores as `ranking` and `reranking` give.

The base install has no numpy and thus no vectors. Words, conversation, speakers, times and
answer types need neither; what each part means and weighs is told in `weights` and in
`docs/concepts/memory.md`.
"""

from __future__ import annotations

import datetime
import functools
import heapq
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from holdfast.memory.answer_types import classify_expected_answer, speaks_to_other
from holdfast.memory.entry import ScoreParts
from holdfast.memory.storage import IndexRow, LexicalHit, MemoryFilter, SearchLookup
from holdfast.memory.times import NamedTime
from holdfast.memory.weights import Query, Reranking, RerankQuery, Scores, Weights
from holdfast.memory.word_index import WordIndex

WHOLE = 4_096
"""Up to so many memories are all weighed; beyond, only those with a word, and their neighbours."""
_WEEK_DAYS = 7.0
_DAY_S = 86_400.0
_EPOCH = datetime.date(1970, 1, 1).toordinal()


@dataclass
class _Candidate:
    """A memory that was found, and what its score is made of."""

    row: int
    parts: dict[str, float]
    speaker: float
    time: float
    total: float = 0.0

    def add(self, parts: dict[str, float]) -> None:
        for name, value in parts.items():
            self.parts[name] = self.parts.get(name, 0.0) + value
            self.total += value


def rank_by_words(
    index: WordIndex, passing: list[int] | None, where: MemoryFilter, query: Query, weights: Weights
) -> list[_Candidate]:
    """Return the best memories among those that pass, best first, as many as are wanted."""
    allows = _make_mask(passing, where, query.now)
    hits = {hit.row: hit for hit in query.hits if hit.row in index.rows}
    rows = _select_rows(index, hits)
    allowed = {row for row in rows if allows(index.rows[row])}
    if len(allowed) < query.limit and len(rows) < len(index.rows):
        newest = sorted(index.rows, reverse=True)
        allowed.update(itertools.islice((r for r in newest if allows(index.rows[r])), query.limit))
    found = {row: hit for row, hit in hits.items() if row in allowed}
    spread_own = _make_spread(hit.own for hit in found.values())
    spread_context = _make_spread(hit.context for hit in found.values())
    lexical = {
        row: (
            weights.lexical * spread_own(hit.own),
            weights.lexical_context * spread_context(hit.context),
        )
        for row, hit in found.items()
    }
    base: dict[int, float] = {}
    spoken: dict[int, float] = {}
    then: dict[int, float] = {}
    for row in allowed:
        one = index.rows[row]
        spoken[row] = float(bool(one.speaker) and one.speaker in query.speakers)
        then[row] = _score_times(one.created, query.times) if query.times else 0.0
        score = weights.speaker * spoken[row] + weights.time * then[row]
        score += weights.substance * index.substance[row]
        base[row] = score + sum(lexical.get(row, ()))
    best = _find_session_best(index, base)
    ranked = []
    related = _find_related(index, found, allowed)
    # Fewer than are wanted only where nothing is left.
    others = sorted(allowed - related) if len(related) < query.limit else []
    for row in (*sorted(related), *others):
        one = index.rows[row]
        own, context = lexical.get(row, (0.0, 0.0))
        parts = {
            "lexical": own,
            "lexical_context": context,
            "speaker": weights.speaker * spoken[row],
            "time": weights.time * then[row],
            "substance": weights.substance * index.substance[row],
            "neighbours": _score_neighbours(index, base, row, weights),
            "session": weights.session * best.get(one.session_id, 0.0),
            "importance": weights.importance * (one.importance - 0.5),
            "recency": _score_recency(one.created, query.now, weights),
            "unrelated": 0.0 if row in related else weights.unrelated,
        }
        candidate = _Candidate(row, {}, spoken[row], then[row])
        candidate.add(parts)
        ranked.append(candidate)
    # Equal scores: the newer one first, always in the same order.
    return heapq.nsmallest(query.limit, ranked, key=lambda one: (-one.total, -one.row))


def rerank_by_words(
    index: WordIndex,
    first: list[_Candidate],
    query: RerankQuery,
    rules: Reranking,
    lookup: SearchLookup,
) -> list[_Candidate]:
    """Return the ranking with its best ones in a better order, by the types of answers."""
    # What has nothing to do with the query stands last, and stays there.
    some = [one for one in first[: rules.candidates] if not one.parts["unrelated"]]
    if not some or query.is_late():
        return first
    passages = lookup.passages([one.row for one in some], "")
    if query.is_late():
        return first
    weights = rules.lexical
    expected = classify_expected_answer(query.text, rules.languages)
    for one in some:
        content = passages[one.row].content if one.row in passages else ""
        fits = expected.fits(content) if expected.rules else {}
        said = bool(index.rows[one.row].speaker)
        found = {kind: float(value) for kind, value in fits.items()}
        found["address"] = float(said and speaks_to_other(content, rules.languages))
        found |= {"speaker": one.speaker, "time": one.time}
        one.add({name: getattr(weights, name) * value for name, value in found.items()})
    # Stable: of equal scores, the first ranking's order stays.
    return sorted(first, key=lambda one: -one.total)


def make_scores(ranked: Sequence[_Candidate], limit: int) -> Scores:
    """Return the first ones as they are told to callers."""
    some = ranked[:limit]
    return Scores(
        rows=[one.row for one in some],
        scores=[one.total for one in some],
        parts=[msgspec.convert(one.parts, ScoreParts) for one in some],
    )


def _make_mask(
    passing: list[int] | None, where: MemoryFilter, now: float
) -> Callable[[IndexRow], bool]:
    allowed = None if passing is None else frozenset(passing)
    at = now if where.as_of is None else where.as_of

    def allows(row: IndexRow) -> bool:
        if row.forgotten is not None or (row.expires is not None and row.expires <= now):
            return False
        if not where.include_superseded and (
            row.valid_from > at or (row.valid_to is not None and row.valid_to <= at)
        ):
            return False
        return allowed is None or row.row in allowed

    return allows


def _select_rows(index: WordIndex, hits: dict[int, LexicalHit]) -> set[int]:
    if len(index.rows) <= WHOLE:
        return set(index.rows)
    chosen = set(hits)
    for _ in range(2):
        chosen |= {beside for row in chosen for beside in _list_beside(index, row)}
    return chosen


def _list_beside(index: WordIndex, row: int) -> list[int]:
    beside = (index.rows[row].previous, index.following.get(row))
    return [one for one in beside if one is not None and one in index.rows]


def _find_related(index: WordIndex, found: dict[int, LexicalHit], allowed: set[int]) -> set[int]:
    """Return what holds a word of the query, and what stands beside such a turn."""
    is_hit = {row for row, hit in found.items() if hit.context > 0}
    beside = {one for row in is_hit for one in _list_beside(index, row)}
    # `following` names only the newest of several replies; the others know whom they follow.
    replies = {row for row in allowed if index.rows[row].previous in is_hit}
    return (is_hit | beside | replies) & allowed


def _make_spread(values: Iterable[float]) -> Callable[[float], float]:
    """Return what brings values to 0..1; nothing in common is 0, also where nothing is worse."""
    known = [*values, 0.0]
    low, high = min(known), max(known)
    if high - low < 1e-12:
        return lambda value: 0.0
    return lambda value: min(max((value - low) / (high - low), 0.0), 1.0)


def _find_session_best(index: WordIndex, base: dict[int, float]) -> dict[str, float]:
    best: dict[str, float] = {}
    if len(index.sessions) >= 2:
        for row, score in base.items():
            session = index.rows[row].session_id
            best[session] = max(score, best.get(session, 0.0))
    return best


def _score_neighbours(
    index: WordIndex, base: dict[int, float], row: int, weights: Weights
) -> float:
    before, after = _find_step(index, row, is_back=True), _find_step(index, row, is_back=False)
    two_before = _find_step(index, before, is_back=True)
    two_after = _find_step(index, after, is_back=False)

    def at(place: int | None) -> float:
        return 0.0 if place is None else base.get(place, 0.0)

    return (
        weights.before * at(before)
        + weights.after * at(after)
        + weights.two_away * (at(two_before) + at(two_after))
    )


def _find_step(index: WordIndex, row: int | None, *, is_back: bool) -> int | None:
    if row is None or row not in index.rows:
        return None
    return index.rows[row].previous if is_back else index.following.get(row)


def _score_recency(created: float, now: float, weights: Weights) -> float:
    if not weights.recency:
        return 0.0
    age = max(now - created, 0.0) / weights.half_life_s
    return float(weights.recency * 2.0**-age) if age < 1_000 else 0.0


def _score_times(created: float, times: Sequence[NamedTime]) -> float:
    """Return 1 for what was said in a named month; the less, the farther from a named day."""
    day = int(min(max(created, 0.0), 4e9) // _DAY_S)
    return max(_score_time(day, one) for one in times)


@functools.lru_cache(maxsize=4_096)
def _score_time(day: int, one: NamedTime) -> float:
    said = datetime.date.fromordinal(_EPOCH + day)
    year = one.year or said.year
    if not one.day:
        return float((said.year, said.month) == (year, one.month))
    if not datetime.MINYEAR <= year <= datetime.MAXYEAR:
        return 0.0
    wanted = datetime.date(year, one.month, 1).toordinal() - _EPOCH + one.day - 1
    return float(2.0 ** -(abs(day - wanted) / _WEEK_DAYS))


__all__ = ["make_scores", "rank_by_words", "rerank_by_words"]
