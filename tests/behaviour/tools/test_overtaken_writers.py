"""A process that was overtaken changes nothing more: stores compare the epoch themselves.

The tool below is overtaken in the middle of its call, and its process does not know it yet (its
lease has not run out by the clock): whatever it then writes, inside its session or beside it, is
refused where it is kept.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from holdfast import Agent, AsyncClient, tool
from holdfast.errors import LeaseLost
from holdfast.memory.tools import make_memory_tools
from holdfast.runs.tools import plan_tools
from holdfast.state import StateManager
from holdfast.testing import ScriptedModel, tool_call
from holdfast.tools import ToolContext

Writer = Callable[[AsyncClient, ToolContext], Awaitable[object]]


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(tmp_path / "state") as opened:
        yield opened


def overtake(client: AsyncClient, session_id: str) -> None:
    """Do to the lease what another process does that takes the session over."""
    with sqlite3.connect(client.base_dir / "journal.db") as db:
        db.execute("UPDATE streams SET epoch = epoch + 1 WHERE session_id = ?", (session_id,))


async def set_in_session(client: AsyncClient, context: ToolContext) -> object:
    return await context.state.set("key", 1)


async def set_for_user(client: AsyncClient, context: ToolContext) -> object:
    return await context.execution.get(StateManager).set("user/late", 1)


async def save_in_session(client: AsyncClient, context: ToolContext) -> object:
    return await context.artifacts.save("late.txt", b"late")


async def save_for_user(client: AsyncClient, context: ToolContext) -> object:
    return await context.artifacts.save("late.txt", b"late", scope="user")


async def remember(client: AsyncClient, context: ToolContext) -> object:
    manager = await client.memory.manager()
    # The successor has remembered something meanwhile.
    await manager.store_memory(context.session_id, "from the successor", fence=context.fence + 1)
    [tool, _] = make_memory_tools(manager)
    return await tool.function(content="too late", context=context)


async def switch_agent(client: AsyncClient, context: ToolContext) -> object:
    [enter, _] = plan_tools(await client.sessions.manager())
    return await enter.function(context=context)


WRITERS: tuple[Writer, ...] = (
    set_in_session,
    set_for_user,
    save_in_session,
    save_for_user,
    remember,
    switch_agent,
)


@pytest.mark.parametrize("write", WRITERS)
async def test_what_an_overtaken_run_writes_is_refused_by_the_store(
    client: AsyncClient, write: Writer
) -> None:
    refused: asyncio.Future[LeaseLost] = asyncio.get_running_loop().create_future()

    @tool(effect="idempotent", permission="allow")
    async def late(context: ToolContext) -> str:
        """Write when it is too late."""
        overtake(client, context.session_id)
        try:
            await write(client, context)
        except LeaseLost as error:
            refused.set_result(error)
            raise
        refused.cancel()
        return "written"

    model = ScriptedModel(tool_call("late"), "done")
    rules = ({"action": "allow", "permission": "*", "pattern": "*"},)
    agent = Agent("slow", model=model, tools=[late], permission=rules)
    # Whoever took the session over would end the run: here it is never ended.
    running = asyncio.ensure_future(client.runs.execute(agent, "", "Go on"))
    async with asyncio.timeout(20):
        assert (await refused).code == LeaseLost.code
    running.cancel()
    await asyncio.wait([running], timeout=0.1)
    with sqlite3.connect(client.base_dir / "journal.db") as db:
        [(count,)] = db.execute(
            "SELECT count(*) FROM events"
            " WHERE kind IN ('state.changed', 'artifact.saved', 'session.updated')"
        )
    assert count == 0
    manager = await client.memory.manager()
    assert "too late" not in [one.content for one in await manager.list_all_memories()]
