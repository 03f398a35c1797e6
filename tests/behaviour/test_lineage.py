"""A session below another run never gets more than that run had, whoever works in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Agent, AsyncClient
from holdfast.agents.request import RunRequest
from holdfast.errors import UsageError
from holdfast.runs.lineage import LINEAGE_KEY, list_below
from holdfast.testing import ScriptedModel, tool_call
from holdfast.tools import tool


@tool(effect="read")
async def look(at: str) -> str:
    """Look."""
    return f"seen {at}"


@tool(effect="read")
async def peek(at: str) -> str:
    """Peek."""
    return f"peeked {at}"


def child(*replies: object) -> Agent:
    return Agent("child", model=ScriptedModel(*replies), tools=[look, peek])  # type: ignore[arg-type]


async def states(client: AsyncClient, session_id: str) -> dict[str, str]:
    page = await client.list_messages(session_id)
    return {call.tool: call.state for message in page.items for call in message.tool_calls}


async def test_what_the_parent_may_not_do_its_child_may_not_do_either(tmp_path: Path) -> None:
    parent = Agent("parent", denied_tools=["peek"])
    async with AsyncClient(tmp_path / "state") as client:
        above = await client.create_session("Above")
        lineage = list_below(parent, above, run_id="run_1")
        under = await client.create_session(
            "Below", parent_id=above.id, metadata=lineage.to_metadata()
        )
        calls = [tool_call("look", at="a"), tool_call("peek", at="a")]
        await client.execute_agent(child(calls, "done"), under.id, "go")
        assert await states(client, under.id) == {"look": "completed", "peek": "error"}
        events = await client.events.list(under.id)
        assert {event.agent_path for event in events} == {"", "parent/child"}


async def test_run_calls_only_the_tools_it_was_given(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path / "state") as client:
        session = await client.create_session("One")
        calls = [tool_call("look", at="a"), tool_call("peek", at="a")]
        model = ScriptedModel(calls, "done")
        agent = Agent("child", model=model, tools=[look, peek])
        launch = RunRequest(agent=agent, session_id=session.id, message="go", tool_ids=("look",))
        result = await client.runs.execute_request(launch)
        assert result.status == "completed"
        assert await states(client, session.id) == {"look": "completed", "peek": "error"}
        assert [spec.name for spec in model.requests[0].tools] == ["look"]


async def test_session_whose_lineage_cannot_be_read_runs_nothing(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path / "state") as client:
        session = await client.create_session("One", metadata={LINEAGE_KEY: {"path": 3}})
        with pytest.raises(UsageError):
            await client.execute_agent(child("done"), session.id, "go")
