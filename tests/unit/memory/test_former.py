"""Another embedder: the old vectors serve until the new ones are there, whoever made them."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from memory_setting import LetterEmbedder, related

from holdfast import AsyncClient
from holdfast.cli.app import root
from holdfast.errors import LLMAuthError, LLMConnectionError, LLMOverloaded
from holdfast.memory import (
    InMemoryStorage,
    MemoryManager,
    MemoryOptions,
    MemoryRules,
    NoEmbedder,
    RemoteEmbedder,
    SqliteMemoryStorage,
    StaticEmbedder,
    VectorSpace,
)
from holdfast.memory.former import READY, UNKNOWN
from holdfast.memory.space import find_space
from holdfast.providers import ProviderConfig
from holdfast.providers.wire import Endpoint, Secret
from holdfast.testing.fake_server import Failure, FakeServer, HoldPoint, RawAnswer

OLD, NEW = "old:early/256", "new:late/256"
TEXT, WORD = "our physician lives upstairs", "doctor"
"""They share a meaning and no word."""


@contextlib.asynccontextmanager
async def serving(*answers: Any, key: str = "") -> AsyncIterator[FakeServer]:
    server = FakeServer(answers, key=key, dimension=256)
    server.meanings = {"physician": "doctor", "medic": "doctor"}
    async with server:
        yield server


def remote(server: FakeServer, name: str = OLD) -> RemoteEmbedder:
    provider, _, model = name.partition("/")[0].partition(":")
    endpoint = Endpoint(provider=provider, base_url=server.base_url)
    return RemoteEmbedder(endpoint, model, dimension=256, attempts=1)


@contextlib.asynccontextmanager
async def manager_of(
    place: Path, embedder: Any, *, is_idle: bool = False, **more: Any
) -> AsyncIterator[MemoryManager]:
    """Open the file as a process of its own would; an idle one embeds nothing."""
    # However slow the machine is: who does not test patience has enough of it.
    more.setdefault("rules", MemoryRules(former_patience_s=60.0))
    manager = MemoryManager(SqliteMemoryStorage(place / "memory.db"), embedder, **more)
    wake = manager.pipeline.wake
    if is_idle:
        manager.pipeline.wake = lambda: None  # type: ignore[method-assign]
    async with manager:
        yield manager
        manager.pipeline.wake = wake  # type: ignore[method-assign]
    if isinstance(embedder, RemoteEmbedder):
        await embedder.close()


async def catch_up(manager: MemoryManager) -> None:
    del manager.pipeline.wake  # type: ignore[misc]
    manager.pipeline.wake()
    assert await manager.pipeline.settle(10)


async def store(place: Path, embedder: Any) -> str:
    async with manager_of(place, embedder) as manager:
        await manager.store_memory("s", "interest rates rose again")
        wanted = await manager.store_memory("s", TEXT)
        assert await manager.pipeline.settle(10)
    return wanted


async def found_by(manager: MemoryManager, query: str = WORD) -> dict[str, str]:
    """The memories that a search finds, with the model by whose vector each was found."""
    entries = related(await manager.search_memory("s", query))
    return {entry.id: entry.parts.vector_model for entry in entries if entry.parts is not None}


def asked(server: FakeServer, model: str) -> int:
    return sum(request.json["model"] == model for request in server.requests)


async def test_another_model_of_the_same_server_takes_over_bit_by_bit(tmp_path: Path) -> None:
    async with serving() as server:
        wanted = await store(tmp_path, remote(server))
        async with manager_of(tmp_path, remote(server, NEW), is_idle=True) as manager:
            fresh = await manager.store_memory("s", "a medic is on call")
            assert (await found_by(manager))[wanted] == OLD
            assert (await manager.stats()).former == {OLD: READY}
            await catch_up(manager)
            assert await found_by(manager) == {wanted: NEW, fresh: NEW}
            assert [one.model_id for one in await manager._storage.list_spaces()] == [NEW]
            assert (await manager.stats()).former == {}
            before = asked(server, "early")
            await found_by(manager)
            assert asked(server, "early") == before


async def test_another_server_takes_over_and_a_restart_changes_nothing(tmp_path: Path) -> None:
    async with serving() as old, serving() as new:
        wanted = await store(tmp_path, remote(old))
        for _ in range(2):
            async with manager_of(tmp_path, remote(new, NEW), is_idle=True) as manager:
                assert await found_by(manager) == {wanted: OLD}
        async with manager_of(tmp_path, remote(new, NEW)) as manager:
            assert await manager.pipeline.settle(10)
            assert await found_by(manager) == {wanted: NEW}


async def test_each_of_two_processes_finds_what_the_other_embedded(tmp_path: Path) -> None:
    async with serving() as old, serving() as new:
        wanted = await store(tmp_path, remote(old))
        async with manager_of(tmp_path, remote(old)) as first:
            assert await found_by(first) == {wanted: OLD}
            async with manager_of(tmp_path, remote(new, NEW)) as second:
                assert await second.pipeline.settle(10)
                assert await found_by(second) == {wanted: NEW}
                assert await found_by(first) == {wanted: NEW}


@pytest.mark.parametrize("is_remote_first", [True, False])
async def test_built_in_and_remote_embedders_follow_each_other(
    tmp_path: Path, is_remote_first: bool
) -> None:
    async with serving() as server:
        pair: list[Any] = [remote(server), StaticEmbedder()]
        first, second = pair if is_remote_first else reversed(pair)
        wanted = await store(tmp_path, first)
        async with manager_of(tmp_path, second, is_idle=True) as manager:
            assert (await found_by(manager))[wanted] == first.model_id
            await catch_up(manager)
            assert (await found_by(manager))[wanted] == second.model_id


async def test_server_that_is_gone_leaves_the_words(tmp_path: Path) -> None:
    async with serving() as new:
        async with serving() as old:
            wanted = await store(tmp_path, remote(old))
        async with manager_of(tmp_path, remote(new, NEW), is_idle=True) as manager:
            assert await found_by(manager) == {}
            assert await found_by(manager, "physician") == {wanted: ""}
            assert (await manager.stats()).former == {OLD: LLMConnectionError.code}
            await catch_up(manager)
            assert await found_by(manager) == {wanted: NEW}


async def test_server_that_fails_is_left_alone_for_a_while(tmp_path: Path) -> None:
    async with serving() as old, serving() as new:
        await store(tmp_path, remote(old))
        old.answers.extend([Failure(status=500, message="ill")] * 9)
        before = len(old.requests)
        async with manager_of(tmp_path, remote(new, NEW), is_idle=True) as manager:
            for _ in range(5):
                assert await found_by(manager) == {}
            assert len(old.requests) == before + 2
            assert (await manager.stats()).former == {OLD: LLMOverloaded.code}


async def test_server_that_does_not_answer_holds_nobody_up(tmp_path: Path) -> None:
    # On a slow machine a server may need longer than that to answer the second time.
    for patience_s in (0.05, 1.0, 10.0):
        place, gate = tmp_path / f"{patience_s}", HoldPoint()
        place.mkdir()
        async with serving() as old, serving() as new:
            wanted = await store(place, remote(old))
            old.answers.append(RawAnswer(chunks=(b"",), gate=gate))
            rules = MemoryRules(former_patience_s=patience_s)
            late = remote(new, NEW)
            async with manager_of(place, late, is_idle=True, rules=rules) as manager:
                assert await found_by(manager, "physician") == {wanted: ""}
                assert (await manager.stats()).former == {OLD: "TimeoutError"}
                again = await found_by(manager)
            gate.release.set()
        if again:
            break
    assert again == {wanted: OLD}


async def test_old_vectors_serve_also_while_the_new_server_is_away(tmp_path: Path) -> None:
    async with serving() as old:
        wanted = await store(tmp_path, remote(old))
        async with serving() as new:
            late = remote(new, NEW)
        async with manager_of(tmp_path, late, is_idle=True) as manager:
            assert await found_by(manager) == {wanted: OLD}


async def test_without_any_embedder_no_old_one_is_asked(tmp_path: Path) -> None:
    async with serving() as old:
        await store(tmp_path, remote(old))
        before = len(old.requests)
        async with manager_of(tmp_path, NoEmbedder()) as manager:
            assert await found_by(manager) == {}
            assert (await manager.stats()).former == {}
        assert len(old.requests) == before


async def test_what_the_new_model_refuses_keeps_no_old_server_busy(tmp_path: Path) -> None:
    async with serving() as old:
        wanted = await store(tmp_path, remote(old))
        late = LetterEmbedder("letters/2")
        late.dimension = 5
        async with manager_of(tmp_path, late) as manager:
            assert await manager.pipeline.settle(10)
            stats = await manager.stats()
            assert (stats.refused, stats.vectors, stats.former) == (2, {}, {})
            assert await found_by(manager, "physician") == {wanted: ""}


async def test_objects_are_asked_if_given_and_unknown_if_not(tmp_path: Path) -> None:
    old = LetterEmbedder("letters/1")
    wanted = await store(tmp_path, old)
    new = LetterEmbedder("letters/2")
    async with manager_of(tmp_path, new, is_idle=True) as manager:
        assert await found_by(manager, "physician") == {wanted: ""}
        assert (await manager.stats()).former == {"letters/1": UNKNOWN}
    options = {"is_idle": True, "former_embedders": [old]}
    async with manager_of(tmp_path, new, **options) as manager:
        assert (await found_by(manager, "physician"))[wanted] == "letters/1"


async def test_pairs_of_old_turns_are_compared_like_new_ones(tmp_path: Path) -> None:
    old, new = LetterEmbedder("letters/1"), LetterEmbedder("letters/2")
    scores = []
    async with MemoryManager(InMemoryStorage(), old, former_embedders=[old]) as manager:
        one = await manager.store_memory("s", "bbbb cccc", {"speaker": "Ada"})
        options = MemoryOptions(speaker="Bo", previous_id=one)
        await manager.store_memory("s", "dddd", options=options)
        assert await manager.pipeline.settle(10)
        scores.append([entry.parts for entry in await manager.search_memory("s", "bbcc")])
        manager.pipeline.wake = lambda: None  # type: ignore[method-assign]
        changed = MemoryManager(manager._storage, new, former_embedders=[old])
        scores.append([entry.parts for entry in await changed.search_memory("s", "bbcc")])
    shown = [[(part.cosine, part.vector_context) for part in parts] for parts in scores]
    assert shown[0] == shown[1] and len(shown[0]) == 2


# --- keys -----------------------------------------------------------------------------


def test_no_credential_is_kept_beside_the_vectors(tmp_path: Path) -> None:
    keys = ("hunter2", "sekret", "sk-abcdefghijklmnop")
    address = f"https://me:{keys[0]}@Host.example:443/v1/?api-version=1&key={keys[1]}"
    endpoint = Endpoint(provider="p", base_url=address, key=Secret(keys[2]))
    embedder = RemoteEmbedder(endpoint, "m", dimension=3)
    assert find_space(embedder) == VectorSpace(
        model_id="p:m/3",
        dimension=3,
        provider="p",
        base_url="https://host.example/v1",
        model="m",
    )
    hidden = Endpoint(provider="p", base_url=f"https://host.example/{keys[2]}/v1")
    assert find_space(RemoteEmbedder(hidden, "m", dimension=3)) is None
    assert find_space(LetterEmbedder()) is None


async def test_a_key_reaches_only_the_server_that_it_is_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(key="first-key") as old, serving(key="second-key") as new:
        monkeypatch.setenv("HOLDFAST_MEMORY__DIMENSIONS", "256")

        def use(server: FakeServer, key: str, model: str) -> None:
            monkeypatch.setenv("OPENAI_API_KEY", key)
            monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
            monkeypatch.setenv("HOLDFAST_MEMORY__EMBEDDER", f"openai:{model}")

        use(old, "first-key", "early")
        async with AsyncClient(tmp_path) as client:
            session = await client.create_session("talk")
            wanted = await client.store_memory(session.id, TEXT)
            assert await (await client.memory.manager()).pipeline.settle(10)
        use(new, "second-key", "late")
        new.answers.extend([Failure(status=400, message="not yet")] * 40)
        async with AsyncClient(tmp_path) as client:
            assert related(await client.search_memory(session.id, WORD)) == []
            assert (await client.memory.stats()).former == {"openai:early/256": LLMAuthError.code}
            sent = [request.headers.get("authorization") for request in old.requests]
            assert sent == ["Bearer first-key", None]
            # Whoever has the key says whose it is.
            monkeypatch.setenv("EARLY_KEY", "first-key")
            await (await client.providers.registry()).add_provider(
                ProviderConfig(name="early", base_url=old.base_url, key_env="EARLY_KEY")
            )
        monkeypatch.setenv("HOLDFAST_MEMORY__ASKS_FORMER", "false")
        async with AsyncClient(tmp_path) as client:
            assert related(await client.search_memory(session.id, WORD)) == []
        assert len(old.requests) == 2
        monkeypatch.setenv("HOLDFAST_MEMORY__ASKS_FORMER", "true")
        async with AsyncClient(tmp_path) as client:
            (entry,) = await client.search_memory(session.id, WORD)
            assert entry.id == wanted and entry.parts is not None
            assert entry.parts.vector_model == "openai:early/256"
        assert all("second-key" not in str(request.headers) for request in old.requests)
        assert all("first-key" not in str(request.headers) for request in new.requests)


NEW_INDEXES = ("INDEX memories_not_inferred", "INDEX memories_by_session")


async def test_a_file_from_before_learns_the_address_when_it_is_opened(tmp_path: Path) -> None:
    async with serving() as old, serving() as new:
        wanted = await store(tmp_path, remote(old))
        with contextlib.closing(sqlite3.connect(tmp_path / "memory.db")) as db:
            for what in ("TABLE spaces", "TABLE tokens", *NEW_INDEXES):
                db.execute(f"DROP {what}")
            db.execute("ALTER TABLE memories DROP COLUMN inferred_speaker")
            db.execute("PRAGMA user_version = 1")
        async with manager_of(tmp_path, remote(new, NEW), is_idle=True) as manager:
            assert (await manager.stats()).former == {OLD: UNKNOWN}
        async with manager_of(tmp_path, remote(old)):
            pass
        async with manager_of(tmp_path, remote(new, NEW), is_idle=True) as manager:
            assert await found_by(manager) == {wanted: OLD}


async def test_the_command_says_whose_vectors_could_not_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_STATE_DIR", str(tmp_path))
    async with serving() as old:
        async with manager_of(tmp_path, remote(old)) as manager:
            options = MemoryOptions(scope="global")
            await manager.store_memory("", TEXT, options=options)
            assert await manager.pipeline.settle(10)
    monkeypatch.setattr(MemoryManager, "open", opened_without_embedding)
    words = ["memory", "search", "upstairs", "--explain", "--everywhere"]
    ended = await asyncio.to_thread(CliRunner().invoke, root, words)
    assert ended.exit_code == 0, ended.output
    assert f"by their words only: {OLD} ({LLMConnectionError.code})" in ended.output


async def opened_without_embedding(manager: MemoryManager) -> MemoryManager:
    await manager._storage.open()
    return manager
