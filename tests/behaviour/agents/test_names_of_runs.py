"""The name of a run belongs to what it was first given to: agent, call, workflow or loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, AsyncClient, Client, tool
from holdfast.errors import UsageError
from holdfast.ids import make_id
from holdfast.orchestration.workflows import Workflow
from holdfast.testing import ScriptedModel

asked: list[str] = []


@tool(permission="ask")
async def burn(path: str) -> str:
    """Burn a file."""
    asked.append(path)
    return path


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    asked.clear()
    async with AsyncClient(tmp_path / "state") as opened:
        await opened.register_tool(burn)
        yield opened


FLOW = Workflow("flow").step("a", value=1)


async def test_an_agent_gets_no_empty_answer_from_a_run_of_another_kind(
    client: AsyncClient,
) -> None:
    await client.tools.call("burn", {"path": "a"}, run_id="call")
    await client.workflows.run(FLOW, run_id="flow")
    await client.loops.run("What is 2 + 3?", run_id="loop")
    for run_id in ("call", "flow", "loop"):
        with pytest.raises(UsageError):
            await Agent("a", model=ScriptedModel("hello")).run("hi", run_id=run_id, client=client)


async def test_an_agent_does_not_go_on_with_a_call_by_hand_that_waits(client: AsyncClient) -> None:
    parked = await client.tools.call("burn", {"path": "a"}, run_id="call", on_ask="park")
    [approval] = await client.approvals.list()
    await client.approvals.approve(approval.id, by="ann")
    model = ScriptedModel("More!")
    with pytest.raises(UsageError):
        await Agent("a", model=model).run("hi", run_id="call", client=client)
    assert (parked.run.status, asked, model.requests) == ("parked", [], [])
    done = await client.tools.call("", {}, run_id="call")
    assert (done.part.state, asked) == ("completed", ["a"])


async def test_a_call_by_hand_is_neither_an_agents_run_nor_the_call_of_another_tool(
    client: AsyncClient,
) -> None:
    await Agent("a", model=ScriptedModel("hello")).run("hi", run_id="agent", client=client)
    await client.tools.call("burn", {"path": "a"}, run_id="call")
    for run_id, name in (("agent", "burn"), ("agent", ""), ("call", "list")):
        with pytest.raises(UsageError):
            await client.tools.call(name, {"path": "a"}, run_id=run_id)


async def test_a_workflow_does_not_answer_for_another(client: AsyncClient) -> None:
    await client.workflows.run(FLOW, run_id="flow")
    await Agent("a", model=ScriptedModel("hello")).run("hi", run_id="agent", client=client)
    other = Workflow("other").step("b", value=2)
    for run_id in ("flow", "agent"):
        with pytest.raises(UsageError):
            await client.workflows.run(other, run_id=run_id)
    assert (await client.workflows.run(FLOW, run_id="flow")).output == 1


async def test_a_session_or_a_client_of_another_kind_is_refused_before_anything_happens(
    client: AsyncClient, tmp_path: Path
) -> None:
    agent = Agent("a", model=ScriptedModel("hello"))
    session = await client.create_session("talk")
    with Client(tmp_path / "other") as blocking:
        for use in (
            lambda: agent.run("hi", session=session, client=client),  # type: ignore[arg-type]
            lambda: agent.run("hi", client=blocking),  # type: ignore[arg-type]
            lambda: asyncio.to_thread(agent.run_sync, "hi", client=client),  # type: ignore[arg-type]
        ):
            with pytest.raises(UsageError):
                await use()
        with pytest.raises(UsageError):
            agent.stream("hi", client=blocking)  # type: ignore[arg-type]
        assert blocking.list_sessions().items == ()
    assert (await client.list_messages(session.id)).items == ()


@pytest.mark.parametrize("kind", ["agent", "call", "workflow", "loop"])
async def test_two_who_begin_a_run_at_once_share_it_and_its_session(
    client: AsyncClient, tmp_path: Path, kind: str
) -> None:
    def begin(opened: AsyncClient) -> Coroutine[Any, Any, Any]:
        if kind == "agent":
            agent = Agent("a", model=ScriptedModel("hello"))
            return agent.run("hi", run_id="job", client=opened)
        if kind == "call":
            return opened.tools.call("burn", {"path": "a"}, run_id="job")
        if kind == "workflow":
            return opened.workflows.run(FLOW, run_id="job")
        return opened.loops.run("What is 2 + 3?", run_id="job")

    async with AsyncClient(tmp_path / "state") as other:
        await other.register_tool(burn)
        await asyncio.gather(begin(client), begin(other))
    sessions = (await client.list_sessions()).items
    run = await client.runs.get("job")
    assert [one.id for one in sessions if not one.parent_id] == [run.session_id]


async def test_sessions_of_runs_without_a_name_of_their_own_sort_as_they_began(
    client: AsyncClient,
) -> None:
    agent = Agent("a", model=ScriptedModel("one", "two"))
    runs = [make_id("run"), make_id("run")]
    results = [await agent.run("hi", run_id=run_id, client=client) for run_id in runs]
    assert results[0].session_id < results[1].session_id
