"""The second ranking: what it lifts, what it leaves, and when it is left out."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from memory_setting import STATIC, opened

from holdfast import AsyncClient
from holdfast.memory import (
    MemoryEntry,
    MemoryManager,
    MemoryOptions,
    MemoryRules,
    NoEmbedder,
    SqliteMemoryStorage,
    StaticEmbedder,
)
from holdfast.memory.weights import RerankWeights
from holdfast.testing import FakeClock

PARTS = ("late", "late_context", "when", "number", "where", "name", "reply", "address")
TALK = (
    ("Ann", "When did you two get the puppy?"),
    ("Bea", "We got the puppy last Tuesday, at the shelter."),
    ("Ann", "You must love your puppy so much, you lucky ones!"),
    ("Bea", "The puppy sleeps on the sofa and chews my shoes."),
)


async def told(manager: MemoryManager, query: str, limit: int = 10) -> list[MemoryEntry]:
    previous = ""
    for speaker, text in TALK:
        options = MemoryOptions(speaker=speaker, previous_id=previous)
        previous = await manager.store_memory("s", text, options=options)
    await manager.pipeline.settle()
    return await manager.search_memory("s", query, limit)


async def test_the_answer_comes_before_the_question_and_the_praise() -> None:
    async with opened(STATIC) as manager:
        found = await told(manager, "When did Bea get the puppy?")
    best = found[0]
    assert best.content == TALK[1][1] and best.parts is not None
    assert best.parts.when > 0 and best.parts.reply > 0 and best.parts.late > 0
    parts = {entry.content: entry.parts for entry in found}
    assert parts[TALK[2][1]].address < 0 == parts[TALK[3][1]].address  # type: ignore[union-attr]
    assert parts[TALK[0][1]].reply == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("embedder", [STATIC, NoEmbedder()])
async def test_all_parts_add_up_to_the_score(embedder: StaticEmbedder) -> None:
    async with opened(embedder) as manager:
        for entry in await told(manager, "When did Bea get the puppy?"):
            names = set(entry.parts.__struct_fields__) - {"cosine", "vector_model"}
            total = sum(getattr(entry.parts, name) for name in names)
            assert total == pytest.approx(entry.relevance_score, abs=1e-4)


@pytest.mark.parametrize(
    "rules", [MemoryRules(rerank=False), MemoryRules(rerank_within_s=0.0)], ids=["off", "no time"]
)
async def test_without_it_the_first_ranking_stands(rules: MemoryRules) -> None:
    async with opened(STATIC, rules=rules) as manager:
        found = await told(manager, "When did Bea get the puppy?")
    assert found and all(getattr(entry.parts, part) == 0 for entry in found for part in PARTS)
    scores = [entry.relevance_score for entry in found]
    assert scores == sorted(scores, reverse=True)


class SlowStorage(SqliteMemoryStorage):
    """Reading passages takes time, on the clock of the test."""

    def __init__(self, path: Path, clock: FakeClock) -> None:
        super().__init__(path)
        self.clock = clock

    async def select(self, places, words, where, choose, *, now):  # type: ignore[no-untyped-def]
        def slowly(hits, passing, lookup):  # type: ignore[no-untyped-def]
            self.clock.advance(1.0)
            return choose(hits, passing, lookup)

        return await super().select(places, words, where, slowly, now=now)


async def test_a_search_that_took_too_long_is_answered_by_the_first_ranking(
    tmp_path: Path,
) -> None:
    for within_s, is_reranked in ((0.5, False), (5.0, True)):
        clock = FakeClock()
        storage = SlowStorage(tmp_path / f"{within_s}.db", clock)
        rules = MemoryRules(rerank_within_s=within_s)
        async with opened(STATIC, storage=storage, clock=clock, rules=rules) as manager:
            best, *_ = await told(manager, "When did Bea get the puppy?")
            assert best.parts is not None and (best.parts.late > 0) is is_reranked


async def test_what_is_beyond_the_candidates_is_still_found() -> None:
    async with opened(STATIC) as manager:
        for number in range(120):
            await manager.store_memory("s", f"walnut cake number {number}")
        await manager.pipeline.settle()
        found = await manager.search_memory("s", "walnut cake", 120)
    assert len({entry.id for entry in found}) == 120
    scores = [entry.relevance_score for entry in found]
    assert scores == sorted(scores, reverse=True)


async def test_a_score_stays_within_the_sum_of_the_weights() -> None:
    rules = MemoryRules(rerank=False)
    async with opened(STATIC, rules=rules) as manager:
        first = {entry.id: entry for entry in await told(manager, "When did Bea get a puppy?")}
        manager._searcher._weights = MemoryRules().compute_weights
        again = await manager.search_memory("s", "When did Bea get a puppy?")
    weights = MemoryRules().compute_weights().reranking.static
    names = RerankWeights.__struct_fields__
    high = sum(max(getattr(weights, name), 0.0) for name in names)
    low = sum(min(getattr(weights, name), 0.0) for name in names)
    for entry in again:
        more = entry.relevance_score - first[entry.id].relevance_score
        assert low - 1e-4 <= more <= high + 1e-4


@pytest.mark.parametrize("fault", ["half of a token", "most are missing"])
async def test_tokens_that_cannot_be_read_cost_their_part_only(tmp_path: Path, fault: str) -> None:
    path = tmp_path / "memory.db"
    async with opened(STATIC, storage=SqliteMemoryStorage(path)) as manager:
        await told(manager, "puppy")
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            if fault == "half of a token":
                db.execute("UPDATE tokens SET tokens = x'010203' WHERE row = 2")
            else:
                db.execute("DELETE FROM tokens WHERE row > 1")
        found = await manager.search_memory("s", "When did Bea get the puppy?")
    assert len(found) == 4
    assert all(entry.parts and entry.parts.late == 0 for entry in found)
    assert max(entry.parts.when for entry in found if entry.parts) > 0


async def test_a_memory_whose_tokens_are_still_made_is_neither_lifted_nor_lowered(
    tmp_path: Path,
) -> None:
    path = tmp_path / "memory.db"
    async with opened(STATIC, storage=SqliteMemoryStorage(path)) as manager:
        await told(manager, "puppy")
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("DELETE FROM tokens WHERE row = 2")
        found = await manager.search_memory("s", "When did Bea get the puppy?")
    late = {entry.content: entry.parts.late for entry in found if entry.parts}
    others = [value for content, value in late.items() if content != TALK[1][1]]
    assert late[TALK[1][1]] == pytest.approx(sum(others) / len(others), abs=1e-5)


async def test_the_second_ranking_is_a_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value, is_on in (("true", True), ("false", False)):
        monkeypatch.setenv("HOLDFAST_MEMORY__RERANK", value)
        async with AsyncClient(tmp_path / value) as client:
            session = await client.create_session("Trip")
            await client.store_memory(session.id, "The train left at 7 on Monday")
            found = await client.search_memory(session.id, "When did the train leave?")
            assert found[0].parts is not None and (found[0].parts.when > 0) is is_on
