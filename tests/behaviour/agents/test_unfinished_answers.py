"""Answers that are broken off: what they took is counted, and the conversation goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import Agent, AsyncClient
from holdfast.policy import Budget
from holdfast.testing.fake_server import FakeServer, HoldPoint, Reply

KEY = "sk-test-3f9a8b7c6d5e4f3a2b1c"
MODEL = "openai:gpt-4o-mini"


def _point_to(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    monkeypatch.setenv("AGENT_FORCE_CHAT_COMPLETIONS", "true")


async def test_a_cancelled_answer_reports_its_tokens_and_the_session_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HoldPoint()
    async with FakeServer([Reply(text="never", gate=held), Reply(text="Here.")], key=KEY) as server:
        _point_to(server, monkeypatch)
        async with AsyncClient(tmp_path) as client:
            agent = Agent("talker", model=MODEL)
            session = await client.create_session("cancelled")
            work = asyncio.create_task(
                agent.run("Tell me a story.", session=session.id, run_id="run_1", client=client)
            )
            async with asyncio.timeout(30):
                await held.reached.wait()
            await client.runs.cancel("run_1", reason="enough")
            result = await work
            spent = (await client.get_session(session.id)).total_tokens
            after = await agent.run("Go on.", session=session.id, client=client)
    assert result.status == "cancelled"
    assert result.tokens_used.input > 0
    assert spent == result.tokens_used.total
    assert after.response == "Here."
    sent = server.requests[-1].json["messages"]
    assert [one["role"] for one in sent if one["role"] != "system"] == ["user", "user"]


async def test_an_answer_that_runs_out_of_time_reports_its_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeServer([Reply(text="never", gate=HoldPoint())], key=KEY) as server:
        _point_to(server, monkeypatch)
        async with AsyncClient(tmp_path) as client:
            agent = Agent("talker", model=MODEL, budget=Budget(max_wall_s=0.5))
            result = await agent.run("Tell me.", client=client, raise_on_failure=False)
    assert result.status == "failed"
    assert result.tokens_used.input > 0
