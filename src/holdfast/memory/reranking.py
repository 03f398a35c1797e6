"""Reranking: the best of the first ranking are looked at again, token by token.

The first ranking is cheap and sees every memory; this one reads the texts of its best ones.
Late interaction (MaxSim) says how well a memory's tokens cover those of the query, alone and
with the two turns before it; answer types say whether it can hold what the query asks for.
Each part is weighted and added to the first score. How the weights were fitted is told in
`docs/concepts/memory.md`; `benchmarks/_memory_fit.py` fits them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from holdfast.memory.answer_types import (
    TYPES,
    AnswerRules,
    classify_expected_answer,
    speaks_to_other,
)
from holdfast.memory.late_interaction import compute_idf_weights
from holdfast.memory.weights import Reranking, RerankQuery

if TYPE_CHECKING:
    from holdfast.memory.ranking import Ranking
    from holdfast.memory.storage import MemoryPassage, SearchLookup
    from holdfast.memory.vector_index import Flags, Floats, Ints, VectorIndex

_ENOUGH = 0.5
"""Late interaction counts when at least this share of the candidates has its tokens."""


def rerank(
    index: VectorIndex, first: Ranking, query: RerankQuery, rules: Reranking, lookup: SearchLookup
) -> Ranking:
    """Return the first ranking with its best ones in a better order.

    What is beyond the candidates keeps its score. If time is over before the texts are
    read, or has run out when they are, the first ranking is returned as it is.
    """
    # What has nothing to do with the query stands last, and stays there.
    related = int(np.count_nonzero(first.parts["unrelated"] >= 0))
    count = min(rules.candidates, related)
    if not count or query.is_late():
        return first
    places = first.places[:count]
    turns = _Turns(index, places)
    model = query.late.model if query.late is not None else ""
    passages = lookup.passages(turns.rows(places), model)
    if query.is_late():
        return first
    late = _open_late_interaction(turns, passages, query, lookup)
    weights = rules.lexical
    if late is not None and query.late is not None:
        kind = query.late.tokens.kind
        weights = rules.contextual if kind == "contextual" else rules.static
    found = _answer_types(turns, passages, query.text, rules.languages)
    found |= {"speaker": first.speaker[:count], "time": first.time[:count]}
    if late is not None:
        found |= {"late": late.own, "late_context": late.context, "reply": late.reply}
    return _reorder(first, {name: getattr(weights, name) * one for name, one in found.items()})


class _Turns:
    """The candidates with the two turns before each."""

    def __init__(self, index: VectorIndex, places: Ints) -> None:
        self.index = index
        self.places = places
        first = index.previous.take(places)
        self.before = first
        self.two_before = np.where(first >= 0, index.previous.take(np.maximum(first, 0)), -1)
        every = np.unique(np.concatenate([places, first, self.two_before]))
        self.every = every[every >= 0]

    def rows(self, places: Ints) -> list[int]:
        """Return the rows at some places."""
        rows: list[int] = self.index.column("row").take(places).tolist()
        return rows

    def lines(self, places: Ints) -> Ints:
        """Return where places stand among all turns; -1 for those that are not there."""
        found = np.searchsorted(self.every, np.maximum(places, 0))
        return np.where(places >= 0, found, -1)


@dataclass(frozen=True)
class _Late:
    own: Floats
    context: Floats
    reply: Floats


def _open_late_interaction(
    turns: _Turns, passages: dict[int, MemoryPassage], query: RerankQuery, lookup: SearchLookup
) -> _Late | None:
    """Return MaxSim of each candidate, brought to 0..1 among them; None without tokens."""
    late = query.late
    if late is None or not len(late.tokens.matrix):
        return None
    rows = turns.rows(turns.every)
    tokens = {row: one.tokens for row, one in passages.items() if one.tokens is not None}
    beside = [row for row in rows if row not in passages]
    tokens |= lookup.tokens(beside, late.model)
    blobs = [tokens.get(row) for row in rows]
    is_known: Flags = np.array([blob is not None for blob in blobs], np.bool_)
    own_lines = turns.lines(turns.places)
    if is_known[own_lines].mean() < _ENOUGH:
        return None
    try:
        best = late.embedder.compute_max_similarities(late.tokens, [blob or b"" for blob in blobs])
    except ValueError:
        return None  # bytes that are no tokens of the model: the first ranking stands
    counts = lookup.count_words(query.words)
    weights = compute_idf_weights(late.tokens.words, counts.counts, counts.total)
    # One more at the end, which is where -1 leads: nothing is farther.
    best = np.vstack([best, np.full((1, best.shape[1]), -1.0, np.float32)])
    lines = [own_lines, turns.lines(turns.before), turns.lines(turns.two_before)]
    own = best[lines[0]] @ weights
    context = np.maximum(np.maximum(best[lines[0]], best[lines[1]]), best[lines[2]]) @ weights
    known = is_known[own_lines]
    asked = _spread(best[lines[1]] @ weights, own[known])
    is_question = turns.index.column("is_question")
    answers = (turns.before >= 0) & is_question.take(turns.before) & ~is_question[turns.places]
    return _Late(
        _fill(_spread(own, own[known]), known),
        _fill(_spread(context, context[known]), known),
        np.where(answers, asked, 0.0).astype(np.float32),
    )


def _spread(values: Floats, among: Floats) -> Floats:
    """Bring values to 0..1 by the least and the greatest of some."""
    low, high = float(among.min()), float(among.max())
    if high - low < 1e-9:
        return np.zeros_like(values)
    spread: Floats = np.clip((values - low) / (high - low), 0.0, 1.0).astype(np.float32)
    return spread


def _fill(values: Floats, known: Flags) -> Floats:
    """Give those whose tokens are not made yet the mean of the others."""
    return values if known.all() else np.where(known, values, values[known].mean())


def _answer_types(
    turns: _Turns, passages: dict[int, MemoryPassage], text: str, languages: Sequence[AnswerRules]
) -> dict[str, Floats]:
    rows = turns.rows(turns.places)
    texts = [passages[row].content if row in passages else "" for row in rows]
    expected = classify_expected_answer(text, languages)
    found = {kind: np.zeros(len(texts), np.float32) for kind in TYPES}
    if expected.rules:
        for line, content in enumerate(texts):
            for kind, fits in expected.fits(content).items():
                found[kind][line] = fits
    is_said = turns.index.is_utterance.take(turns.places)
    found["address"] = np.array(
        [
            said and speaks_to_other(one, languages)
            for said, one in zip(is_said, texts, strict=True)
        ],
        np.float32,
    )
    return found


def _reorder(first: Ranking, added: dict[str, Floats]) -> Ranking:
    """Return a ranking with parts added to its best ones, sorted anew."""
    count = len(next(iter(added.values())))
    totals = first.totals.copy()
    parts = dict(first.parts)
    for name, values in added.items():
        totals[:count] += values
        whole = parts[name].copy() if name in parts else np.zeros(len(totals), np.float32)
        whole[:count] += values
        parts[name] = whole
    # Stable: of equal scores, the first ranking's order stays.
    order = np.argsort(-totals, kind="stable")
    return replace(
        first,
        places=first.places[order],
        totals=totals[order],
        parts={name: values[order] for name, values in parts.items()},
        cosine=first.cosine[order],
        space=first.space[order],
        speaker=first.speaker[order],
        time=first.time[order],
    )


__all__ = ["rerank"]
