"""Memories through the client."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import AsyncClient, Client
from holdfast.clock import SYSTEM
from holdfast.errors import LLMConnectionError, NotFound
from holdfast.memory import MemoryOptions
from holdfast.providers.model import ModelInfo
from holdfast.testing import ScriptedModel

LLM = ModelInfo(provider="test", model="writer")


def on_disk(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("memory.db*")))


async def test_a_memory_survives_the_client_and_is_noted_without_content(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        session = await client.create_session("talk")
        memory_id = await client.store_memory(session.id, "the orchid blooms in May")
        await client.memory.relevant(session.id, "orchid", 500)
        kinds = [event.kind for event in await client.events.list(session.id)]
        assert kinds[-2:] == ["memory.stored", "memory.recalled"]
    async with AsyncClient(tmp_path) as client:
        (entry,) = await client.search_memory(session.slug, "when does the orchid bloom?")
        assert (entry.id, entry.session_id) == (memory_id, session.id)
        assert await client.audit.verify() == []
    assert b"orchid" not in (tmp_path / "journal.db").read_bytes()
    assert (tmp_path / "memory.db").stat().st_mode & 0o777 == 0o600


async def test_an_unknown_session_is_refused(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        with pytest.raises(NotFound):
            await client.store_memory("ses_nobody", "text")


async def test_projects_share_only_within_themselves(tmp_path: Path) -> None:
    shared = MemoryOptions(scope="project")
    async with AsyncClient(tmp_path) as client:
        one = await client.create_session("one", project_id="p1")
        two = await client.create_session("two", project_id="p1")
        other = await client.create_session("other", project_id="p2")
        first = await client.store_memory(one.id, "deploy on walnut", options=shared)
        assert len(await client.search_memory(two.id, "walnut")) == 1
        assert await client.search_memory(other.id, "walnut") == []
        newer = await client.memory.update(first, "deploy on almond")
        assert [e.id for e in await client.search_memory(two.id, "deploy")] == [newer]


async def test_tenants_share_nothing(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path, tenant="acme") as client:
        session = await client.create_session("talk")
        found = [
            await client.store_memory(session.id, "walnut", options=MemoryOptions(scope=scope))
            for scope in ("session", "user", "global")
        ]
    async with AsyncClient(tmp_path, tenant="rival") as client:
        assert await client.search_memory(session.id, "walnut", across_sessions=True) == []
        assert await client.memory.list(across_sessions=True) == []
        assert [line async for line in client.memory.lines()] == []
        assert (await client.memory.stats()).memories == 0
        with pytest.raises(NotFound):
            await client.memory.get(found[0])
        assert await client.memory.forget(found) == []
    async with AsyncClient(tmp_path, tenant="acme") as client:
        assert len(await client.search_memory(session.id, "walnut")) == 1
        every = ("session", "user", "project", "global")
        assert len(await client.memory.search(session.id, "walnut", scopes=every)) == 3


async def test_caps_are_a_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_MEMORY__MAX_ENTRIES", "2")
    async with AsyncClient(tmp_path) as client:
        session = await client.create_session("talk")
        for number in range(4):
            await client.store_memory(session.id, f"walnut {number}")
        assert len(await (await client.memory.manager()).purge()) == 2
        assert (await client.memory.stats()).memories == 2


async def test_decay_is_a_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_MEMORY__EMBEDDER", "none")

    async def best(client: AsyncClient) -> tuple[str, float]:
        (first, _) = await client.memory.search("", "walnut", scopes=("user",))
        assert first.parts is not None
        return first.content, first.parts.recency

    async with AsyncClient(tmp_path) as client:
        now = SYSTEM.now()
        for days, importance in ((50, 0.6), (10, 0.5)):
            options = MemoryOptions(
                scope="user", created=now - days * 86_400.0, importance=importance
            )
            await client.store_memory("", f"walnut {days}", options=options)
        assert await best(client) == ("walnut 50", 0.0)
    monkeypatch.setenv("HOLDFAST_MEMORY__RECENCY_WEIGHT", "0.5")
    monkeypatch.setenv("HOLDFAST_MEMORY__HALF_LIFE_DAYS", "10")
    async with AsyncClient(tmp_path) as client:
        assert await best(client) == ("walnut 10", pytest.approx(0.25, abs=0.001))


async def test_deleting_a_session_forgets_its_memories(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        session = await client.create_session("talk")
        await client.store_memory(session.id, "xylophone")
        kept = await client.store_memory("", "marimba", options=MemoryOptions(scope="user"))
        await client.delete_session(session.id)
        assert [
            entry.id
            for entry in await client.memory.list(across_sessions=True, scopes=("session", "user"))
        ] == [kept]
    assert b"xylophone" not in on_disk(tmp_path)


async def test_a_session_is_remembered_turn_by_turn(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        session = await client.create_session("talk")
        await client.add_message(session.id, "user", "Where did I park the bicycle?")
        await client.add_message(session.id, "assistant", "Behind the library.")
        assert len(await client.memory.remember_session(session.id)) == 2
        assert await client.memory.remember_session(session.id) == []
        summary = await client.summarize_memories(session.id)
        assert summary.method == "extractive"


async def test_memories_move_to_another_place(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path / "a") as client:
        session = await client.create_session("talk", project_id="p1")
        first = await client.store_memory(session.id, "lives in Paris", {"about": "Ada"})
        await client.memory.update(first, "lives in Rome")
        await client.store_memory(session.id, "ours", options=MemoryOptions(scope="project"))
        lines = [line async for line in client.memory.lines()]
    async with AsyncClient(tmp_path / "b") as client:
        assert await client.memory.load(lines) == (3, 0)
        assert await client.memory.load(lines) == (0, 3)
        assert [line async for line in client.memory.lines()] == lines
        assert len(await client.memory.history(first)) == 2


def test_the_blocking_client_does_the_same(tmp_path: Path) -> None:
    with Client(tmp_path) as client:
        session = client.create_session("talk")
        memory_id = client.store_memory(session.id, "the lamp is blue", {"type": "fact"})
        assert client.search_memory(session.id, "lamp")[0].id == memory_id
        client.memory.pin(memory_id)
        assert client.memory.get(memory_id).is_pinned
        assert client.memory.stats().memories == 1
        assert client.memory.reindex() == 1
        assert client.memory.forget([memory_id]) == [memory_id]
        assert len(list(client.memory.lines())) == 0


async def test_many_stores_at_once_are_all_kept(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        session = await client.create_session("talk")
        stores = [client.store_memory(session.id, f"walnut {n}") for n in range(50)]
        ids = await asyncio.gather(*stores)
        found = await client.search_memory(session.id, "walnut", 100)
        assert {entry.id for entry in found} == set(ids)


async def test_a_model_writes_the_summary_when_there_is_one(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        session = await client.create_session("talk")
        await client.store_memory(session.id, "The orchid blooms in May. It is white.")
        plain = await client.summarize_memories(session.id)
        model = ScriptedModel("A white orchid, in May.", info=LLM)
        written = await client.summarize_memories(session.id, model=model)
        failing = await client.summarize_memories(
            session.id,
            model=ScriptedModel(LLMConnectionError(provider="x", detail="gone"), info=LLM),
        )
    assert (plain.method, written.method, failing.method) == ("extractive", "model", "extractive")
    assert written.summary == "A white orchid, in May."
    assert "white" in model.requests[0].messages[0].text


async def test_links_survive_export_and_import(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path / "one") as client:
        session = await client.create_session("talk")
        first = await client.store_memory(session.id, "The gate is green")
        second = await client.store_memory(session.id, "The gate is blue")
        await (await client.memory.manager()).link_contradiction(first, second)
        summary = await client.summarize_memories(session.id)
        lines = [line async for line in client.memory.lines()]
    async with AsyncClient(tmp_path / "two") as client:
        assert await client.memory.load(lines) == (3, 0)
        assert (await client.memory.get(first)).contradicts == (second,)
        assert (await client.memory.get(second)).contradicts == (first,)
        assert (await client.memory.get(summary.id)).derived_from == (first, second)
        assert summary.id in await client.memory.forget([first])
