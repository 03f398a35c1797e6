"""What was used and paid can be asked for: by agent, run, session and model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast import Agent, AsyncClient
from holdfast.cli.app import root
from holdfast.errors import NotFound
from holdfast.messages import TokenUsage
from holdfast.providers.model import ModelInfo
from holdfast.testing import ModelReply, ScriptedModel, tool_call
from holdfast.tools import tool


@tool(effect="read")
async def look() -> str:
    """Look."""
    return "seen"


def agent(name: str, tokens: int) -> Agent:
    asks = ModelReply(calls=(tool_call("look"),), usage=TokenUsage(input=tokens))
    return Agent(
        name,
        model=ScriptedModel(asks, ModelReply(text="done", usage=TokenUsage(output=tokens))),
        tools=[look],
    )


async def test_each_answer_is_counted_once_wherever_it_belongs(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        first = await client.create_session("One")
        one = await client.execute_agent(agent("a", 10), first.id, "go")
        two = await client.execute_agent(agent("b", 100), first.id, "go")
        fork = await client.fork_session(first.id)
        three = await client.execute_agent(agent("a", 1_000), fork.id, "go")
        # A finished run that is asked for again costs nothing.
        await client.execute_agent(agent("a", 10), first.id, "go", run_id=one.run_id)
        report = await client.usage.get()
        assert (report.total.calls, report.total.usage.total) == (6, 2 * 1_110)
        assert {k: v.usage.total for k, v in report.by_agent.items()} == {"a": 2_020, "b": 200}
        assert {k: v.usage.total for k, v in report.by_run.items()} == {
            one.run_id: 20,
            two.run_id: 200,
            three.run_id: 2_000,
        }
        assert {k: v.usage.total for k, v in report.by_session.items()} == {
            first.id: 220,
            fork.id: 2_000,
        }
        assert [v.calls for v in report.by_model.values()] == [6]
        assert (await client.usage.get(fork.id)).total.usage.total == 2_000
        assert report.total.cost_usd == 0
        with pytest.raises(NotFound):
            await client.usage.get("ses_none")


async def test_total_with_an_unknown_price_does_not_pretend_to_know(tmp_path: Path) -> None:
    info = ModelInfo(provider="test", model="secret-sauce")
    model = ScriptedModel(ModelReply(text="done", usage=TokenUsage(output=5)), info=info)
    async with AsyncClient(tmp_path) as client:
        await Agent("a", model=model).run("go", client=client)
        total = (await client.usage.get()).total
        assert (total.cost_usd, total.known_cost_usd, total.unpriced_calls) == (None, 0, 1)


def test_usage_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("AGENT_WORKSPACE", str(tmp_path))
    monkeypatch.setenv("AGENT_MODEL", "offline")
    run = CliRunner()
    assert "0 calls" in run.invoke(root, ["usage"]).output
    assert run.invoke(root, ["run", "What is 15 times 23?"]).exit_code == 0
    shown = run.invoke(root, ["usage", "--by", "model"])
    assert shown.exit_code == 0 and "offline" in shown.output
    whole = json.loads(run.invoke(root, ["--json", "usage"]).stdout)
    assert whole["total"]["calls"] >= 1 and list(whole["by_agent"]) == ["build"]
