"""Models choose the ids of calls, and two runs may wait for calls of the same one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast import Agent, AsyncClient, tool
from holdfast.cli.app import root
from holdfast.messages import ToolPart
from holdfast.testing import ScriptedModel
from holdfast.tools import Parked


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AGENT_STATE_DIR", str(tmp_path / "state"))


async def holdfast(*words: str, code: int = 0) -> None:
    ended = await asyncio.to_thread(CliRunner().invoke, root, list(words))
    assert ended.exit_code == code, ended.output


async def test_an_id_that_several_runs_wait_for_is_answered_for_the_named_one() -> None:
    @tool(effect="read")
    async def ask_person() -> Parked:
        """Ask."""
        return Parked(reason="question", request={"question": "Which one?"})

    def asker() -> ScriptedModel:
        return ScriptedModel(ToolPart(call_id="call_1", tool="ask_person"), "thanks")

    async with AsyncClient() as client:
        for run_id in ("one", "two"):
            agent = Agent("asker", model=asker(), tools=[ask_person])
            assert (await agent.run("go", run_id=run_id, client=client)).status == "parked"
        await holdfast("approvals", "answer", "call_1", "the left one", code=2)
        await holdfast("approvals", "decide", "call_1", "happened", code=2)
        await holdfast("approvals", "answer", "call_1", "the left one", "--run", "two")
        [waiting] = await client.approvals.questions()
        assert waiting.run_id == "one"
        await holdfast("approvals", "answer", "call_1", "the right one")
        assert await client.approvals.questions() == []
