"""The rules of a manager: how memories are ranked, and how long they are kept."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.memory.former import PATIENCE_S
from holdfast.memory.weights import Weights

_SUMMARY_WORDS = 150


class MemoryRules(msgspec.Struct, frozen=True, kw_only=True):
    """How memories are ranked and how long they are kept."""

    weights: Any = None
    """`weights.Weights`; the built-in ones if None."""
    recency: float = 0.0
    """How much being new counts when ranking, if no weights are given; words and meaning make 1."""
    max_entries: int | None = None
    """Most memories per place (a session, a user, a project); the least worth go first."""
    max_bytes: int | None = None
    half_life_s: float = 30 * 86_400.0
    """After this time being new counts half, in ranking and for what goes first."""
    purge_every_s: float = 300.0
    rerank: bool = True
    """Whether the best are ranked again, by late interaction and answer types."""
    rerank_within_s: float | None = None
    """A search that has taken longer than this is answered by its first ranking."""
    languages: tuple[Any, ...] | None = None
    """`answer_types.AnswerRules` of the languages that queries are in; English if None."""
    former_patience_s: float = PATIENCE_S
    """How long a search waits for the embedder of older vectors."""
    summary_words: int = _SUMMARY_WORDS

    def compute_weights(self) -> Weights:
        """Return how much each part of a score counts."""
        given: Weights | None = self.weights
        chosen = given or Weights(recency=self.recency, half_life_s=self.half_life_s)
        if self.rerank and self.languages is None:
            return chosen
        reranking = msgspec.structs.replace(
            chosen.reranking,
            candidates=chosen.reranking.candidates if self.rerank else 0,
            languages=chosen.reranking.languages if self.languages is None else self.languages,
        )
        return msgspec.structs.replace(chosen, reranking=reranking)


__all__ = ["MemoryRules"]
