"""The third equal call in a row asks, whatever rules the agent has."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Agent, AsyncClient, tool
from holdfast.agents.request import RunRequest
from holdfast.testing import ScriptedModel, tool_call


@tool(effect="read")
async def look(at: str) -> str:
    """Look."""
    return f"seen {at}"


def looper(**fields: object) -> Agent:
    model = ScriptedModel(*[tool_call("look", at="door")] * 3, "done")
    return Agent("looper", model=model, tools=[look], **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "tool_ids"), [({}, None), ({"allowed_tools": ["look"]}, None), ({}, ("look",))]
)
async def test_a_loop_asks_also_where_only_some_tools_are_allowed(
    tmp_path: Path, fields: dict[str, object], tool_ids: tuple[str, ...] | None
) -> None:
    async with AsyncClient(tmp_path / "state") as client:
        launch = RunRequest(
            agent=looper(**fields), message="go", run_id="loop", on_ask="park", tool_ids=tool_ids
        )
        assert (await client.runs.execute_request(launch)).status == "parked"
        [asked] = await client.approvals.list()
        assert asked.permission == "doom_loop"


async def test_the_explorer_is_asked_about_its_loops(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path / "state") as client:
        session = await client.create_session("Explore", directory=tmp_path)
        (tmp_path / "a.txt").write_text("a")
        model = ScriptedModel(*[tool_call("read", file_path="a.txt")] * 3, "done")
        result = await client.execute_agent("explore", session.id, "go", model=model, on_ask="park")
        assert result.status == "parked"
        assert [one.permission for one in await client.approvals.list()] == ["doom_loop"]
