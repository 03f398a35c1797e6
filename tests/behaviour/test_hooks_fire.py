"""Every declared hook point fires in a real run; nothing is declared that does not."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import Agent, AsyncClient, tool
from holdfast.errors import LLMOverloaded
from holdfast.hooks import HookPayload, list_points
from holdfast.orchestration.workflows import Workflow
from holdfast.state import StateSchema
from holdfast.testing import ScriptedModel, tool_call


@tool(effect="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(effect="read")
async def fail() -> str:
    """Fail."""
    raise RuntimeError("no luck")


@tool(permission="deny")
async def wipe() -> str:
    """Wipe the disk."""
    raise AssertionError("a denied call ran")


@contextlib.asynccontextmanager
async def connection() -> AsyncIterator[str]:
    yield "open"


async def everything(client: AsyncClient) -> None:
    """Do one of everything that hooks hear of."""
    await client.agents.add_resource("worker", "connection", connection)
    model = ScriptedModel(
        [tool_call("add", a=1, b=2), tool_call("fail"), tool_call("wipe")], "done"
    )
    worker = Agent("worker", model=model, tools=[add, fail, wipe])
    session = await client.create_session("work")
    assert (await client.execute_agent(worker, session.id, "go")).response == "done"
    # The model fails: the run fails.
    broken = Agent("broken", model=ScriptedModel(LLMOverloaded(provider="test", detail="no")))
    assert (await client.execute_agent(broken, session.id, "go")).status == "failed"
    # The steps run out: a limit.
    endless = Agent(
        "endless", model=ScriptedModel(tool_call("add", a=1, b=2)), tools=[add], steps=1
    )
    assert (await client.execute_agent(endless, session.id, "go")).status == "failed"
    # The conversation gets long, and somebody wants it shorter.
    talker = Agent("talker", model=ScriptedModel("a long answer " * 200))
    for _ in range(3):
        await client.execute_agent(talker, session.id, "go on " * 200)
    assert await client.sessions.compact(session.id, model=ScriptedModel("in short")) is not None
    # A workflow that works, and one whose step fails.
    good = Workflow("good").step("one", tool=add, args={"a": 1, "b": 2})
    assert (await client.workflows.run(good)).status == "completed"
    bad = Workflow("bad").step("one", tool=fail, args={})
    assert (await client.workflows.run(bad)).status == "failed"
    await client.register_agent(Agent("registered"))
    # A workflow with a step that fails and one that ends.
    flow = Workflow("flow").step("a", tool=fail, on_error="continue").step("b", value=1)
    assert (await client.workflows.run(flow)).output == 1
    # A step that is tried again.
    again = Workflow("again").step("a", tool=fail, retry={"attempts": 2, "wait": 0})
    assert (await client.workflows.run(again)).status == "failed"
    await client.update_session(session.id, title="more work")
    await client.archive_session(session.id)
    await client.restore_session(session.id)
    # A value is written, read through a migration, and written by two at once.
    state = (await client.state.manager()).scope("user")
    await state.set("point", {"x": 1}, schema=StateSchema("point", dict))
    newer = StateSchema("point", dict, version=2, migrations={1: lambda old: {**old, "y": 0}})
    assert await state.get("point", schema=newer) == {"x": 1, "y": 0}
    await state.set("point", {"x": 2}, expected=0, on_conflict="last-writer")

    async def stumble(event: object) -> None:
        raise ValueError("a bad handler")

    await client.events.subscribe("app.*", stumble)
    await client.events.publish("app.said", {"text": "hello"})
    await client.events.settle()


async def test_every_declared_point_fires(tmp_path: Path) -> None:
    fired: set[str] = set()
    client = AsyncClient(tmp_path)

    @client.hooks.observe("*")
    async def note(payload: HookPayload) -> None:
        fired.add(payload.point)

    async with client:
        await everything(client)
    assert set(list_points()) - fired == set()


async def test_observers_that_all_fail_change_nothing(tmp_path: Path) -> None:
    client = AsyncClient(tmp_path)

    @client.hooks.observe("*")
    async def break_everything(payload: HookPayload) -> None:
        raise RuntimeError("an observer is broken")

    async with client:
        await everything(client)
        assert (await client.hooks.registry()).failures >= 3
        events = [event async for event in facts(client, "hook.failed")]
    assert [event["is_cut_off"] for event in events if "is_cut_off" in event] == [True]


async def test_observers_cannot_change_a_payload_in_place(tmp_path: Path) -> None:
    client = AsyncClient(tmp_path)

    @client.hooks.observe("tool.*")
    async def meddle(payload: HookPayload) -> None:
        arguments = getattr(payload, "arguments", None)
        if arguments is not None:
            arguments["a"] = 1000

    async with client:
        model = ScriptedModel(tool_call("add", a=1, b=2), "done")
        await Agent("w", model=model, tools=[add]).run("go", client=client)
    [result] = model.requests[1].messages[-1].tool_calls
    assert result.output == "3"


@pytest.mark.parametrize("name", sorted(list_points()))
def test_what_a_point_lets_change_are_fields_of_its_payload(name: str) -> None:
    point = list_points()[name]
    assert point.changeable <= set(point.__struct_fields__)
    assert bool(point.changeable) == ("modify" in point.accepts)
    assert point.__doc__


async def facts(client: AsyncClient, kind: str) -> AsyncIterator[dict[str, object]]:
    journal = await client.storage.journal()
    for event in await journal.store.feed(after=0, limit=10_000):
        if event.kind == kind:
            yield json.loads(event.payload)
