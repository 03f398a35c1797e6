"""What is killed: agents that let others work, side by side, by tools, with consent inside.

The ledger is outside the state directory: one line per piece of work that was really done.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast import Agent, AsyncClient, tool
from holdfast.agents.handoff import HandedOff, send_conversation, transfer_to
from holdfast.errors import AlreadyExists
from holdfast.messages import ToolPart
from holdfast.orchestration.delegation import AgentTask
from holdfast.providers.model import ModelRequest
from holdfast.settings import load_settings
from holdfast.testing import FunctionModel, tool_call
from holdfast.testing.crash import cross_boundary
from holdfast.tools import Tool, ToolContext

LEASE_S = 0.2
ONE = ("left",)
TWO = ("left", "right")
ABOVE = "ses_above"


class Ledger:
    """The outside world: work is done once per idempotency key, and asked for as often."""

    def __init__(self, directory: str) -> None:
        self._path = f"{directory}.work"

    def lines(self, kind: str) -> list[str]:
        if not os.path.exists(self._path):
            return []
        with open(self._path) as file:
            found = [json.loads(line) for line in file]
        return [text for one, text in found if one == kind]

    def write(self, kind: str, text: str) -> None:
        handle = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        os.write(handle, json.dumps([kind, text]).encode() + b"\n")
        os.fsync(handle)
        os.close(handle)


def work_tool(ledger: Ledger, *, asks: bool = False) -> Tool:
    @tool(effect="idempotent", permission="ask" if asks else "allow", target="what")
    async def work(what: str, context: ToolContext) -> str:
        """Do it."""
        line = f"{what} {context.idempotency_key}"
        if line not in ledger.lines("done"):
            cross_boundary(f"work {what}", lambda: ledger.write("done", line))
        return f"{what} is done"

    return work


def worker(ledger: Ledger, *, asks: bool = False) -> Agent:
    """Does what its task says, in one call, and reports."""

    def think(request: ModelRequest) -> str | ToolPart:
        first = next(one for one in request.messages if one.role == "user")
        errand = first.text.splitlines()[0]
        if request.messages[-1].role == "tool":
            ledger.write("reported", errand)
            return f"report: {errand}"
        return tool_call("work", what=errand)

    tools = [work_tool(ledger, asks=asks)]
    return Agent("worker", mode="subagent", model=FunctionModel(think), tools=tools)


def boss(work: tuple[str, ...]) -> Agent:
    """Sends the worker on all errands at once, then sums up."""

    def think(request: ModelRequest) -> str | list[ToolPart]:
        if request.messages[-1].role == "tool":
            return "all done"
        return [tool_call("task", subagent_type="worker", prompt=one) for one in work]

    allowed = [{"permission": "*", "action": "allow"}]
    return Agent("boss", model=FunctionModel(think), permission=allowed)


def caller(ledger: Ledger) -> Agent:
    """Has the worker as a tool, and sums up."""

    def think(request: ModelRequest) -> str | ToolPart:
        if request.messages[-1].role == "tool":
            return "all done"
        return tool_call("worker", task=ONE[0])

    allowed = [{"permission": "*", "action": "allow"}]
    tools = [worker(ledger).as_tool()]
    return Agent("boss", model=FunctionModel(think), tools=tools, permission=allowed)


def giver() -> Agent:
    """TurnTools over to the worker, and is never asked again."""

    def think(request: ModelRequest) -> ToolPart:
        assert request.messages[-1].role == "user", "the worker answers in its place"
        return tool_call("transfer_to", agent="worker", message=ONE[0])

    allowed = [{"permission": "*", "action": "allow"}]
    tools = [transfer_to(["worker"], transform=send_conversation)]
    return Agent("boss", model=FunctionModel(think), tools=tools, permission=allowed)


@asynccontextmanager
async def opened(directory: str, agent: Agent) -> AsyncIterator[AsyncClient]:
    settings = load_settings(overrides={"sessions.lease_ttl_s": LEASE_S}).settings
    async with AsyncClient(directory, settings=settings) as client:
        await client.register_agent(agent)
        sessions = await client.sessions.manager()
        try:
            await sessions.create_session("Above", session_id=ABOVE, directory=directory)
        except AlreadyExists:
            assert await client.get_session(ABOVE)
        yield client


def delegate(directory: str) -> None:
    asyncio.run(_delegate(directory))


def side_by_side(directory: str) -> None:
    asyncio.run(_side_by_side(directory))


def by_task_tool(directory: str) -> None:
    asyncio.run(_by_task_tool(directory))


def with_consent(directory: str) -> None:
    asyncio.run(_with_consent(directory))


def as_tool(directory: str) -> None:
    asyncio.run(_as_tool(directory))


def hand_off(directory: str) -> None:
    asyncio.run(_hand_off(directory))


async def _delegate(directory: str) -> None:
    async with opened(directory, worker(Ledger(directory))) as client:
        orchestrator = await client.runs.orchestrator(run_id="job")
        boss_in_code = Agent("boss", permission=[{"permission": "*", "action": "allow"}])
        for one in ONE:
            result = await orchestrator.delegate_task(boss_in_code, "worker", one, ABOVE)
            assert result.response == f"report: {one}", result


async def _side_by_side(directory: str) -> None:
    async with opened(directory, worker(Ledger(directory))) as client:
        orchestrator = await client.runs.orchestrator(run_id="job")
        tasks = [AgentTask(agent_name="worker", description=one) for one in TWO]
        results = await orchestrator.run_parallel_agents(tasks, ABOVE)
        assert [one.response for one in results] == [f"report: {one}" for one in TWO], results


async def _by_task_tool(directory: str) -> None:
    async with opened(directory, worker(Ledger(directory))) as client:
        result = await client.execute_agent(boss(TWO), ABOVE, "go", run_id="job")
        assert (result.status, result.response) == ("completed", "all done"), result


async def _with_consent(directory: str) -> None:
    """The child asks, everybody parks, a person answers, and all go on."""
    async with opened(directory, worker(Ledger(directory), asks=True)) as client:
        async with asyncio.timeout(60):
            while True:
                result = await client.execute_agent(
                    boss(ONE), ABOVE, "go", run_id="job", on_ask="park"
                )
                if result.status != "parked":
                    break
                for question in await client.approvals.questions():
                    assert question.reason == "approval", question
                    await client.approvals.approve(question.id, by="tester")
        assert (result.status, result.response) == ("completed", "all done"), result


async def _as_tool(directory: str) -> None:
    ledger = Ledger(directory)
    async with opened(directory, worker(ledger)) as client:
        result = await client.execute_agent(caller(ledger), ABOVE, "go", run_id="job")
        assert (result.status, result.response) == ("completed", "all done"), result


async def _hand_off(directory: str) -> None:
    async with opened(directory, worker(Ledger(directory))) as client:
        result = await client.execute_agent(giver(), ABOVE, "go", run_id="job")
        assert (result.status, result.response) == ("completed", f"report: {ONE[0]}"), result


async def check_hand_off(directory: Path) -> None:
    """Look after one errand that was handed over: once, with the same parcel, for good."""
    await _check(directory, ONE)
    async with AsyncClient(directory) as client:
        events = await client.events.list(ABOVE)
        told = [event.expect(HandedOff) for event in events if event.kind == HandedOff.kind]
        assert [(one.to_agent, one.transform) for one in told] == [("worker", "conversation")]
        answers = [one for one in (await client.list_messages(ABOVE)).items if one.text]
        assert [one.role for one in answers] == ["user", "assistant"], answers


async def check_one(directory: Path) -> None:
    """Look after one errand."""
    await _check(directory, ONE)


async def check_two(directory: Path) -> None:
    """Look after both errands."""
    await _check(directory, TWO)


async def _check(directory: Path, work: tuple[str, ...]) -> None:
    """Every piece of work was done once, by one child each; no report was made twice."""
    ledger = Ledger(str(directory))
    assert sorted(line.split()[0] for line in ledger.lines("done")) == sorted(work)
    async with AsyncClient(directory) as client:
        assert await client.audit.verify() == []
        events = await client.runs.family_events(ABOVE, limit=10_000)
        below = {one.event.session_id for one in events if one.depth == 1}
        assert len(below) == len(work)
        for session_id in below:
            messages = (await client.list_messages(session_id)).items
            answers = [one.text for one in messages if one.text.startswith("report")]
            assert len(answers) == 1, answers
            kinds = [event.kind for event in await client.events.list(session_id)]
            assert kinds.count("run.queued") == kinds.count("run.completed") == 1
        parts = [p for m in (await client.list_messages(ABOVE)).items for p in m.tool_calls]
        assert all(part.state == "completed" for part in parts), parts
