"""A call by hand is a call like any other: hooks, budgets, subscribers, consent."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import AsyncClient, tool
from holdfast.errors import HoldfastError
from holdfast.hooks import Cancel, Replace
from holdfast.policy.budgets import Budget
from holdfast.settings import load_settings
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
    assert (await client.call_tool("add", {"a": 1, "b": 1})).part.output == "42"
    client.hooks.on("tool.after_execution", lambda done: done.modify(output="[redacted]"))
    assert (await client.call_tool("add", {"a": 1, "b": 1})).part.output == "[redacted]"
    client.hooks.on("tool.before_execution", lambda call: Replace("instead"), priority=100)
    assert (await client.call_tool("add", {"a": 1, "b": 1})).part.output == "[redacted]"
    client.hooks.on("tool.before_execution", lambda call: Cancel("not today"), priority=200)
    refused = (await client.call_tool("add", {"a": 1, "b": 1})).part
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
    results = [await client.call_tool("charge", {}, session_id=session.id) for _ in range(3)]
    assert [one.run.status for one in results] == ["completed", "completed", "failed"]
    assert results[2].run.error["code"] == "budget.exceeded"
    assert len(made) == 2


async def test_a_call_that_does_not_fit_its_own_budget_is_not_made(client):
    called = await client.call_tool("add", {"a": 1, "b": 1}, budget=Budget(max_tool_calls=0))
    assert called.run.status == "failed"
    assert called.run.error["code"] == "budget.exceeded"
    assert called.part.state == "error"


async def test_the_settings_limit_calls_by_hand(tmp_path):
    settings = load_settings(overrides={"budget.max_tool_calls": 1}).settings
    async with AsyncClient(tmp_path, settings=settings) as client:
        await client.register_tool(add)
        first = await client.call_tool("add", {"a": 1, "b": 1})
        second = await client.call_tool("add", {"a": 1, "b": 1})
    assert (first.run.status, second.run.status) == ("completed", "failed")


async def test_subscribers_hear_how_far_a_call_by_hand_is(client):
    heard = asyncio.Queue()

    @tool(effect="read")
    def slow(context: ToolContext) -> str:
        """Work."""
        context.report("halfway", fraction=0.5)
        return "done"

    await client.register_tool(slow)
    await client.on_progress(heard.put_nowait)
    assert (await client.call_tool("slow", {})).part.output == "done"
    progress = await asyncio.wait_for(heard.get(), 10)
    assert (progress.text, progress.fraction) == ("halfway", 0.5)


async def test_a_call_that_waits_for_consent_goes_on_with_the_same_run(client, tmp_path):
    session = await client.create_session("s", directory=tmp_path)
    asked = {"file_path": "a.txt", "content": "hello"}
    first = await client.call_tool("write", asked, session_id=session.id, on_ask="park")
    assert (first.run.status, first.part.state) == ("parked", "pending")
    assert not (tmp_path / "a.txt").exists()
    [request] = await client.list_approvals()
    await client.approve(request.id, by="ada")
    again = await client.call_tool("write", asked, run_id=first.run.id)
    assert (again.run.status, again.part.state) == ("completed", "completed")
    assert (tmp_path / "a.txt").read_text() == "hello"


async def test_a_call_that_a_dead_process_left_behind_is_made_as_it_was_asked_for(client, tmp_path):
    """The next call in the session takes it up first, with its own name and arguments."""
    session = await client.create_session("s", directory=tmp_path)
    turns = await client.turns()

    left = await turns.submit(
        session.id,
        run_id="run_left",
        is_for_anyone=True,
        options={"call": {"tool": "add", "arguments": {"a": 20, "b": 3}}},
    )
    called = await client.call_tool("add", {"a": 1, "b": 1}, session_id=session.id)
    assert called.part.output == "2"
    assert (await client.get_run(left.id)).status == "completed"
    history = await client.get_execution_history(session.id)
    assert sorted(one.output for one in history) == ["2", "23"]


async def test_a_run_of_an_agent_is_not_mistaken_for_a_call(client, tmp_path):
    session = await client.create_session("s", directory=tmp_path)
    turns = await client.turns()
    left = await turns.submit(session.id, agent="somebody", run_id="run_agent", is_for_anyone=True)
    called = await client.call_tool("add", {"a": 1, "b": 1}, session_id=session.id)
    assert called.part.output == "2"
    assert (await client.get_run(left.id)).status == "failed"
    assert len(await client.get_execution_history(session.id)) == 1


async def test_a_tool_that_nobody_knows_is_an_error_before_anything_is_kept(client):
    with pytest.raises(HoldfastError) as caught:
        await client.call_tool("nothing", {})
    assert caught.value.code == "usage.not_found"
    assert not (await client.list_sessions()).items


async def test_wrong_policies_are_told_before_anything_is_kept(tmp_path):
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "network.yaml").write_text("surprise: 1")
    chosen = {"policies.dir": str(tmp_path / "policies")}
    settings = load_settings(overrides=chosen).settings
    async with AsyncClient(tmp_path / "state", settings=settings) as client:
        with pytest.raises(HoldfastError) as caught:
            await client.call_tool("todoread", {})
        assert type(caught.value).__name__ == "PolicyInvalid"
        assert not (await client.list_sessions()).items
