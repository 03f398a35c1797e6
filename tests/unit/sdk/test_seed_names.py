"""The names that people bring along: each is a real object, or the same as ours. (5.16)"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import Agent, AgentResult, AsyncClient, Client, ToolContext
from holdfast.agents import find_template, transfer_to
from holdfast.errors import HoldfastError, NotFound, RunFailed, UsageError
from holdfast.messages import MediaContent, make_user_content
from holdfast.sdk import (
    AgentExecutor,
    AgentOutput,
    AISession,
    BaseAgent,
    MessageStorage,
    OpenCodeAsyncClient,
    OpenCodeSyncClient,
    ProviderID,
    SDKConfig,
    SessionResources,
    SessionStorage,
    SkillLoader,
    Tool,
)
from holdfast.testing import ScriptedModel, make_tool_context, tool_call
from holdfast.tools import Tool as DefinedTool
from holdfast.tools import ToolRegistry, ToolResult
from holdfast.tools.gate import DoomLoop


@pytest.fixture
async def client(tmp_path):
    async with AsyncClient(tmp_path / "state") as client:
        yield client


class Calculator(Tool):
    """Adds."""

    id = "calculator"
    description = "Add two numbers."
    effect = "read"

    async def execute(self, a: float, b: float) -> float:
        return a + b


class Weather(Tool):
    """Says what the weather is."""

    id = "weather"

    def parameters(self) -> dict[str, Any]:  # type: ignore[override]
        city = {"type": "string"}
        return {"type": "object", "properties": {"city": city}, "required": ["city"]}

    def execute(self, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        return ToolResult(f"rain in {args['city']} {bool(ctx.workspace)}")


def test_synonyms_are_the_same_objects():
    assert OpenCodeAsyncClient is AsyncClient
    assert OpenCodeSyncClient is Client
    assert AgentOutput is AgentResult
    assert issubclass(Tool, DefinedTool)
    assert {f"{ProviderID.OPENAI}"} == {"openai"}
    assert make_user_content([MediaContent(b"hello")])


async def test_a_tool_is_a_class_to_derive_from(client, tmp_path):
    model = ScriptedModel(
        [tool_call("calculator", a=1, b=2), tool_call("weather", city="Oslo")], "done"
    )
    agent = Agent("helper", model=model, tools=[Calculator(), Weather()])
    await agent.run("go", client=client)
    calls = model.requests[1].messages[-1].tool_calls
    assert [call.output for call in calls] == ["3.0", "rain in Oslo True"]
    assert Calculator().spec.description == "Add two numbers."
    assert Weather().description == "Says what the weather is."
    assert ToolRegistry([Calculator(), Weather()]).names() == {"calculator", "weather"}
    with pytest.raises(HoldfastError):
        Weather().validate({"town": "Oslo"})
    outcome = await Calculator().call({"a": 1.0, "b": 1.0}, make_tool_context(tmp_path))
    assert outcome.output == "2.0"


def test_a_class_that_cannot_be_a_tool_is_refused():
    class Idle(Tool):
        """Does nothing."""

    class Odd(Tool):
        """Has no schema."""

        parameters = {"type": "nonsense"}  # type: ignore[assignment]

        def execute(self, args: dict[str, Any]) -> str:
            return ""

    for kind in (Idle, Odd):
        with pytest.raises(UsageError):
            kind()


async def test_a_config_opens_clients_and_shows_itself(tmp_path):
    config = SDKConfig(
        storage_path=tmp_path / "state",
        project_dir=tmp_path,
        model="offline",
        auto_confirm=True,
        settings={"memory.remember_conversations": "off"},
    )
    assert config.as_dict() == {
        "storage_path": str(tmp_path / "state"),
        "project_dir": str(tmp_path),
        "model": "offline",
        "auto_confirm": True,
        "settings": {"memory.remember_conversations": "off"},
    }
    assert SDKConfig().as_dict()["storage_path"] is None
    async with config.open_async() as client:
        session = await client.create_session("work")
        assert session.directory == str(tmp_path)
        assert client.approver is not None
    assert SDKConfig(storage_path=tmp_path / "state").open_sync().approver is None


async def test_a_session_answers_messages_and_keeps_them(client):
    session = await client.create_session("talk")
    agent = Agent("friend", model=ScriptedModel("one", "two"))
    talk = AISession(client, session, agent)
    assert (await talk.process_message("hi")).response == "one"
    items = [item async for item in talk.stream_message("again")]
    assert isinstance(items[-1], AgentResult)
    assert [m.text for m in await talk.read_messages()] == ["hi", "one", "again", "two"]
    assert AISession(client, session.id).session_id == session.id


async def test_storages_work_on_the_one_journal(client):
    sessions, messages = SessionStorage(client), MessageStorage(client)
    session = await sessions.create_session("work", metadata={"team": "blue"})
    assert (await sessions.update_session(session.id, title="more")).title == "more"
    assert [one.id for one in await sessions.list_sessions()] == [session.id]
    for number in range(3):
        last = await messages.add_message(session.id, "user", f"note {number}")
    assert [m.text for m in await messages.list_messages(session.id)][-1] == "note 2"
    assert (await messages.get_message(session.id, last.id)).text == "note 2"
    await messages.delete_message(session.id, last.id)
    assert len(await messages.list_messages(session.id)) == 2
    await sessions.delete_session(session.id)
    with pytest.raises(NotFound):
        await sessions.get_session(session.id)


async def test_skills_are_discovered_and_loaded(client, tmp_path):
    folder = tmp_path / ".agents" / "skills" / "greet"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: greet\ndescription: Greets.\n---\nSay hello.\n")
    await client.skills.trust("greet", tmp_path)
    loader = SkillLoader(client, tmp_path)
    assert [skill.name for skill in await loader.discover_skills()] == ["greet"]
    assert (await loader.load_skill("greet")).description == "Greets."
    with pytest.raises(NotFound):
        await loader.load_skill("other")


async def test_the_executor_uses_real_sessions(client):
    executor = AgentExecutor(client)
    session = await client.create_session("real")
    agent = Agent("friend", model=ScriptedModel("hello"))
    result = await executor.execute_agent(agent, "hi", session.id)
    assert (result.response, result.session_id) == ("hello", session.id)


class Careful(BaseAgent[None]):
    """Refuses shouting, and turns failures into words."""

    def validate_input(self, message: Any) -> None:
        super().validate_input(message)
        if isinstance(message, str) and message.isupper():
            raise UsageError(detail="Do not shout.")

    async def handle_error(self, error: HoldfastError) -> AgentResult[None]:
        return AgentResult(agent_name=self.agent.name, response=f"sorry: {error.code}")


async def test_a_base_agent_checks_runs_and_handles_errors(client):
    refused = UsageError(detail="no")
    agent = Careful(Agent("friend", model=ScriptedModel("hello", refused)), client)
    assert await agent.get_conversation() == ()
    for wrong in ("", "HEY"):
        with pytest.raises(UsageError):
            await agent.execute(wrong)
    assert (await agent.execute("hi")).response == "hello"
    assert (await agent.execute("hi again")).response == "sorry: run.failed"
    plain: BaseAgent[None] = BaseAgent(Agent("x", model=ScriptedModel(refused)), client)
    with pytest.raises(RunFailed):
        await plain.execute("hi")


async def test_a_base_agent_has_a_conversation(client):
    agent: BaseAgent[None] = BaseAgent(Agent("friend", model=ScriptedModel("a", "b")), client)
    await agent.add_message("user", "a note")
    await agent.execute("one")
    await agent.execute("two")
    said = [message.text for message in await agent.get_conversation()]
    assert said == ["a note", "one", "a", "two", "b"]
    assert await agent.trim_conversation(1) == 3
    assert [message.text for message in await agent.get_conversation()] == ["two", "b"]
    before = agent.session_id
    await agent.clear_conversation()
    assert await agent.get_conversation() == ()
    assert (await client.sessions.get(before)).state == "archived"
    await agent.clear_conversation()


async def test_resources_of_a_session_are_closed_when_it_ends(client):
    log: list[str] = []

    @contextlib.asynccontextmanager
    async def browser() -> AsyncIterator[str]:
        log.append("open")
        yield "browser"
        log.append("closed")

    async with SessionResources(client) as resources:
        first, second = [await client.create_session(name) for name in ("a", "b")]
        assert await resources.open(first.id, "browser", browser) == "browser"
        assert await resources.open(first.id, "browser", browser) == "browser"
        await resources.add_cleanup(first.id, lambda session_id: log.append("cleaned"))
        await resources.add_cleanup(second.id, _note_later(log))
        with pytest.raises(NotFound):
            await resources.open("ses_none", "browser", browser)
        await client.archive_session(first.id)
        await client.events.settle()
        assert log == ["open", "cleaned", "closed"]
        await client.delete_session(second.id)
        await client.events.settle()
        assert log[3:] == ["later"]
        third = await client.create_session("c")
        await resources.open(third.id, "browser", browser)
    assert log[4:] == ["open", "closed"]


def _note_later(log: list[str]) -> Any:
    async def cleanup(session_id: str) -> None:
        log.append("later")

    return cleanup


class Summary(BaseModel):
    """What a job comes to."""

    words: int


async def test_a_template_is_executed_and_its_result_has_its_type(client, monkeypatch):
    chat = find_template("chat")
    typed = replace(chat, output=Summary)
    model = ScriptedModel('{"words": 3}')
    monkeypatch.setattr(type(chat), "agent", lambda self, *, model="": _make_agent(self))
    monkeypatch.setitem(globals(), "_MODEL", model)
    result = await typed.execute(client, {"message": "count"})
    assert result.output == Summary(words=3)
    with pytest.raises(UsageError):
        await typed.execute(client, {"nonsense": 1})


_MODEL: Any = None


def _make_agent(template: Any) -> Agent:
    return Agent("chat", model=_MODEL, output=template.output)


async def test_a_result_says_who_it_was_handed_to(client):
    await client.register_agent(Agent("billing", model=ScriptedModel("refunded")))
    model = ScriptedModel(tool_call("transfer_to", agent="billing", message="a refund"))
    desk = Agent("desk", model=model, tools=[transfer_to(["billing"])])
    result = await desk.run("go", client=client)
    assert result.transfer_to == "billing"
    assert result.handed_to is not None
    assert (await client.runs.get(result.handed_to.run_id)).agent == "billing"
    plain = await Agent("x", model=ScriptedModel("a")).run("go", client=client)
    assert (plain.transfer_to, plain.handed_to) == ("", None)


def test_a_doom_loop_can_be_looked_for_without_counting():
    doom = DoomLoop()
    for _ in range(2):
        assert not doom.would_loop("look", {"a": 1})
        assert not doom.count_and_check("look", {"a": 1})
    assert doom.would_loop("look", {"a": 1})
    assert doom.would_loop("look", {"a": 1})
    assert not doom.would_loop("look", {"a": 2})


async def test_providers_are_listed_by_the_client(client):
    assert "offline" in {one.name for one in await client.providers.list()}


def test_paths_are_taken_as_text(tmp_path: Path):
    assert SDKConfig(storage_path=str(tmp_path)).as_dict()["storage_path"] == str(tmp_path)
