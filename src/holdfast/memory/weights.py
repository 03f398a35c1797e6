"""What ranking is told: the query, and how much each part of a score counts.

Without numpy, so that the ranking by words alone (`word_ranking`) needs none either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.memory.answer_types import ENGLISH, AnswerRules
from holdfast.memory.entry import ScoreParts
from holdfast.memory.times import NamedTime

if TYPE_CHECKING:
    from holdfast.memory.embedder import TokenEmbedder
    from holdfast.memory.late_interaction import QueryTokens
    from holdfast.memory.storage import LexicalHit


class RerankWeights(msgspec.Struct, frozen=True, kw_only=True):
    """How much each part of the second ranking counts beside the first score, which counts 1."""

    speaker: float = 0.0
    """Said by a speaker whom the query names; on top of the first ranking's part."""
    time: float = 0.0
    """Said when the query says; on top of the first ranking's part."""
    late: float = 0.0
    """MaxSim of the memory itself."""
    late_context: float = 0.0
    """MaxSim over the memory and the two turns before it."""
    when: float = 0.0
    """Holds a time or a duration, and the query asks for one."""
    number: float = 0.0
    where: float = 0.0
    name: float = 0.0
    reply: float = 0.0
    """Follows a question, by how well that question fits, and is none itself."""
    address: float = 0.0
    """An utterance that says "you", and never "I" or "we"."""


CONTEXTUAL = RerankWeights(
    speaker=0.21,
    time=1.01,
    late=0.53,
    late_context=1.49,
    when=0.60,
    number=0.27,
    where=0.52,
    name=0.36,
    reply=0.32,
    address=-0.35,
)
STATIC = RerankWeights(
    speaker=0.09,
    time=0.47,
    late=0.10,
    late_context=0.59,
    when=0.39,
    number=0.20,
    where=0.38,
    name=0.22,
    reply=0.21,
    address=-0.22,
)
LEXICAL = RerankWeights(when=0.19, number=0.15, where=0.15, name=0.09, address=-0.08)


class Reranking(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the best are ranked again, and how."""

    candidates: int = 80
    """So many of the best of the first ranking; 0 leaves it as it is."""
    contextual: RerankWeights = CONTEXTUAL
    """With tokens that a model read in context."""
    static: RerankWeights = STATIC
    """With tokens whose vectors are the same in every text."""
    lexical: RerankWeights = LEXICAL
    """Without tokens: no embedder, or one that gives none."""
    languages: tuple[AnswerRules, ...] = (ENGLISH,)


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """How much each part counts; only their proportions matter."""

    lexical: float = 0.10
    lexical_context: float = 0.40
    vector: float = 0.15
    vector_context: float = 0.35
    speaker: float = 0.12
    """For what was said by a speaker whom the query names."""
    time: float = 0.40
    """For what was said in the month or around the day that the query names."""
    substance: float = 0.20
    """For utterances that are long and no questions."""
    before: float = 0.03
    """Share of the score of the turn before."""
    after: float = 0.10
    """Share of the score of the turn after, which is often the answer to this one."""
    two_away: float = 0.10
    """Share of the score of what the same person said before and after."""
    session: float = 0.45
    """Share of the best score in the same session."""
    importance: float = 0.2
    recency: float = 0.0
    unrelated: float = -4.0
    """For what has neither word nor meaning in common: below everything that has."""
    half_life_s: float = 30 * 86_400.0
    reranking: Reranking = Reranking()
    """How the best are ranked again."""


class Scores(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a ranking: positions, best first, and what they were made of."""

    rows: list[int]
    scores: list[float]
    parts: list[ScoreParts]


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked for, as the ranking needs it."""

    now: float
    hits: Sequence[LexicalHit] = ()
    vector: Any = None
    """A unit vector as an array, or None."""
    former: tuple[Any, ...] = ()
    """VectorIndex and vector of embedders that were used before, for what has no newer vector."""
    models: tuple[str, ...] = ("",)
    """Names of the embedder and of those that were used before."""
    speakers: frozenset[str] = frozenset()
    """Names that the query mentions."""
    times: tuple[NamedTime, ...] = ()
    """Months and days that the query mentions."""
    limit: int = 10
    """So many of the best are wanted."""


@dataclass(frozen=True)
class TokenQuery:
    """A query's tokens, and the embedder that compares them with those of texts."""

    tokens: QueryTokens
    embedder: TokenEmbedder
    model: str


@dataclass(frozen=True)
class RerankQuery:
    """What the second ranking needs of a query."""

    text: str
    words: Sequence[str]
    late: TokenQuery | None
    is_late: Callable[[], bool]
    """Whether the time for the search is over."""


__all__ = [
    "Query",
    "RerankQuery",
    "RerankWeights",
    "Reranking",
    "Scores",
    "TokenQuery",
    "Weights",
]
