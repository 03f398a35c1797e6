"""A run that is asked to end, and whose caller is cancelled while it does, closes its calls."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, AsyncClient, tool
from holdfast.testing import ScriptedModel, tool_call
from holdfast.tools.gate import ApprovalAnswer, ApprovalRequest

WAIT_S = 30


@tool(effect="read", permission="ask")
async def stare() -> str:
    """Stare."""
    return "never"


async def by_an_agent(client: AsyncClient, session_id: str) -> object:
    agent = Agent("a", model=ScriptedModel(tool_call("stare")), allowed_tools=["stare"])
    return await client.execute_agent(agent, session_id, "go", run_id="job")


async def by_hand(client: AsyncClient, session_id: str) -> object:
    return await client.tools.call("stare", {}, session_id=session_id, run_id="job")


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - the store has no event for that
        await asyncio.sleep(0)


@pytest.mark.parametrize("call", [by_an_agent, by_hand])
async def test_no_call_stays_open(
    tmp_path: Path, call: Callable[[AsyncClient, str], Awaitable[Any]]
) -> None:
    begun = asyncio.Event()

    class Hesitates:
        async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | None:
            begun.set()
            await asyncio.Event().wait()
            return None

    async with AsyncClient(tmp_path) as client, asyncio.timeout(WAIT_S):
        client.approver = Hesitates()
        await client.register_tool(stare)
        session, other = await client.create_session("s"), await client.create_session("other")
        run = asyncio.ensure_future(call(client, session.id))
        await begun.wait()
        turn = (await client.runs.turns()).executor.find("job")
        writer = (await client.storage.journal()).store._writer  # type: ignore[attr-defined]
        assert turn is not None
        with closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as lock:
            # The next write waits in its thread for the lock, and all that follow for that one.
            lock.execute("BEGIN IMMEDIATE")
            busy = asyncio.create_task(client.update_session(other.id, title="Other"))
            await until(lambda: writer.idle is None)
            turn.ask_to_end("enough")
            await until(lambda: bool(writer._waiting))
            run.cancel()
            await asyncio.sleep(0)
            lock.execute("COMMIT")
        with pytest.raises(asyncio.CancelledError):
            await run
        await busy
        [part] = [
            part
            for message in (await client.list_messages(session.id)).items
            for part in message.tool_calls
        ]
        assert (part.tool, part.state) == ("stare", "error")
        assert (await client.runs.get("job")).status == "cancelled"
