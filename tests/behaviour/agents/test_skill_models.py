"""The model that a skill names answers until the turn ends, and no other provider does."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Agent, AsyncClient
from holdfast.skills import Skill
from holdfast.testing.fake_server import FakeServer, Reply, ScriptedCall

KEY = "sk-test-3f9a8b7c6d5e4f3a2b1c"
LISTED = ("gpt-small", "gpt-large-2", "gpt-large-1")


async def ask_with_skill(
    server: FakeServer, place: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> list[str]:
    """Return which models answered: before the skill was loaded, after it, and a turn later."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    monkeypatch.setenv("AGENT_FORCE_CHAT_COMPLETIONS", "true")
    server.answers.extend(
        [
            Reply(calls=(ScriptedCall(name="skill", arguments='{"name": "tea"}'),)),
            Reply(text="Four minutes."),
            Reply(text="You are welcome."),
        ]
    )
    tea = Skill(name="tea", description="Make tea.", content="Boil water.", model=model)
    async with AsyncClient(place) as client:
        await client.skills.register(tea)
        agent = Agent("cook", model="openai:gpt-small", allowed_tools=["skill"])
        session = await client.create_session("tea")
        await agent.run("How long?", session=session.id, client=client)
        await agent.run("Thank you.", session=session.id, client=client)
    asked = [one for one in server.requests if one.path.endswith("/chat/completions")]
    return [one.json["model"] for one in asked]


@pytest.mark.parametrize("named", ["gpt-large-2", "openai:gpt-large-2", "large"])
async def test_the_model_of_a_skill_answers_until_the_turn_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    async with FakeServer(key=KEY, models=LISTED) as server:
        used = await ask_with_skill(server, tmp_path, monkeypatch, named)
    assert used == ["gpt-small", "gpt-large-2", "gpt-small"]


@pytest.mark.parametrize("named", ["anthropic:claude", "opus", "inherit", "ollama:qwen3:8b"])
async def test_a_skill_brings_no_other_provider_and_no_model_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test-3f9a8b7c6d5e4f3a2b1c")
    async with FakeServer(key=KEY, models=LISTED) as server:
        used = await ask_with_skill(server, tmp_path, monkeypatch, named)
    assert used == ["gpt-small"] * 3
