"""plan_enter and plan_exit switch the agent of a session between turns."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import AsyncClient
from holdfast.testing import ScriptedModel, tool_call


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(tmp_path / "state") as opened:
        yield opened


async def test_session_changes_its_agent_for_the_next_turn(
    client: AsyncClient, tmp_path: Path
) -> None:
    session = await client.create_session("work", directory=tmp_path)
    model = ScriptedModel(
        tool_call("plan_enter"),
        "planning next",
        tool_call("write", file_path="code.py", content="x"),
        tool_call("write", file_path=".holdfast/plans/a.md", content="1. do it"),
        tool_call("plan_exit"),
        "planned",
        "built",
    )
    results = []
    for text in ("big task", "plan it", "build it"):
        results.append(await client.execute_agent("", session.id, text, model=model))
    assert [result.agent_name for result in results] == ["build", "plan", "build"]
    assert not (tmp_path / "code.py").exists()
    assert (tmp_path / ".holdfast/plans/a.md").read_text() == "1. do it"
    names = [{spec.name for spec in request.tools} for request in model.requests]
    assert "plan_enter" in names[0] and "plan_exit" not in names[0]
    assert "plan_exit" in names[2] and "plan_enter" not in names[2]


async def test_commands_of_the_planning_agent_change_nothing(
    client: AsyncClient, tmp_path: Path
) -> None:
    session = await client.create_session("work", directory=tmp_path)
    model = ScriptedModel(tool_call("bash", command="touch code.py"), "tried")
    await client.execute_agent("plan", session.id, "plan it", model=model)
    [part] = model.requests[1].messages[-1].tool_calls
    assert part.state == "error"
    assert not (tmp_path / "code.py").exists()


async def test_caller_who_names_an_agent_gets_it(client: AsyncClient) -> None:
    session = await client.create_session("work")
    model = ScriptedModel(tool_call("plan_enter"), "ok", "ok")
    await client.execute_agent("build", session.id, "plan", model=model)
    assert (await client.get_session(session.id)).agent == "plan"
    result = await client.execute_agent("build", session.id, "go", model=model)
    assert result.agent_name == "build"
