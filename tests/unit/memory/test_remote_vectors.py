"""Vectors from a provider, over a real connection."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from memory_setting import BrokenEmbedder, LetterEmbedder, opened

from holdfast import AsyncClient
from holdfast.errors import (
    EmbeddingFailed,
    LLMAuthError,
    LLMConnectionError,
    LLMError,
    MissingExtra,
    RateLimitError,
    RateRuleTooSmall,
    UsageError,
)
from holdfast.memory import (
    InMemoryStorage,
    MemoryManager,
    MemoryRules,
    RemoteEmbedder,
    SqliteMemoryStorage,
    StaticEmbedder,
    UnreadyEmbedder,
    minilm,
)
from holdfast.observability.logger import LogEvent
from holdfast.providers.rate_limits import RateLimiter
from holdfast.providers.rate_rules import RateLimitRule
from holdfast.providers.wire import Endpoint, Secret
from holdfast.testing import FakeClock
from holdfast.testing.fake_server import Failure, FakeServer, RawAnswer

KEY = "sk-test-0123456789abcdefghij"


class Naps:
    """Keeps how long somebody would have waited."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)
        await asyncio.sleep(0)


def embedder_of(server: FakeServer, naps: Naps | None = None, *, dimension: int | None = 64):
    endpoint = Endpoint(provider="openai", base_url=server.base_url, key=Secret(KEY))
    return RemoteEmbedder(endpoint, "some-model", dimension=dimension, sleep=naps or Naps())


async def test_texts_become_vectors_in_batches() -> None:
    async with FakeServer(key=KEY) as server:
        embedder = embedder_of(server)
        vectors = await embedder.embed([f"text {number}" for number in range(300)])
        await embedder.close()
    assert len(vectors) == 300 and {len(vector) for vector in vectors} == {64}
    assert [len(request.json["input"]) for request in server.requests] == [128, 128, 44]
    assert "dimensions" not in server.requests[0].json
    assert server.connections == 1


async def test_another_length_than_the_model_s_own_is_asked_for() -> None:
    async with FakeServer() as server:
        endpoint = Endpoint(provider="openai", base_url=server.base_url)
        embedder = RemoteEmbedder(endpoint, "text-embedding-3-small", dimension=32)
        (vector,) = await embedder.embed(["hello"])
        await embedder.close()
    assert len(vector) == 32 and server.requests[0].json["dimensions"] == 32
    assert RemoteEmbedder(endpoint, "text-embedding-3-small").dimension == 1536
    with pytest.raises(UsageError) as caught:
        RemoteEmbedder(endpoint, "nobody-knows-it")
    assert caught.value.code == "usage.invalid"


async def test_passing_failures_are_tried_again_as_long_as_the_server_asks() -> None:
    naps = Naps()
    busy = Failure(status=429, message="slow down", headers={"Retry-After": "2"})
    async with FakeServer([busy, Failure(status=503, message="away")]) as server:
        embedder = embedder_of(server, naps)
        assert len(await embedder.embed(["hello"])) == 1
        await embedder.close()
    assert naps.taken == [2.0, 1.0]


async def test_what_does_not_pass_is_raised_at_once_and_shows_no_key() -> None:
    naps = Naps()
    async with FakeServer(key="another") as server:
        embedder = embedder_of(server, naps)
        with pytest.raises(LLMAuthError) as caught:
            await embedder.embed(["hello"])
        await embedder.close()
    assert naps.taken == [] and KEY not in str(caught.value) + repr(caught.value.to_dict())


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"data": []}', EmbeddingFailed),
        (b'{"data": [{"index": 7, "embedding": [1.0]}]}', EmbeddingFailed),
        (b'{"data": [{"index": 0, "embedding": ["x"]}]}', LLMError),
        (b'{"error": {"message": "no such model"}}', LLMError),
        (b"<html>", LLMError),
        (b"[" * 10_000, LLMError),
    ],
)
async def test_nonsense_is_told_as_such(body: bytes, kind: type[Exception]) -> None:
    async with FakeServer([RawAnswer(chunks=(body,))] * 3) as server:
        embedder = embedder_of(server)
        with pytest.raises(kind):
            await embedder.embed(["hello"])
        await embedder.close()


async def test_a_server_that_is_away_loses_no_memory_and_is_caught_up_with() -> None:
    server = FakeServer()
    await server.start()
    port = int(server.base_url.split(":")[2].split("/")[0])
    embedder = embedder_of(server)
    await server.stop()
    with pytest.raises(LLMConnectionError):
        await embedder.embed(["hello"])
    came_back = asyncio.Event()

    async with MemoryManager(InMemoryStorage(), embedder) as manager:

        async def return_then(_: float) -> None:
            if not came_back.is_set():
                await server.start(port)
                came_back.set()

        manager.pipeline._sleep = return_then
        wanted = await manager.store_memory("s", "the harbour opens at dawn")
        found = await manager.search_memory("s", "harbour")
        assert [entry.id for entry in found] == [wanted]
        assert await manager.pipeline.settle(10)
        assert (await manager.stats()).vectors == {embedder.model_id: 1}
        (entry,) = await manager.search_memory("s", "harbour")
        assert entry.parts is not None and entry.parts.cosine is not None
    await embedder.close()
    await server.stop()


async def test_vectors_of_the_wrong_length_are_refused_and_the_memory_kept() -> None:
    async with FakeServer(dimension=16) as server:
        embedder = embedder_of(server, dimension=64)
        async with MemoryManager(InMemoryStorage(), embedder) as manager:
            await manager.store_memory("s", "the harbour opens at dawn")
            assert await manager.pipeline.settle(10)
            stats = await manager.stats()
            assert (stats.memories, stats.vectors, stats.refused) == (1, {}, 1)
            assert len(await manager.search_memory("s", "harbour")) == 1
        await embedder.close()


async def test_the_settings_choose_and_changing_them_embeds_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncClient(tmp_path) as client:
        session = await client.create_session("talk")
        await client.store_memory(session.id, "the harbour opens at dawn")
        assert await (await client.memory.manager()).pipeline.settle(30)
        assert (await client.memory.stats()).vectors == {StaticEmbedder.model_id: 1}
    async with FakeServer(key=KEY) as server:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("HOLDFAST_MEMORY__EMBEDDER", "openai:some-model")
        monkeypatch.setenv("HOLDFAST_MEMORY__DIMENSIONS", "64")
        async with AsyncClient(tmp_path) as client:
            await client.memory.reindex()
            assert (await client.memory.stats()).vectors == {"openai:some-model/64": 1}
            (entry, *_) = await client.search_memory(session.id, "dawn")
            assert entry.parts is not None and entry.parts.cosine is not None
    monkeypatch.setenv("HOLDFAST_MEMORY__EMBEDDER", "none")
    async with AsyncClient(tmp_path) as client:
        assert len(await client.search_memory(session.id, "dawn")) == 1
    monkeypatch.setenv("HOLDFAST_MEMORY__EMBEDDER", "nonsense")
    async with AsyncClient(tmp_path) as client:
        with pytest.raises(UsageError):
            await client.search_memory(session.id, "dawn")


async def test_our_own_rate_rules_hold_for_embeddings() -> None:
    clock = FakeClock()
    rules = [
        RateLimitRule(name="calls", max_calls=3, window_seconds=60, scope="model"),
        RateLimitRule(name="tokens", max_tokens=100, window_seconds=60),
    ]
    limiter = RateLimiter(rules, on_exhausted="refuse", clock=clock, sleep=clock.sleep)
    async with FakeServer() as server:
        endpoint = Endpoint(provider="openai", base_url=server.base_url)
        embedder = RemoteEmbedder(endpoint, "some-model", dimension=64, limiter=limiter)
        # More than a rule lets through at once goes in several requests.
        long = "harbour " * 30
        vectors = await embedder.embed([long, long])
        assert len(vectors) == 2 and len(server.requests) == 2
        # What the server counted is what counts: 60 tokens, not 120, so that 40 are left.
        with pytest.raises(RateLimitError) as caught:
            await embedder.embed([long])
        assert (caught.value.code, caught.value.context["rule"]) == ("rate.limited", "tokens")
        assert len(await embedder.embed(["dawn"])) == 1
        with pytest.raises(RateLimitError) as caught:
            await embedder.embed(["dusk"])
        assert caught.value.context["rule"] == "calls" and len(server.requests) == 3
        clock.advance(61)
        assert len(await embedder.embed(["dusk"])) == 1
        with pytest.raises(RateRuleTooSmall):
            await embedder.embed(["harbour " * 1_000])
        await embedder.close()


async def test_memories_beyond_a_rate_rule_are_embedded_later() -> None:
    clock = FakeClock()
    rule = RateLimitRule(name="calls", max_calls=1, window_seconds=60)
    limiter = RateLimiter([rule], on_exhausted="refuse", clock=clock, sleep=clock.sleep)
    async with FakeServer() as server:
        endpoint = Endpoint(provider="openai", base_url=server.base_url)
        embedder = RemoteEmbedder(endpoint, "some-model", dimension=64, limiter=limiter)
        async with MemoryManager(InMemoryStorage(), embedder, clock=clock) as manager:
            manager.pipeline._sleep = clock.sleep
            for text in ("the harbour opens at dawn", "the lighthouse is red"):
                await manager.store_memory("s", text)
                assert await manager.pipeline.settle(10)
            assert (await manager.stats()).vectors == {embedder.model_id: 2}
        await embedder.close()


async def test_without_a_key_memory_goes_on_by_words_and_vectors_follow_with_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOLDFAST_MEMORY__EMBEDDER", "openai:some-model")
    monkeypatch.setenv("HOLDFAST_MEMORY__DIMENSIONS", "64")
    async with AsyncClient(tmp_path) as client:
        session = await client.create_session("talk")
        kept = await client.store_memory(session.id, "the harbour opens at dawn")
        gone = await client.store_memory(session.id, "the pier is closed")
        (entry, *_) = await client.search_memory(session.id, "dawn")
        assert entry.id == kept and await client.memory.get(gone)
        assert len(await client.memory.list(session.id)) == 2
        assert await client.memory.forget([gone]) == [gone]
        with pytest.raises(LLMAuthError):
            await client.memory.reindex()
        assert await client.memory.reindex(vectors=False) == 1
    (line,) = [one.fields for one in _events(caplog) if one.event == "memory.embedder_not_ready"]
    assert line["error"] == "llm.auth" and "OPENAI_API_KEY" in str(line["next_step"])
    async with FakeServer(key=KEY) as server:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        async with AsyncClient(tmp_path) as client:
            assert await (await client.memory.manager()).pipeline.settle(30)
            assert (await client.memory.stats()).vectors == {"openai:some-model/64": 1}


async def test_reindexing_the_words_waits_for_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_MEMORY__EMBEDDER", "openai:some-model")
    monkeypatch.setenv("HOLDFAST_MEMORY__DIMENSIONS", "64")
    async with FakeServer(key=KEY) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong-0123456789abcdefghij")
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        async with AsyncClient(tmp_path) as client:
            session = await client.create_session("talk")
            await client.store_memory(session.id, "the harbour opens at dawn")
            with pytest.raises(LLMAuthError):
                await client.memory.reindex()
            assert await client.memory.reindex(vectors=False) == 1


async def test_older_vectors_serve_while_the_embedder_lacks_its_key(tmp_path: Path) -> None:
    path, patient = tmp_path / "memory.db", MemoryRules(former_patience_s=60.0)
    async with MemoryManager(SqliteMemoryStorage(path), LetterEmbedder()) as manager:
        old = await manager.store_memory("s", "aaa bbb")
        assert await manager.pipeline.settle(30)
    reason = LLMAuthError(provider="openai", detail="there is none", key_env="OPENAI_API_KEY")
    unready = UnreadyEmbedder("openai:some-model/64", 64, reason)
    letters = LetterEmbedder()
    async with MemoryManager(
        SqliteMemoryStorage(path), unready, rules=patient, former_embedders=[letters]
    ) as manager:
        (entry,) = await manager.search_memory("s", "abababa")
        assert entry.id == old
        assert entry.parts is not None and entry.parts.vector_model == letters.model_id
        with pytest.raises(LLMAuthError):
            await unready.embed(["x"])


async def test_reindexing_keeps_the_vectors_if_nobody_can_make_them_again() -> None:
    broken = BrokenEmbedder([1.0] * 26)
    async with opened(broken) as manager:
        await manager.store_memory("s", "walnut")
        assert await manager.pipeline.settle(30)
        broken.answer = LLMConnectionError(provider="x", detail="gone")
        with pytest.raises(LLMConnectionError):
            await manager.reindex()
        assert (await manager.stats()).vectors == {broken.model_id: 1}
        assert await manager.reindex(vectors=False) == 1


def _events(caplog: pytest.LogCaptureFixture) -> list[LogEvent]:
    return [one.msg for one in caplog.records if isinstance(one.msg, LogEvent)]


async def test_a_missing_package_costs_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def missing() -> None:
        raise MissingExtra(what="MiniLM", package="onnxruntime", extra="embeddings")

    monkeypatch.setattr(minilm, "_find_installed", missing)
    monkeypatch.setenv("HOLDFAST_MEMORY__EMBEDDER", "minilm")
    async with AsyncClient(tmp_path) as client:
        session = await client.create_session("talk")
        kept = await client.store_memory(session.id, "the harbour opens at dawn")
        assert [one.id for one in await client.search_memory(session.id, "dawn")] == [kept]
    (line,) = [one.fields for one in _events(caplog) if one.event == "memory.embedder_not_ready"]
    assert line["error"] == "usage.missing_extra" and "embeddings" in str(line["next_step"])
