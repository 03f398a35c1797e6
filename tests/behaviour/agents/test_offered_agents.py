"""The agents that `holdfast init` offers do what their first lines say."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import AsyncClient
from holdfast.agents import parse_agent
from holdfast.cli.init import FILES
from holdfast.settings import load_settings
from holdfast.testing import ScriptedModel, tool_call

CALLS = {
    "read": tool_call("read", file_path="a.txt"),
    "write": tool_call("write", file_path="b.txt", content="x"),
    "edit": tool_call("edit", file_path="a.txt", old_string="hello", new_string="bye"),
    "bash": tool_call("bash", command="echo $((1 + 1)) > c.txt"),
    "outside": tool_call("externaldirectory", path="/usr"),
    "hidden in a batch": tool_call(
        "batch",
        tool_calls=[{"tool": "write", "parameters": {"file_path": "d.txt", "content": "x"}}],
    ),
}
MADE = {"write": "b.txt", "bash": "c.txt", "hidden in a batch": "d.txt"}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", ["careful", "sandboxed", "build"])
async def test_each_goes_as_far_as_it_says(name: str, call: str, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text("hello\n")
    overrides = {"workspace": str(work), "storage.state_dir": str(tmp_path / "state")}
    settings = load_settings(overrides=overrides).settings
    async with AsyncClient(settings=settings) as client:
        agent = await client.get_agent("build")
        if name != "build":
            agent, faults = parse_agent(FILES[f".holdfast/agents/{name}.md"], name)
            assert not faults
        assert agent is not None
        model = ScriptedModel(CALLS[call], "done")
        result = await client.execute_agent(
            agent, (await client.create_session("x")).id, "go", model=model, on_ask="park"
        )
    asks = {"careful": set(CALLS) - {"read"}, "sandboxed": set(), "build": {"outside"}}[name]
    assert (result.status == "parked") is (call in asks), result
    if call in MADE:
        assert (work / MADE[call]).exists() is (name != "careful")
    if (name, call) == ("sandboxed", "outside"):
        assert model.requests[-1].messages[-1].tool_calls[0].state == "error"
    assert "ask" in agent.description and "ask" in agent.prompt.splitlines()[0]


async def test_the_setting_says_who_works_where_nothing_names_an_agent(tmp_path: Path) -> None:
    overrides = {"storage.state_dir": str(tmp_path / "state"), "default_agent": "plan"}
    async with AsyncClient(settings=load_settings(overrides=overrides).settings) as client:
        session = await client.create_session("x")
        result = await client.execute_agent("", session.id, "go", model=ScriptedModel("done"))
    assert result.agent_name == "plan"
