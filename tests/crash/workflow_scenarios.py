"""What is killed: a workflow with every kind of step, whose effects are counted outside."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from pathlib import Path

from holdfast import Agent, AsyncClient, tool
from holdfast.errors import AlreadyExists
from holdfast.orchestration.workflows import Workflow, parallel, step, when
from holdfast.providers.model import ModelRequest
from holdfast.settings import load_settings
from holdfast.testing import FunctionModel, tool_call
from holdfast.testing.crash import cross_boundary
from holdfast.tools import Tool, ToolContext

LEASE_S = 0.2
EXPECTED = {"rounds": ["did r0", "did r1"], "both": {"x": "did x", "y": "agreed"}, "n": "did n"}
EFFECTS = ["n", "r0", "r1", "x", "y"]


def work_tool(directory: str) -> Tool:
    path = f"{directory}.effects"

    @tool(name="work", effect="idempotent")
    async def work(name: str, context: ToolContext) -> str:
        """Do something once per key."""
        known = Path(path).read_text().splitlines() if os.path.exists(path) else []
        if context.idempotency_key not in [json.loads(line)[0] for line in known]:

            def write() -> None:
                handle = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
                os.write(handle, json.dumps([context.idempotency_key, name]).encode() + b"\n")
                os.fsync(handle)
                os.close(handle)

            cross_boundary(f"work {name}", write)
        return f"did {name}"

    return work


def answer(request: ModelRequest):
    has_result = any(message.role == "tool" for message in request.messages)
    return "agreed" if has_result else tool_call("work", name="y")


def flow_of(directory: str) -> Workflow:
    work = work_tool(directory)
    agent = Agent("helper", model=FunctionModel(answer), tools=[work])
    inner = Workflow("inner").step("n", tool=work, args={"name": "n"})
    return (
        Workflow("everything")
        .loop("rounds", step("r", tool=work, args={"name": "r${loop.index}"}), times=2)
        .add(
            parallel(
                "both",
                step("x", tool=work, args={"name": "x"}),
                step("y", agent=agent, message="agree"),
            )
        )
        .add(when("nested", "true", then=[step("call", workflow=inner)]))
        .returns(
            {
                "rounds": "${steps.rounds.output}",
                "both": "${steps.both.output}",
                "n": "${steps.nested.output}",
            }
        )
    )


def run_everything(directory: str) -> None:
    asyncio.run(_run(directory))


async def _run(directory: str) -> None:
    settings = load_settings(overrides={"sessions.lease_ttl_s": LEASE_S}).settings
    async with AsyncClient(directory, settings=settings) as client:
        result = await client.workflows.run(flow_of(directory), run_id="job")
        assert (result.status, result.output) == ("completed", EXPECTED), result


async def check_once(directory: Path) -> None:
    lines = Path(f"{directory}.effects").read_text().splitlines()
    assert sorted(json.loads(line)[1] for line in lines) == EFFECTS, lines
    settings = load_settings().settings
    async with AsyncClient(directory, settings=settings) as client:
        result = await client.workflows.get("job")
        assert (result.status, result.output) == ("completed", EXPECTED)
        assert {state.status for state in result.steps} == {"completed"}
        assert {state.attempts for state in result.steps} <= {0, 1}
        journal = await client.storage.journal()
        ended = [
            event.decode().path  # type: ignore[attr-defined]
            for event in await journal.read_all(result.session_id)
            if event.kind == "workflow.step_completed"
        ]
        assert sorted(ended) == sorted(set(ended)), "a step ended twice"
        assert await client.audit.verify() == []


# --- triggers ------------------------------------------------------------------------


def fire_orders(directory: str) -> None:
    asyncio.run(_fire(directory))


async def _fire(directory: str) -> None:
    """An order comes in and starts a workflow with an effect."""
    settings = load_settings(overrides={"sessions.lease_ttl_s": LEASE_S}).settings
    async with AsyncClient(directory, settings=settings) as client:
        flow = Workflow("order", inputs={"name": {"type": "string"}}).step(
            "do", tool=work_tool(directory), args={"name": "${inputs.name}"}
        )
        await client.workflows.register(flow)
        on = {"kinds": ["session.created"], "where": "'Order' in event.data.title"}
        inputs = {"name": "${event.data.title}"}
        with contextlib.suppress(AlreadyExists):
            await client.triggers.add(
                {"name": "orders", "on": on, "workflow": "order", "with": inputs}
            )
        sessions = await client.sessions.manager()
        with contextlib.suppress(AlreadyExists):
            await sessions.create_session("Order 1", session_id="ses_order_1")
        stop = asyncio.Event()
        running = asyncio.create_task(client.triggers.run(stop))
        async for _ in client.events.watch(after=0, patterns=["trigger.ended"]):
            break
        stop.set()
        await running


async def check_orders(directory: Path) -> None:
    lines = Path(f"{directory}.effects").read_text().splitlines()
    assert sorted(json.loads(line)[1] for line in lines) == ["Order 1"], lines
    async with AsyncClient(directory, settings=load_settings().settings) as client:
        firings = await client.triggers.firings()
        assert [firing.status for firing in firings] == ["completed"], firings
        assert await client.audit.verify() == []
