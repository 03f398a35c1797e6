"""Ranking of many: the best are found without weighing all."""

from __future__ import annotations

import pytest
from memory_setting import LetterEmbedder, opened

from holdfast.memory import MemoryManager, MemoryOptions, vector_index

WORDS = ["walnut", "harbour", "orchid", "lantern", "granite", "meadow", "violin", "copper"]


async def fill(manager: MemoryManager) -> None:
    previous = ""
    for number in range(300):
        words = [WORDS[number % 8], WORDS[(number * 5 + number // 8) % 8], f"item{number}"]
        options = MemoryOptions(speaker=("Ada", "Bo")[number % 2], previous_id=previous)
        text = " ".join(words) + ("?" if number % 3 == 0 else ".")
        memory_id = await manager.store_memory("s", text, options=options)
        previous = memory_id if number % 20 else ""
    await manager.pipeline.settle()


@pytest.mark.parametrize("query", ["item7 walnut", "meadow violin", "What did Ada say of copper?"])
async def test_candidates_give_the_same_best_as_everything(
    monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    async with opened(LetterEmbedder()) as manager:
        await fill(manager)
        whole = await manager.search_memory("s", query, 10)
        monkeypatch.setattr(vector_index, "WHOLE", 10)
        monkeypatch.setattr(vector_index, "NEAREST", 120)
        some = await manager.search_memory("s", query, 10)
    assert [entry.id for entry in some][:5] == [entry.id for entry in whole][:5]


async def test_filters_hold_for_candidates_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_index, "WHOLE", 10)
    monkeypatch.setattr(vector_index, "NEAREST", 20)
    async with opened(LetterEmbedder()) as manager:
        await fill(manager)
        found = await manager.search_memory("s", "walnut", 50, {"speaker": "Ada"})
        assert found and {entry.speaker for entry in found} == {"Ada"}
        none = await manager.search_memory("s", "walnut", 50, {"speaker": "Nobody"})
        assert none == []


async def test_parts_add_up_to_the_score() -> None:
    async with opened(LetterEmbedder()) as manager:
        await fill(manager)
        for entry in await manager.search_memory("s", "What did Ada say of walnut in May?", 10):
            assert entry.parts is not None
            names = [
                n for n in entry.parts.__struct_fields__ if n not in ("cosine", "vector_model")
            ]
            total = sum(getattr(entry.parts, name) for name in names)
            assert total == pytest.approx(entry.relevance_score, abs=1e-4)
