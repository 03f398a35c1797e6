"""What rules, lists and tools say is what happens at the real call. (4.1, 4.2)"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, AsyncClient, tool, toolset
from holdfast.agents import transfer_to
from holdfast.orchestration.delegation import AgentTask
from holdfast.testing import ScriptedModel, tool_call

ALLOW_ALL = [{"permission": "*", "action": "allow"}]


@tool(permission="ask")
async def refund(order: str) -> str:
    """Pay an order back."""
    return f"paid {order}"


@tool
async def wipe() -> str:
    """Change something."""
    return "wiped"


@tool(effect="read")
async def look() -> str:
    """Only read."""
    return "seen"


async def states(client: AsyncClient, *calls: Any, session: str = "", **fields: Any) -> list[str]:
    model = ScriptedModel([*calls], "done")
    await Agent("a", model=model, **fields).run("go", session=session, client=client)
    return [part.state for part in model.requests[1].messages[-1].tool_calls]


REFUND = tool_call("refund", order="A")


async def test_a_list_of_tools_lifts_no_ask(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        assert await states(client, REFUND, tools=[refund], allowed_tools=["refund"]) == ["error"]
        await client.register_tool(refund)
        assert await states(client, REFUND, allowed_tools=["refund"]) == ["error"]


async def test_only_a_rule_that_names_a_tool_lifts_its_own_ask(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        for permission, state in {
            "*": "error",
            "**": "error",
            "?*": "error",
            "refund": "completed",
            "re*": "completed",
        }.items():
            rules = [{"permission": permission, "action": "allow"}]
            assert await states(client, REFUND, tools=[refund], permission=rules) == [state]


async def test_a_registered_tool_that_no_rule_mentions_asks_unless_it_reads(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        await client.register_tool(wipe)
        await client.register_tool(look)
        calls = (tool_call("wipe"), tool_call("look"))
        listed = await states(client, *calls, allowed_tools=["wipe", "look"])
        assert listed == ["error", "completed"]
        assert await states(client, *calls, tools=[wipe, look]) == ["completed", "completed"]
        assert await states(client, *calls, permission=ALLOW_ALL) == ["completed", "completed"]


@pytest.mark.parametrize("permission", ["read", "path", "re*"])
async def test_a_pattern_is_a_limit(tmp_path: Path, permission: str) -> None:
    for name in ("a.csv", "b.txt"):
        (tmp_path / name).write_text("1")
    rules = [{"permission": permission, "pattern": "*.csv", "action": "allow"}]
    reads = [tool_call("read", file_path=name) for name in ("a.csv", "b.txt")]
    async with AsyncClient(tmp_path / "state") as client:
        session = (await client.create_session("s", directory=tmp_path)).id
        assert await states(client, *reads, session=session, permission=rules) == [
            "completed",
            "error",
        ]
        given = await states(
            client, *reads, session=session, permission=rules, tools=toolset("files:read")
        )
        assert given == ["completed", "error"]
        before = [*ALLOW_ALL, *rules]
        assert await states(client, *reads, session=session, permission=before) == [
            "completed",
            "completed",
        ]


async def test_a_rule_about_paths_limits_every_tool_of_that_kind(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/a.txt").write_text("x")
    rules = [*ALLOW_ALL, {"permission": "path", "pattern": "secret/**", "action": "deny"}]
    calls = (
        tool_call("read", file_path="secret/a.txt"),
        tool_call("write", file_path="secret/b.txt", content="x"),
        tool_call("list", path="secret"),
        tool_call("batch", calls=[{"tool": "read", "arguments": {"file_path": "secret/a.txt"}}]),
    )
    async with AsyncClient(tmp_path / "state") as client:
        session = (await client.create_session("s", directory=tmp_path)).id
        found = await states(client, *calls, session=session, permission=rules)
        assert found[:3] == ["error"] * 3
        [batch, *_] = await client.get_execution_history(session, tool="batch")
        assert "secret" in (batch.output + batch.error) and "    1  x" not in batch.output


# --- children ----------------------------------------------------------------------------


def child(**fields: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(tool_call("wipe"), "report")
    return Agent("helper", mode="subagent", model=model, tools=[wipe], **fields), model


def outcome(model: ScriptedModel) -> str:
    return model.requests[1].messages[-1].tool_calls[0].state


async def test_an_agent_that_is_handed_over_in_code_brings_its_tools(tmp_path: Path) -> None:
    helper, model = child()
    lead = Agent(
        "lead",
        model=ScriptedModel(tool_call("helper", task="x"), "ok"),
        tools=[helper.as_tool()],
    )
    async with AsyncClient(tmp_path) as client:
        await lead.run("go", client=client)
    assert outcome(model) == "completed"


@pytest.mark.parametrize("action", ["ask", "deny"])
async def test_the_rules_of_the_parent_hold_for_it_all_the_same(
    tmp_path: Path, action: str
) -> None:
    helper, model = child()
    lead = Agent(
        "lead",
        model=ScriptedModel(tool_call("helper", task="x"), "ok"),
        tools=[helper.as_tool()],
        permission=[{"permission": "wipe", "action": action}],
    )
    async with AsyncClient(tmp_path) as client:
        await lead.run("go", client=client)
    assert outcome(model) == "error"


@pytest.mark.parametrize(
    ("rules", "state"),
    [([], "error"), ([{"permission": "wipe", "action": "allow"}], "completed")],
)
async def test_any_other_child_needs_the_right_of_its_parent(
    tmp_path: Path, rules: list[dict[str, str]], state: str
) -> None:
    async with AsyncClient(tmp_path) as client:
        for name, call in {
            "task": tool_call("task", prompt="x", subagent_type="helper"),
            "transfer_to": tool_call("transfer_to", agent="helper", message="x"),
        }.items():
            helper, model = child()
            await client.register_agent(helper)
            tools = toolset("agents") if name == "task" else [transfer_to(["helper"])]
            lead = Agent("lead", model=ScriptedModel(call, "ok"), tools=tools, permission=rules)
            await lead.run("go", client=client)
            assert outcome(model) == state, name


async def test_who_is_sent_by_a_person_needs_no_other_right(tmp_path: Path) -> None:
    helper, model = child()
    async with AsyncClient(tmp_path) as client:
        await client.register_agent(helper)
        session = await client.create_session("s")
        result = await (await client.runs.orchestrator()).run_parallel_agents(
            [AgentTask(agent_name="helper", description="x")], session.id
        )
    assert (result[0].status, outcome(model)) == ("completed", "completed")
