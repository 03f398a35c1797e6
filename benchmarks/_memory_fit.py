"""Fits the weights of the second ranking of memories, and says what they are worth.

    python benchmarks/_memory_fit.py [--locomo FILE] [--ablation]

Run it again when a part of the second ranking changes. It asks every question with all
weights 1, so that the parts of the scores are the features, and fits the weights by gradient
descent on the listwise softmax loss: how likely the evidence is picked among the candidates.
Figures are cross-validated (every conversation answered by weights fitted on the other four)
and fitted (all five); the mean of the five sets of weights is what is shipped.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
from memory import LOCOMO, Corpus, ask, locomo, plain

from holdfast.memory import (
    MemoryEmbedder,
    MemoryEntry,
    MemoryRules,
    MiniLmEmbedder,
    NoEmbedder,
    StaticEmbedder,
)
from holdfast.memory.weights import Reranking, RerankWeights, Weights

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
PARTS: tuple[str, ...] = RerankWeights.__struct_fields__
FIRST = Weights()
DEPTH = 20
GROUPS = {
    "late interaction": ("late", "late_context"),
    "  of the memory": ("late",),
    "  of its context": ("late_context",),
    "answer types": ("when", "number", "where", "name"),
    "reply": ("reply",),
    "address": ("address",),
    "speaker": ("speaker",),
    "time": ("time",),
}
"""What is left out, one after the other, to see what it brings."""


@dataclass(frozen=True)
class Questions:
    """Candidates of all questions: questions by candidates by features, and what is evidence."""

    features: Array
    evidence: Array
    is_there: Array
    wanted: Array
    """How many memories are evidence, candidates or not."""
    conversation: Array
    category: Array

    def of(self, chosen: Array) -> Questions:
        """Return some of the questions."""
        return Questions(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    def without(self, columns: Sequence[int]) -> Questions:
        """Return the same questions with some features at 0."""
        features = self.features.copy()
        features[:, :, list(columns)] = 0.0
        return Questions(features, *list(self.__dict__.values())[1:])


def gather(corpora: list[Corpus], embedder: MemoryEmbedder) -> Questions:
    """Ask all questions with all weights 1, and keep what the scores are made of."""
    ones = RerankWeights(**dict.fromkeys(PARTS, 1.0))
    reranking = Reranking(contextual=ones, static=ones, lexical=ones)
    rules = MemoryRules(weights=msgspec.structs.replace(FIRST, reranking=reranking))
    count = reranking.candidates
    rows: list[tuple[Array, Array, Array, int, int, str]] = []

    async def collect(number: int, corpus: Corpus) -> None:
        async for question, found in ask(corpus, embedder, depth=count, rules=rules):
            features = np.zeros((count, 1 + len(PARTS)))
            evidence, is_there = np.zeros((2, count), np.bool_)
            for line, (key, entry) in enumerate(found):
                features[line] = _features(entry)
                evidence[line], is_there[line] = key in question.answers, True
            wanted = len(question.answers)
            rows.append((features, evidence, is_there, wanted, number, question.category))

    for number, corpus in enumerate(corpora):
        asyncio.run(collect(number, corpus))
    return Questions(*(np.array(column) for column in zip(*rows, strict=True)))


def _features(entry: MemoryEntry) -> list[float]:
    """Return the first score, and each part of the second ranking as it was before weighting."""
    assert entry.parts is not None
    found = {name: getattr(entry.parts, name) for name in PARTS}
    # Both rankings give to these two: the first with its weight, the second with 1.
    for name in ("speaker", "time"):
        found[name] /= getattr(FIRST, name) + 1.0
    return [entry.relevance_score - sum(found.values()), *found.values()]


def fit(some: Questions, free: Sequence[int], steps: int = 400) -> Array:
    """Return weights that make the evidence likely; the first score counts 1."""
    is_known = (some.evidence & some.is_there).any(axis=1)
    features, evidence = some.features[is_known], some.evidence[is_known]
    is_there = some.is_there[is_known]
    weights = np.zeros(features.shape[2])
    weights[0], moving = 3.0, np.zeros((2, len(weights)))
    learned = np.array([0, *free])
    for step in range(1, steps + 1):
        likely = _softmax(np.where(is_there, features @ weights, -np.inf))
        right = likely * evidence
        right /= np.maximum(right.sum(axis=1, keepdims=True), 1e-12)
        slope = np.einsum("qk,qkf->f", likely - right, features) / len(features) + 1e-3 * weights
        moving[0] = 0.9 * moving[0] + 0.1 * slope
        moving[1] = 0.99 * moving[1] + 0.01 * slope**2
        mean, square = moving[0] / (1 - 0.9**step), moving[1] / (1 - 0.99**step)
        weights[learned] -= 0.05 * (mean / (np.sqrt(square) + 1e-8))[learned]
    shares: Array = weights / weights[0]
    return shares


def _softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: Array = powers / powers.sum(axis=1, keepdims=True)
    return shares


def judge(some: Questions, weights: Array) -> tuple[Array, Array]:
    """Return recall@10 and the reciprocal rank within the first 20, of each question."""
    scores = np.where(some.is_there, some.features @ weights, -np.inf)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :DEPTH]
    right = np.take_along_axis(some.evidence, order, axis=1)
    recall = right[:, :10].sum(axis=1) / some.wanted
    rank = np.where(right.any(axis=1), 1.0 / (right.argmax(axis=1) + 1), 0.0)
    return recall, rank


def free_parts(some: Questions) -> list[int]:
    """Return the features that any candidate has."""
    return [one for one in range(1, 1 + len(PARTS)) if some.features[:, :, one].any()]


def fit_without_each(some: Questions, free: Sequence[int]) -> list[Array]:
    """Fit once per conversation, on all others."""
    numbers = range(int(some.conversation.max()) + 1)
    return [fit(some.of(some.conversation != number), free) for number in numbers]


def say(line: str) -> None:
    """Print a line at once: fitting takes minutes."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def show(title: str, recall: Array, rank: Array) -> None:
    """Print one line of a table."""
    say(f"  {title:28} {recall.mean():.4f}  {rank.mean():.4f}  {len(recall)}")


def held_out(some: Questions, sets: Sequence[Array]) -> tuple[Array, Array]:
    """Answer every conversation by the weights that were fitted without it."""
    recall, rank = np.zeros((2, len(some.wanted)))
    for number, weights in enumerate(sets):
        held = some.conversation == number
        recall[held], rank[held] = judge(some.of(held), weights)
    return recall, rank


def tell(name: str, some: Questions, *, has_ablation: bool) -> list[Array]:
    """Fit, print what the weights are worth, and return a set per conversation left out."""
    free = free_parts(some)
    say(f"\n{name}: recall@10, MRR, questions")
    first = np.zeros(1 + len(PARTS))
    first[0] = 1.0
    show("first ranking", *judge(some, first))
    sets = fit_without_each(some, free)
    recall, rank = held_out(some, sets)
    show("cross-validated", recall, rank)
    for category in sorted(set(some.category)):
        show(f"  {category}", recall[some.category == category], rank[some.category == category])
    for number in np.unique(some.conversation):
        held = some.conversation == number
        show(f"  without conversation {number + 1}", recall[held], rank[held])
    shipped: Array = np.mean(sets, axis=0)
    show("fitted on all", *judge(some, fit(some, free)))
    show("mean of the sets", *judge(some, shipped))
    if has_ablation:
        for title, parts in GROUPS.items():
            columns = [1 + PARTS.index(part) for part in parts]
            if some.features[:, :, columns].any():
                left = [one for one in free if one not in columns]
                less = some.without(columns)
                show(f"without {title}", *held_out(less, fit_without_each(less, left)))
    told = {part: round(float(one), 2) for part, one in zip(PARTS, shipped[1:], strict=True)}
    spread = np.std(sets, axis=0)[1:].max()
    say(f"  weights: {told}\n  most spread between the sets: {spread:.2f}")
    return sets


def main() -> int:
    """Fit the weights of every tier."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--locomo", type=Path, default=LOCOMO, help="file of conversations")
    parser.add_argument("--ablation", action="store_true", help="also leave each part out")
    options = parser.parse_args()
    corpora = list(locomo(options.locomo))
    lines = [plain(corpus) for corpus in corpora]
    tiers: dict[str, MemoryEmbedder] = {
        "contextual": MiniLmEmbedder(),
        "static": StaticEmbedder(),
        "lexical": NoEmbedder(),
    }
    for name, embedder in tiers.items():
        some = gather(corpora, embedder)
        sets = tell(name, some, has_ablation=options.ablation)
        if name != "lexical":
            bare = gather(lines, embedder)
            show("plain lines, cross-validated", *held_out(bare, sets))
            show("plain lines, mean of the sets", *judge(bare, np.mean(sets, axis=0)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
