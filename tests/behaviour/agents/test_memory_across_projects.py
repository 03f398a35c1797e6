"""What is kept in one folder is not put before an agent in another one, unless asked for.

Issue 20, 9; SPEC 6.2, 6.4.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Agent, AsyncClient
from holdfast.memory import MemoryOptions, NoEmbedder, make_default_embedder
from holdfast.sessions import PermissionRule
from holdfast.testing import ScriptedModel, tool_call

FACT = "The staging password rotates on Fridays"


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()


async def _recalled(client: AsyncClient, session_id: str, question: str) -> str:
    """What the model of a run in a session is shown."""
    model = ScriptedModel("fine")
    await client.execute_agent(Agent("a", model=model), session_id, question)
    return str(model.requests[0])


@pytest.mark.parametrize("scope", ["project", "user", "global"])
async def test_only_memories_of_this_project_are_put_before_an_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scope: str
) -> None:
    async with AsyncClient(tmp_path / "state") as client:
        here = await client.sessions.create("here", directory=tmp_path / "one")
        again = await client.sessions.create("again", directory=tmp_path / "one")
        there = await client.sessions.create("there", directory=tmp_path / "two")
        await client.store_memory(here.id, FACT, options=MemoryOptions(scope=scope))  # type: ignore[arg-type]
        question = "When does the staging password rotate?"
        assert (FACT in await _recalled(client, again.id, question)) == (scope == "project")
        assert FACT not in await _recalled(client, there.id, question)
        assert [one.content for one in await client.search_memory(there.id, question)] == []
        asked = await client.memory.search(there.id, question, scopes=(scope,))  # type: ignore[arg-type]
        assert [one.content for one in asked] == ([] if scope == "project" else [FACT])
    monkeypatch.setenv("HOLDFAST_MEMORY__RECALL_SCOPE", "global")
    async with AsyncClient(tmp_path / "state") as client:
        assert (FACT in await _recalled(client, there.id, question)) == (scope != "project")


async def test_what_an_agent_remembers_belongs_to_its_project(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path / "state") as client:
        here = await client.sessions.create("here", directory=tmp_path / "one")
        model = ScriptedModel(tool_call("remember", content=FACT), "done")
        rule = PermissionRule(permission="remember", pattern="*", action="allow")
        agent = Agent("a", model=model, permission=[rule])
        await client.execute_agent(agent, here.id, "Keep this.")
        (kept,) = await client.search_memory(here.id, "staging password")
        assert kept.scope == "project"
        there = await client.sessions.create("there", directory=tmp_path / "two")
        assert await client.search_memory(there.id, "staging password") == []


async def test_query_right_after_storing_finds_by_meaning(tmp_path: Path) -> None:
    assert not isinstance(make_default_embedder(), NoEmbedder)
    async with AsyncClient(tmp_path) as client:
        session = await client.create_session("talk")
        texts = ["The deploy runs on Mondays", "Invoices are kept for ten years"]
        for text in [*texts, "prefers short answers in German", "The cat is called Momo"]:
            await client.store_memory(session.id, text)
        (first, *_) = await client.search_memory(session.id, "language of replies", 1)
        assert first.content == "prefers short answers in German"
        assert first.parts is not None and first.parts.cosine is not None


@pytest.mark.parametrize("embedder", ["static", "none"])
async def test_fewer_come_back_only_when_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, embedder: str
) -> None:
    monkeypatch.setenv("HOLDFAST_MEMORY__EMBEDDER", embedder)
    async with AsyncClient(tmp_path) as client:
        session = await client.create_session("talk")
        for number in range(6):
            await client.store_memory(session.id, f"Room {number} has a window")
        await client.store_memory(session.id, "The kettle whistles")
        found = await client.search_memory(session.id, "kettle", 5)
        assert len(found) == 5 and found[0].content == "The kettle whistles"
        assert [one.relevance_score for one in found] == sorted(
            (one.relevance_score for one in found), reverse=True
        )
        assert len(await client.search_memory(session.id, "kettle", 50)) == 7
        # Filling up is for who searches; an agent is shown only what fits.
        manager = await client.memory.manager(session.id)
        told = await manager.relevant(session.id, "the kettle", 800, is_noted=False)
        assert "The kettle whistles" in [one.content for one in told.memories]
        if embedder == "none":
            assert len(told.memories) == 1
