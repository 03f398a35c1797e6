"""A run cancelled at any moment leaves no call without a result, and a session that goes on."""

from __future__ import annotations

import asyncio
import tempfile
from typing import Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import Agent, AsyncClient, tool
from holdfast.agents import AgentResult
from holdfast.errors import NotFound
from holdfast.hooks import HookPayload
from holdfast.messages import Message
from holdfast.testing import ScriptedModel, tool_call
from holdfast.tools.gate import ApprovalAnswer, ApprovalRequest

_POINTS = 36
"""More hook points than an undisturbed run passes."""


class Consents:
    """Says yes after a moment."""

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        await asyncio.sleep(0)
        return ApprovalAnswer(verdict="allow", by="ann")


@tool(effect="read")
async def look(number: int) -> str:
    """Look, for some ticks."""
    for _ in range(number):
        await asyncio.sleep(0)
    return f"seen {number}"


@tool(effect="unsafe", permission="ask")
async def act() -> str:
    """Do something that asks."""
    await asyncio.sleep(0)
    return "acted"


def worker() -> Agent:
    model = ScriptedModel(
        [tool_call("look", number=1), tool_call("look", number=5), tool_call("act")],
        tool_call("act"),
        "done",
    )
    return Agent("worker", model=model, tools=[look, act], approve=Consents())


def unpaired(messages: tuple[Message, ...]) -> list[str]:
    """Return calls of a request that have no result, and results that have no call."""
    asked = [part.call_id for m in messages if m.role == "assistant" for part in m.tool_calls]
    answered = [part.call_id for m in messages if m.role == "tool" for part in m.tool_calls]
    return sorted(set(asked) ^ set(answered)) + [i for i in asked if asked.count(i) > 1]


class Moment:
    """Comes when a run has passed so many hook points, and some ticks of the loop more."""

    def __init__(self, client: AsyncClient, points: int, ticks: int) -> None:
        self._left = points
        self._ticks = ticks
        self._reached = asyncio.Event()
        self._client = client
        self._hook = client.hooks.observe("*", self._count)
        if points == 0:
            self._reached.set()

    async def _count(self, payload: HookPayload) -> None:
        self._left -= 1
        if self._left == 0:
            self._reached.set()

    async def comes(self, run: asyncio.Task[AgentResult]) -> None:
        """Wait for the moment, or for the end of the run."""
        reached = asyncio.create_task(self._reached.wait())
        async with asyncio.timeout(30):
            await asyncio.wait([reached, run], return_when=asyncio.FIRST_COMPLETED)
        reached.cancel()
        for _ in range(self._ticks):
            await asyncio.sleep(0)
        self._client.hooks.off(self._hook)


async def interrupted(way: Literal["request", "task"], moments: list[tuple[int, int]]) -> None:
    with tempfile.TemporaryDirectory() as state:
        async with AsyncClient(state) as client:
            session = await client.create_session("s")
            for number, (points, ticks) in enumerate(moments):
                run_id = f"job-{number}"
                moment = Moment(client, points, ticks)
                run = asyncio.create_task(
                    client.execute_agent(worker(), session.id, "go", run_id=run_id)
                )
                await moment.comes(run)
                if way == "task":
                    run.cancel()
                else:
                    try:
                        await client.runs.cancel(run_id, reason="enough")
                    except NotFound:  # not in the queue yet
                        run.cancel()
                async with asyncio.timeout(30):
                    await asyncio.gather(run, return_exceptions=True)
            page = await client.list_messages(session.id, limit=500)
            pending = [p for m in page.items for p in m.tool_calls if p.state == "pending"]
            assert pending == []
            model = ScriptedModel("here")
            async with asyncio.timeout(30):
                last = Agent("next", model=model)
                result = await client.execute_agent(last, session.id, "there?")
            assert result.response == "here"
            assert unpaired(model.requests[0].messages) == []
            assert await client.audit.verify() == []


@settings(max_examples=40, deadline=None)
@given(
    way=st.sampled_from(["request", "task"]),
    moments=st.lists(
        st.tuples(st.integers(0, _POINTS), st.integers(0, 40)), min_size=1, max_size=2
    ),
)
def test_a_session_is_never_bricked(
    way: Literal["request", "task"], moments: list[tuple[int, int]]
) -> None:
    asyncio.run(interrupted(way, moments))
