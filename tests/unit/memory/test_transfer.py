"""Exported memories come back as they were, or not at all."""

from __future__ import annotations

import msgspec
import pytest
from memory_setting import STATIC, opened

from holdfast.errors import InvalidImport
from holdfast.memory import MemoryManager, MemoryOptions, NoEmbedder, export_memories
from holdfast.memory.transfer import import_memories
from holdfast.redaction import Redactor
from holdfast.testing import FakeClock


async def exported(manager: MemoryManager) -> list[bytes]:
    return [line async for line in export_memories(manager)]


async def test_references_survive_whatever_the_times_say() -> None:
    clock = FakeClock()
    async with opened(NoEmbedder(), clock=clock) as manager:
        now = clock.now()
        old = await manager.store_memory("s1", "lives in Paris", memory_id="z")
        said_before = MemoryOptions(created=now - 100, valid_from=now + 1)
        new = await manager.update_memory(old, "lives in Rome", options=said_before)
        turn = await manager.store_memory("s1", "Where?", memory_id="y")
        after = MemoryOptions(previous_id=turn, derived_from=(turn,), created=now - 50)
        await manager.store_memory("s1", "Rome.", options=after, memory_id="a")
        lines = await exported(manager)
    async with opened(NoEmbedder(), clock=clock) as manager:
        assert await import_memories(manager, lines, now=clock.now()) == (4, 0)
        assert [entry.id for entry in await manager.history(old)] == [old, new]
        answer = await manager.get_memory("a")
        assert (answer.previous_id, answer.derived_from) == (turn, (turn,))
        assert sorted(await exported(manager)) == sorted(lines)


@pytest.mark.parametrize(
    "change",
    [
        {"content": " "},
        {"importance": 7},
        {"created": 1e300},
        {"valid_to": 1.0},
        {"id": "x" * 2_000},
    ],
)
async def test_a_file_with_one_impossible_memory_changes_nothing(change: dict[str, object]) -> None:
    async with opened(NoEmbedder()) as manager:
        await manager.store_memory("s1", "walnut")
        await manager.store_memory("s1", "almond")
        lines = await exported(manager)
    lines[-1] = msgspec.json.encode({**msgspec.json.decode(lines[-1]), **change})
    async with opened(NoEmbedder()) as manager:
        with pytest.raises(InvalidImport) as caught:
            await import_memories(manager, lines, now=0.0)
        assert caught.value.code == "session.invalid_import"
        assert (await manager.stats()).memories == 0


async def test_memories_that_refer_to_each_other_in_a_circle_are_refused() -> None:
    async with opened(NoEmbedder()) as manager:
        for name in ("a", "b"):
            await manager.store_memory("s1", "walnut", memory_id=name)
        one, other = (msgspec.json.decode(line) for line in await exported(manager))
        one["supersedes"], other["supersedes"] = other["id"], one["id"]
        lines = [msgspec.json.encode(line) for line in (one, other)]
    async with opened(NoEmbedder()) as manager:
        with pytest.raises(InvalidImport):
            await import_memories(manager, lines, now=0.0)
        assert (await manager.stats()).memories == 0


async def test_a_pinned_memory_moves_beyond_its_time_to_live() -> None:
    clock = FakeClock()
    async with opened(NoEmbedder(), clock=clock) as manager:
        options = MemoryOptions(ttl_s=10, is_pinned=True)
        memory_id = await manager.store_memory("s1", "walnut", options=options)
        await manager.store_memory("s1", "almond", options=MemoryOptions(ttl_s=10))
        lines = await exported(manager)
    clock.advance(11)
    async with opened(NoEmbedder(), clock=clock) as manager:
        assert await import_memories(manager, lines, now=clock.now()) == (1, 1)
        assert (await manager.get_memory(memory_id)).is_pinned


async def with_vectors() -> list[bytes]:
    async with opened(STATIC) as manager:
        await manager.store_memory("s1", "The kettle is in the attic")
        await manager.store_memory("s1", "The password is hunter2hunter2")
        await manager.pipeline.settle()
        return [line async for line in export_memories(manager, with_vectors=True)]


async def test_vectors_and_tokens_travel_and_are_not_made_again() -> None:
    lines = await with_vectors()
    async with opened(STATIC) as manager:
        await manager.pipeline.stop()
        manager.pipeline._embedder = NoEmbedder()  # nobody makes any here
        assert await import_memories(manager, lines, now=0.0) == (2, 0)
        counts = await manager.stats()
        assert counts.tokens == counts.vectors == {STATIC.model_id: 2}
        assert sorted([line async for line in export_memories(manager, with_vectors=True)]) == (
            sorted(lines)
        )


async def test_vectors_of_another_model_are_left_behind() -> None:
    lines = await with_vectors()
    async with opened(NoEmbedder()) as manager:
        assert await import_memories(manager, lines, now=0.0) == (2, 0)
        counts = await manager.stats()
        assert counts.tokens == counts.vectors == {}


@pytest.mark.parametrize(
    "change",
    [
        {"tokens": "AQI="},
        {"tokens": "AQ=="},
        {"tokens": "//8="},
        {"vector": "AQI="},
        {"vector": "AH4" * 170 + "AA="},
        {"format": "holdfast.memory/3"},
    ],
)
async def test_vectors_and_tokens_that_can_be_none_are_refused(change: dict[str, str]) -> None:
    (line, *_) = await with_vectors()
    bad = msgspec.json.encode({**msgspec.json.decode(line), **change})
    async with opened(STATIC) as manager:
        if change == {"tokens": "AQI="}:  # one known token: as good as any other
            assert await import_memories(manager, [bad], now=0.0) == (1, 0)
            return
        with pytest.raises(InvalidImport):
            await import_memories(manager, [bad], now=0.0)
        assert (await manager.stats()).memories == 0


async def test_what_is_redacted_does_not_come_back_with_its_tokens() -> None:
    lines = await with_vectors()
    async with opened(STATIC, redactor=Redactor({"PASSWORD": "hunter2hunter2"})) as manager:
        await manager.pipeline.stop()
        manager.pipeline._embedder = NoEmbedder()
        await import_memories(manager, lines, now=0.0)
        assert (await manager.stats()).tokens == {STATIC.model_id: 1}


async def test_speakers_of_plain_lines_are_known_again_after_an_import() -> None:
    async with opened(NoEmbedder()) as manager:
        for line in ("Ada: Tea?", "Bo: Yes, with milk.", "Ada: Here it is."):
            await manager.store_memory("s1", line)
        lines = await exported(manager)
    async with opened(NoEmbedder()) as manager:
        await import_memories(manager, lines, now=0.0)
        found = await manager.search_memory("s1", "What does Bo take with tea?")
        assert {entry.content for entry in found if entry.parts and entry.parts.speaker} == {
            "Bo: Yes, with milk."
        }
