"""Vectors follow in the background; a failing embedder costs nothing but itself."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from memory_setting import NAN, BrokenEmbedder, LetterEmbedder, opened

from holdfast.errors import EmbeddingFailed
from holdfast.memory import InMemoryStorage, MemoryManager, StaticEmbedder
from holdfast.memory.embedder import pack_vector
from holdfast.memory.pipeline import EmbeddingPipeline
from holdfast.testing import FakeClock


class Flaky(LetterEmbedder):
    """Fails a few times, then works."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("not now")
        return await super().embed(texts)


@pytest.mark.parametrize(
    "answer", [NAN, [1.0], [0.0] * 26, [math.inf] * 26, ["x"] * 26, None, 7, "a" * 26]
)
async def test_unusable_vectors_are_noted_and_the_memory_is_kept(answer: object) -> None:
    embedder = BrokenEmbedder(answer)
    async with opened(embedder) as manager:
        await manager.store_memory("s1", "walnut", {})
        await manager.pipeline.settle()
        counts = await manager.stats()
        assert (counts.refused, counts.vectors, counts.memories) == (1, {}, 1)
        assert len(await manager.search_memory("s1", "walnut")) == 1


async def test_a_failing_embedder_is_asked_again_later() -> None:
    storage, clock = InMemoryStorage(), FakeClock()
    embedder = Flaky(3)
    manager = MemoryManager(storage, embedder, clock=clock)
    await storage.open()
    await manager._storage.add([manager._draft("s1", "walnut", None, None, "")])
    pipeline = EmbeddingPipeline(storage, embedder, sleep=clock.sleep)
    started = clock.now()
    pipeline.wake()
    assert await pipeline.settle(60)
    assert clock.now() - started == 1 + 2 + 4
    assert pipeline.last_error == ""
    assert (await manager.stats()).vectors == {"letters/1": 1}
    await storage.close()


async def test_a_memory_that_the_embedder_fails_on_holds_up_no_other() -> None:
    class Picky(LetterEmbedder):
        async def embed(self, texts: Sequence[str]) -> list[list[float]]:
            if any("cursed" in text for text in texts):
                raise ValueError("not this one")
            return await super().embed(texts)

    storage, clock, embedder = InMemoryStorage(), FakeClock(), Picky()
    manager = MemoryManager(storage, embedder, clock=clock)
    await storage.open()
    words = ["walnut 0", "cursed", *(f"walnut {n}" for n in range(1, 20))]
    await storage.add([manager._draft("s1", word, None, None, "") for word in words])
    all_tried = asyncio.Event()

    async def sleep(seconds: float) -> None:
        if len(await storage.list_unembedded("letters/1", 100)) == 1:
            all_tried.set()
        await clock.sleep(seconds)

    pipeline = EmbeddingPipeline(storage, embedder, batch=8, sleep=sleep)
    pipeline.wake()
    async with asyncio.timeout(30):
        await all_tried.wait()
    await pipeline.stop()
    assert (await manager.stats()).vectors == {"letters/1": 20}
    assert "not this one" in pipeline.last_error
    await storage.close()


async def test_batches_are_bounded_and_wait_in_the_storage() -> None:
    storage, embedder = InMemoryStorage(), LetterEmbedder()
    manager = MemoryManager(storage, embedder, clock=FakeClock())
    await storage.open()
    drafts = [manager._draft("s1", f"walnut {n}", None, None, "") for n in range(150)]
    await storage.add(drafts)
    pipeline = EmbeddingPipeline(storage, embedder, batch=64)
    pipeline.wake()
    await pipeline.settle()
    assert [len(batch) for batch in embedder.asked] == [64, 64, 22]
    await storage.close()


async def test_stopping_in_the_midst_goes_on_next_time() -> None:
    storage = InMemoryStorage()
    gate = asyncio.Event()

    class Waiting(LetterEmbedder):
        async def embed(self, texts: Sequence[str]) -> list[list[float]]:
            await gate.wait()
            return await super().embed(texts)

    manager = MemoryManager(storage, Waiting(), clock=FakeClock())
    await storage.open()
    await manager.store_memory("s1", "walnut", {})
    assert not await manager.pipeline.settle(0.01)
    await manager.pipeline.stop()
    gate.set()
    manager.pipeline.wake()
    await manager.pipeline.settle()
    assert (await manager.stats()).vectors == {"letters/1": 1}
    await manager.close()


async def test_names_of_speakers_are_not_part_of_the_meaning() -> None:
    embedder = LetterEmbedder()
    async with opened(embedder) as manager:
        await manager.store_memory("s1", "Ada's boat is red", {"speaker": "Ada"})
        await manager.pipeline.settle()
        assert embedder.asked == [["boat is red"]]


def test_a_vector_is_kept_as_a_direction() -> None:
    assert pack_vector([3.0, 4.0], 2, "m") == pack_vector([30.0, 40.0], 2, "m")
    with pytest.raises(EmbeddingFailed) as caught:
        pack_vector([1e308, 1e308], 2, "m")
    assert caught.value.code == "memory.embedding"


def test_the_built_in_embedder_reads_only_its_own_files(tmp_path: Path) -> None:
    embedder = StaticEmbedder()
    near, far = embedder.embed_now(["a physician", "a train"])
    (asked,) = embedder.embed_now(["the doctor"])
    assert sum(a * b for a, b in zip(asked, near, strict=True)) > sum(
        a * b for a, b in zip(asked, far, strict=True)
    )
    (nothing,) = embedder.embed_now([""])
    assert len(nothing) == 256 and any(nothing)
    with pytest.raises(EmbeddingFailed):
        StaticEmbedder(tmp_path).embed_now(["x"])
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "l2_supercat_256.safetensors").write_bytes(b"\x05" + bytes(20))
    with pytest.raises(EmbeddingFailed):
        StaticEmbedder(tmp_path).embed_now(["x"])
