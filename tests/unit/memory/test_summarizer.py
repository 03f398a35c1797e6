"""Summaries: written by a model, or picked and marked so."""

from __future__ import annotations

import pytest
from memory_setting import LetterEmbedder, opened

from holdfast.errors import LLMConnectionError
from holdfast.memory import ExtractiveSummarizer, MemoryEntry, ModelSummarizer, NoEmbedder
from holdfast.memory import manager as module
from holdfast.providers.model import ModelInfo
from holdfast.testing import ScriptedModel

LLM = ModelInfo(provider="test", model="writer")


def entry(number: int, content: str, **more) -> MemoryEntry:
    return MemoryEntry(id=f"mem_{number}", session_id="s1", content=content, created=1.0, **more)


async def test_a_model_writes_the_summary_and_sees_the_memories() -> None:
    model = ScriptedModel("Ada moved to Rome.", info=LLM)
    async with opened(LetterEmbedder(), summarizer=ModelSummarizer(model)) as manager:
        first = await manager.store_memory("s1", "Ada lives in Rome now", {})
        summary = await manager.summarize_memories("s1", 0)
        assert (summary.summary, summary.method) == ("Ada moved to Rome.", "model")
        assert summary.memory_ids == (first,)
        stored = await manager.get_memory(summary.id)
        assert (stored.kind, stored.derived_from) == ("summary", (first,))
        assert "Ada lives in Rome now" in model.requests[0].messages[0].text


async def test_a_summary_of_more_than_a_thousand_says_that_it_is_not_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_SUMMED_UP", 3)
    async with opened(NoEmbedder()) as manager:
        ids = [await manager.store_memory("s1", f"walnut {number}") for number in range(3)]
        assert (await manager.summarize_memories("s1", 0, store=False)).is_whole
        ids.append(await manager.store_memory("s1", "walnut 3"))
        partly = await manager.summarize_memories("s1", 0)
        assert (partly.is_whole, partly.memory_ids) == (False, tuple(ids[1:]))
        assert (await manager.get_memory(partly.id)).metadata["is_whole"] is False


async def test_a_model_that_fails_is_replaced_by_picked_sentences() -> None:
    failing = ScriptedModel(LLMConnectionError(provider="x", detail="gone"), info=LLM)
    made = await ModelSummarizer(failing).summarize([entry(1, "The boat is red.")], max_words=20)
    assert (made.text, made.method) == ("The boat is red.", "extractive")


async def test_picked_sentences_are_word_for_word_in_order_and_within_the_limit() -> None:
    memories = [
        entry(1, "The boat is red. Nothing else."),
        entry(2, "The boat is red.", speaker="Ada"),
        entry(3, "We sail the boat on Sunday.", importance=1.0),
    ]
    made = await ExtractiveSummarizer().summarize(memories, max_words=11)
    lines = made.text.splitlines()
    assert len(made.text.split()) <= 12
    assert "We sail the boat on Sunday." in lines
    assert sum("The boat is red." in line for line in lines) <= 1
    whole = " ".join(memory.content for memory in memories)
    assert all(line.removeprefix("Ada: ") in whole for line in lines)


async def test_one_endless_sentence_is_cut() -> None:
    made = await ExtractiveSummarizer().summarize([entry(1, "word " * 500)], max_words=10)
    assert made.text == " ".join(["word"] * 10)


async def test_of_much_text_each_memory_is_looked_at_a_little() -> None:
    filler = "Nothing happened on that day. " * 40
    memories = [entry(n, f"Ship {n} came. {filler}Hidden treasure {n}.") for n in range(900)]
    made = await ExtractiveSummarizer().summarize(memories, max_words=150)
    assert "came" in made.text or "Nothing" in made.text
    assert "treasure" not in made.text


async def test_scripts_without_blanks_have_sentences_and_a_limit_too() -> None:
    told = "\u8239\u662f\u7ea2\u8272\u7684\u3002"  # a sentence of five characters and its end
    other = "\u706f\u5854\u662f\u767d\u8272\u7684\u3002"
    made = await ExtractiveSummarizer().summarize([entry(1, told * 3 + other)], max_words=20)
    assert sorted(made.text.splitlines()) == sorted([told, other])
    endless = await ExtractiveSummarizer().summarize([entry(1, told[0] * 5_000)], max_words=10)
    assert 0 < len(endless.text) <= 120
