"""A call by hand is a call like any other: hooks, budgets, subscribers, consent."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Agent, AsyncClient, tool
from holdfast.errors import HoldfastError, RunInTheWay
from holdfast.hooks import Cancel, Replace
from holdfast.policy.budgets import Budget
from holdfast.sessions import compose
from holdfast.settings import load_settings
from holdfast.testing import ScriptedModel
from holdfast.tools import ToolContext


@tool(effect="read")
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@pytest.fixture
async def client(tmp_path):
    async with AsyncClient(tmp_path / "state") as made:
        await made.register_tool(add)
        yield made


async def test_hooks_change_refuse_and_replace_calls_by_hand(client):
    client.hooks.on("tool.before_execution", lambda call: call.modify(arguments={"a": 40, "b": 2}))
    assert (await client.tools.call("add", {"a": 1, "b": 1})).part.output == "42"
    client.hooks.on("tool.after_execution", lambda done: done.modify(output="[redacted]"))
    assert (await client.tools.call("add", {"a": 1, "b": 1})).part.output == "[redacted]"
    client.hooks.on("tool.before_execution", lambda call: Replace("instead"), priority=100)
    assert (await client.tools.call("add", {"a": 1, "b": 1})).part.output == "[redacted]"
    client.hooks.on("tool.before_execution", lambda call: Cancel("not today"), priority=200)
    refused = (await client.tools.call("add", {"a": 1, "b": 1})).part
    assert refused.state == "error"
    assert "not today" in refused.error


async def test_a_call_that_does_not_fit_its_session_is_not_made(client, tmp_path):
    made = []

    @tool(effect="idempotent", permission="allow")
    async def charge() -> str:
        """Charge."""
        made.append(1)
        return "charged"

    await client.register_tool(charge)
    session = await client.create_session(
        "s", directory=tmp_path, metadata={"budget": {"max_tool_calls": 2}}
    )
    results = [await client.tools.call("charge", {}, session_id=session.id) for _ in range(3)]
    assert [one.run.status for one in results] == ["completed", "completed", "failed"]
    assert results[2].run.error["code"] == "budget.exceeded"
    assert len(made) == 2


async def test_a_call_that_does_not_fit_its_own_budget_is_not_made(client):
    called = await client.tools.call("add", {"a": 1, "b": 1}, budget=Budget(max_tool_calls=0))
    assert called.run.status == "failed"
    assert called.run.error["code"] == "budget.exceeded"
    assert called.part.state == "error"


async def test_the_settings_limit_calls_by_hand(tmp_path):
    settings = load_settings(overrides={"budget.max_tool_calls": 1}).settings
    async with AsyncClient(tmp_path, settings=settings) as client:
        await client.register_tool(add)
        first = await client.tools.call("add", {"a": 1, "b": 1})
        second = await client.tools.call("add", {"a": 1, "b": 1})
    assert (first.run.status, second.run.status) == ("completed", "failed")


async def test_subscribers_hear_how_far_a_call_by_hand_is(client):
    heard = asyncio.Queue()

    @tool(effect="read")
    def slow(context: ToolContext) -> str:
        """Work."""
        context.report("halfway", fraction=0.5)
        return "done"

    await client.register_tool(slow)
    await client.events.on_progress(heard.put_nowait)
    assert (await client.tools.call("slow", {})).part.output == "done"
    progress = await asyncio.wait_for(heard.get(), 10)
    assert (progress.text, progress.fraction) == ("halfway", 0.5)


async def test_subscribers_hear_of_every_call_that_begins(client, tmp_path):
    heard = asyncio.Queue()
    await client.events.subscribe("tool.executing", heard.put)
    read = await client.tools.call("add", {"a": 1, "b": 1})
    wrong = await client.tools.call("add", {"a": 1, "b": "1"})
    refused = await client.tools.call("write", {"file_path": "a.txt", "content": ""})
    assert (wrong.part.state, refused.part.state) == ("error", "error")
    charge = tool(name="charge", permission="allow")(add.function)
    await client.register_tool(charge)
    effect = await client.tools.call("charge", {"a": 1, "b": 1})
    told = [(await asyncio.wait_for(heard.get(), 10)).data for _ in range(2)]
    assert [(data["call_id"], data["tool"]) for data in told] == [
        (read.part.call_id, "add"),
        (effect.part.call_id, "charge"),
    ]
    assert heard.empty()


async def test_a_call_that_waits_for_consent_goes_on_with_the_same_run(client, tmp_path):
    session = await client.create_session("s", directory=tmp_path)
    asked = {"file_path": "a.txt", "content": "hello"}
    first = await client.tools.call("write", asked, session_id=session.id, on_ask="park")
    assert (first.run.status, first.part.state) == ("parked", "pending")
    assert not (tmp_path / "a.txt").exists()
    [request] = await client.approvals.list()
    await client.approvals.approve(request.id, by="ada")
    again = await client.tools.call("write", asked, run_id=first.run.id)
    assert (again.run.status, again.part.state) == ("completed", "completed")
    assert (tmp_path / "a.txt").read_text() == "hello"


async def test_a_call_that_a_dead_process_left_behind_is_made_as_it_was_asked_for(client, tmp_path):
    """The next call in the session takes it up first, with its own name and arguments."""
    session = await client.create_session("s", directory=tmp_path)
    turns = await client.runs.turns()

    left = await turns.submit(
        session.id,
        run_id="run_left",
        is_for_any_process=True,
        options={"call": {"tool": "add", "arguments": {"a": 20, "b": 3}}},
    )
    called = await client.tools.call("add", {"a": 1, "b": 1}, session_id=session.id)
    assert called.part.output == "2"
    assert (await client.runs.get(left.id)).status == "completed"
    history = await client.get_execution_history(session.id)
    assert sorted(one.output for one in history) == ["2", "23"]


async def test_a_run_of_an_agent_that_nobody_here_knows_is_left_to_others(client, tmp_path):
    session = await client.create_session("s", directory=tmp_path)
    turns = await client.runs.turns()
    asked = compose(session.id, "user", "go", 1.0)
    left = await turns.submit(session.id, asked, agent="somebody", is_for_any_process=True)
    with pytest.raises(RunInTheWay) as caught:
        await client.tools.call("add", {"a": 1, "b": 1}, session_id=session.id, run_id="run_call")
    assert caught.value.context["run_id"] == left.id
    assert not (await client.runs.get(left.id)).has_ended
    assert (await client.runs.get("run_call")).status == "cancelled"
    assert await client.get_execution_history(session.id) == []
    # Whoever knows the agent goes on with it, and the session is free again.
    agent = Agent("somebody", model=ScriptedModel("done"))
    result = await client.execute_agent(agent, session.id, "", run_id=left.id)
    assert result.response == "done"
    again = await client.tools.call("add", {"a": 1, "b": 1}, session_id=session.id)
    assert again.part.output == "2"


async def test_a_run_of_an_agent_that_is_known_is_resumed_before_the_call(client, tmp_path):
    await client.register_agent(Agent("somebody", model=ScriptedModel("done")))
    session = await client.create_session("s", directory=tmp_path)
    turns = await client.runs.turns()
    asked = compose(session.id, "user", "go", 1.0)
    left = await turns.submit(session.id, asked, agent="somebody", is_for_any_process=True)
    called = await client.tools.call("add", {"a": 1, "b": 1}, session_id=session.id)
    assert called.part.output == "2"
    assert (await client.runs.get(left.id)).status == "completed"


async def test_a_run_whose_agent_cannot_go_on_here_is_left_and_the_cause_is_told(client, tmp_path):
    await client.register_agent(Agent("somebody", model="nowhere/nothing"))
    session = await client.create_session("s", directory=tmp_path)
    turns = await client.runs.turns()
    left = await turns.submit(session.id, agent="somebody", is_for_any_process=True)
    with pytest.raises(RunInTheWay) as caught:
        await client.tools.call("add", {"a": 1, "b": 1}, session_id=session.id)
    assert isinstance(caught.value.__cause__, HoldfastError)
    assert not (await client.runs.get(left.id)).has_ended


@pytest.mark.parametrize("how", ["caller", "request"])
async def test_a_call_that_is_cancelled_before_it_begins_has_a_result(client, tmp_path, how):
    """A hook keeps the call from beginning until it is cancelled."""
    reached = asyncio.Event()

    async def wait(_call) -> None:
        reached.set()
        await asyncio.Event().wait()

    client.hooks.on("tool.before_execution", wait)
    session = await client.create_session("s", directory=tmp_path)
    asked = client.tools.call("add", {"a": 1, "b": 1}, session_id=session.id, run_id="run_call")
    calling = asyncio.create_task(asked)
    await asyncio.wait_for(reached.wait(), 10)
    if how == "caller":
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
    else:
        await client.runs.cancel("run_call", reason="enough")
        result = await asyncio.wait_for(calling, 10)
        assert (result.run.status, result.part.state) == ("cancelled", "error")
    assert (await client.runs.get("run_call")).status == "cancelled"
    [call] = await client.get_execution_history(session.id)
    assert call.state == "error"


async def test_a_call_whose_run_fails_before_it_begins_has_a_result(client, tmp_path):
    wrong = {"budget": {"max_tool_calls": "many"}}
    session = await client.create_session("s", directory=tmp_path, metadata=wrong)
    failed = await client.tools.call("add", {"a": 1, "b": 1}, session_id=session.id)
    assert (failed.run.status, failed.part.state) == ("failed", "error")


async def test_a_call_that_was_cancelled_while_it_waited_is_closed_by_the_next(client, tmp_path):
    session = await client.create_session("s", directory=tmp_path)
    asked = {"file_path": "a.txt", "content": "hello"}
    first = await client.tools.call("write", asked, session_id=session.id, on_ask="park")
    await client.runs.cancel(first.run.id)
    await client.tools.call("add", {"a": 1, "b": 1}, session_id=session.id)
    states = {one.tool: one.state for one in await client.get_execution_history(session.id)}
    assert states == {"write": "error", "add": "completed"}
    assert not (tmp_path / "a.txt").exists()


async def test_a_tool_that_nobody_knows_is_an_error_before_anything_is_kept(client):
    with pytest.raises(HoldfastError) as caught:
        await client.tools.call("nothing", {})
    assert caught.value.code == "usage.not_found"
    assert not (await client.list_sessions()).items


async def test_wrong_policies_are_told_before_anything_is_kept(tmp_path):
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "network.yaml").write_text("surprise: 1")
    chosen = {"policies.dir": str(tmp_path / "policies")}
    settings = load_settings(overrides=chosen).settings
    async with AsyncClient(tmp_path / "state", settings=settings) as client:
        with pytest.raises(HoldfastError) as caught:
            await client.tools.call("todoread", {})
        assert type(caught.value).__name__ == "PolicyInvalid"
        assert not (await client.list_sessions()).items
