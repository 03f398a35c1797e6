"""A run that was started in the background, and what its handle gives."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import Agent, AsyncClient, Client, tool
from holdfast.errors import NotFound, UsageError
from holdfast.providers.model import TextDelta
from holdfast.testing import ModelReply, ScriptedModel, tool_call


async def test_the_stream_of_a_started_run_ends_with_its_result(tmp_path: Path) -> None:
    may_answer = asyncio.Event()
    model = ScriptedModel(ModelReply(text="Roses are red.", hold=may_answer))
    async with AsyncClient(tmp_path) as client:
        run = await client.runs.start(Agent("poet", model=model), "", "A poem")
        asyncio.get_running_loop().call_soon(may_answer.set)
        items = [item async for item in run.stream()]
    assert "".join(item.text for item in items if isinstance(item, TextDelta)) == "Roses are red."
    assert items[-1].response == "Roses are red."


async def test_the_events_of_a_run_are_whole_although_it_ends_while_they_are_read(
    tmp_path: Path,
) -> None:
    may_end = asyncio.Event()
    model = ScriptedModel(ModelReply(text="Roses are red.", hold=may_end))
    async with AsyncClient(tmp_path) as client:
        run = await client.runs.start(Agent("poet", model=model), "", "A poem")
        events = run.events()
        kinds = [(await anext(events)).kind]
        may_end.set()
        await run.result()
        kinds += [event.kind async for event in events]
        stored = await client.events.list(run.session_id)
    assert kinds == [event.kind for event in stored if event.run_id == run.id]
    assert kinds[-1] == "run.completed"


async def test_the_events_of_a_run_that_waited_go_on_behind_the_waiting(tmp_path: Path) -> None:
    @tool(permission="ask")
    def delete() -> str:
        """Delete."""
        return "gone"

    agent = Agent("janitor", model=ScriptedModel(tool_call("delete"), "Done."), tools=[delete])
    async with AsyncClient(tmp_path) as client:
        run = await client.runs.start(agent, "", "Clean up", run_id="job", on_ask="park")
        parked = [event async for event in run.events()]
        assert parked[-1].kind == "run.parked"
        [asked] = await client.approvals.list()
        await client.approvals.approve(asked.id, by="ann")
        await client.runs.execute(agent, "", "Clean up", run_id="job")
        kinds = [event.kind async for event in run.events()]
        assert "run.parked" in kinds
        assert kinds[-1] == "run.completed"
        rest = [event.kind async for event in run.events(after=parked[-1].session_seq)]
        assert rest == kinds[len(parked) :]


async def test_an_ended_run_of_an_unregistered_agent_still_gives_its_typed_result(
    tmp_path: Path,
) -> None:
    agent = Agent("counter", model=ScriptedModel("[1, 2]"), output=list[int])
    async with AsyncClient(tmp_path) as client:
        run = await client.runs.start(agent, "", "Count")
        async for _ in run.events():
            pass
        await run.result()
        assert (await run.result()).output == [1, 2]


async def test_the_result_of_an_ended_run_outlives_what_is_known_of_its_agent(
    tmp_path: Path,
) -> None:
    agent = Agent("poet", model=ScriptedModel("Roses are red."))
    async with AsyncClient(tmp_path) as client:
        await client.runs.execute(agent, "", "A poem", run_id="poem")
    async with AsyncClient(tmp_path) as client:
        assert (await client.runs.result("poem")).response == "Roses are red."
        with pytest.raises(NotFound) as refused:
            await client.runs.result("another")
        assert refused.value.code == "usage.not_found"


async def test_only_runs_of_agents_have_such_a_result(tmp_path: Path) -> None:
    @tool(effect="read", permission="allow")
    def ping() -> str:
        """Answer."""
        return "pong"

    async with AsyncClient(tmp_path) as client:
        await client.tools.register(ping)
        await client.tools.call("ping", {}, run_id="by-hand")
        with pytest.raises(UsageError) as refused:
            await client.runs.result("by-hand")
    assert refused.value.code == "usage.invalid"


async def test_closing_the_client_records_what_it_had_started_as_cancelled(tmp_path: Path) -> None:
    model = ScriptedModel(ModelReply(text="never", hold=asyncio.Event()))
    async with AsyncClient(tmp_path) as client:
        run = await client.runs.start(Agent("poet", model=model), "", "A poem")
        async for item in run.stream():
            if isinstance(item, TextDelta):
                break
    async with AsyncClient(tmp_path) as client:
        assert (await client.runs.get(run.id)).status == "cancelled"


async def test_leaving_the_stream_of_a_handle_leaves_the_run_alone(tmp_path: Path) -> None:
    may_end = asyncio.Event()
    model = ScriptedModel(ModelReply(text="Roses are red.", hold=may_end))
    async with AsyncClient(tmp_path) as client:
        run = await client.runs.start(Agent("poet", model=model), "", "A poem")
        async for item in run.stream():
            if isinstance(item, TextDelta):
                break
        may_end.set()
        assert (await run.result()).status == "completed"


def test_the_blocking_handle_steers_cancels_and_forks(tmp_path: Path) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def wait() -> str:
        """Wait."""
        begun.set()
        await may_end.wait()
        return "waited"

    async def has_begun() -> bool:
        """Wait until the other tool has begun."""
        return await begun.wait()

    model = ScriptedModel(tool_call("wait"), "Never.")
    with Client(tmp_path) as client:
        client.tools.register(tool(effect="read", permission="allow")(has_begun))
        run = client.runs.start(Agent("waiter", model=model, tools=[wait]), "", "Wait")
        client.tools.call("has_begun", {})
        run.steer("Hurry up.")
        run.cancel(reason="too late")
        result = run.result()
        assert (result.status, result.metadata["reason"]) == ("cancelled", "too late")
        assert run.state().status == "cancelled"
        fork = run.fork(title="Again")
        said = [message.text for message in client.messages.list(fork.id).items]
        assert (fork.title, said[0]) == ("Again", "Wait")


async def test_a_run_of_an_unknown_agent_is_refused_before_it_begins(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        with pytest.raises(NotFound) as refused:
            await client.runs.start("nobody", "", "A poem", run_id="poem")
        assert refused.value.code == "usage.not_found"
        with pytest.raises(NotFound):
            await client.runs.get("poem")
