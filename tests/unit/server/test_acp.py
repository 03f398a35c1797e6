"""Holdfast as an agent of editors, with the official SDK's client as the peer."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import acp
import pytest
from acp import RequestError, schema

from holdfast import Agent, tool
from holdfast.messages import FilePart
from holdfast.operations import OWNER
from holdfast.server import create_app
from holdfast.server.acp.agent import EditorAgent
from holdfast.settings import load_settings
from holdfast.testing import ScriptedModel, tool_call

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * 20).decode()


@tool(permission="ask")
def erase(name: str) -> str:
    """Erase something."""
    return f"erased {name}"


class Editor(acp.Client):
    """Hears updates, and answers permission requests in a fixed way."""

    def __init__(self, choose: str | None = "allow") -> None:
        self.choose = choose
        self.updates: list[Any] = []
        self.asked: list[tuple[schema.ToolCallUpdate, list[str]]] = []
        self.on_update: Callable[[Any], None] = lambda _: None

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)
        self.on_update(update)

    async def request_permission(
        self, session_id: str, tool_call: Any, options: Any, **_: Any
    ) -> schema.RequestPermissionResponse:
        ids = [one.option_id for one in options]
        self.asked.append((tool_call, ids))
        if self.choose is None:
            return schema.RequestPermissionResponse(
                outcome=schema.DeniedOutcome(outcome="cancelled")
            )
        chosen = self.choose if self.choose in ids else ids[0]
        outcome = schema.AllowedOutcome(outcome="selected", option_id=chosen)
        return schema.RequestPermissionResponse(outcome=outcome)

    def on_connect(self, conn: Any) -> None:
        """Nothing to do."""

    def texts(self, kind: str = "agent_message_chunk") -> str:
        found = [one for one in self.updates if one.session_update == kind]
        return "".join(one.content.text for one in found)

    def of(self, kind: str) -> list[Any]:
        return [one for one in self.updates if one.session_update == kind]


@contextlib.asynccontextmanager
async def connected(
    folder: Path, editor: Editor, *agents: Agent
) -> AsyncIterator[tuple[acp.Agent, Any]]:
    """An editor and our agent, at the two ends of a pair of sockets."""
    overrides = {"storage.state_dir": str(folder / "state"), "workspace": str(folder)}
    app = create_app(load_settings(overrides=overrides).settings, agents=agents)
    await app.open()
    ours, theirs = socket.socketpair()
    our_reader, our_writer = await asyncio.open_connection(sock=ours)
    reader, writer = await asyncio.open_connection(sock=theirs)
    try:
        runtime = await app.runtimes.runtime_for(OWNER)
        default = agents[0].name if agents else "build"
        agent = EditorAgent(runtime, default)
        serving = asyncio.ensure_future(acp.run_agent(agent, our_writer, our_reader))
        conn = acp.connect_to_agent(editor, writer, reader)
        try:
            started = await conn.initialize(acp.PROTOCOL_VERSION)
            assert started.agent_capabilities.load_session
            yield conn, runtime
        finally:
            await conn.close()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
    finally:
        for one in (our_writer, writer):
            one.close()
        await app.close()


def make_agent(*answers: Any, **more: Any) -> Agent:
    return Agent("helper", model=ScriptedModel(*answers), tools=[erase], **more)


@pytest.mark.parametrize("choose", ["allow", "deny", None])
async def test_what_needs_consent_is_asked_in_the_editor(
    tmp_path: Path, choose: str | None
) -> None:
    editor = Editor(choose)
    agent = make_agent(tool_call("erase", name="disk"), "It is over.")
    async with connected(tmp_path, editor, agent) as (conn, _):
        session = await conn.new_session(cwd=str(tmp_path), mcp_servers=[])
        done = await conn.prompt(
            session_id=session.session_id, prompt=[acp.text_block("Erase it.")]
        )
        assert done.stop_reason == "end_turn"
        assert editor.texts() == "It is over."
        [(asked, ids)] = editor.asked
        assert asked.raw_input == {"name": "disk"}
        assert set(ids) == {"allow", "always", "deny"}
        [begun], [ended] = editor.of("tool_call"), editor.of("tool_call_update")
        assert begun.tool_call_id == ended.tool_call_id == asked.tool_call_id
        assert ended.status == ("completed" if choose == "allow" else "failed")


async def test_always_allowing_asks_once(tmp_path: Path) -> None:
    editor = Editor("always")
    calls = [tool_call("erase", name="disk"), "One.", tool_call("erase", name="disk"), "Two."]
    async with connected(tmp_path, editor, make_agent(*calls)) as (conn, _):
        session = await conn.new_session(cwd=str(tmp_path), mcp_servers=[])
        for _ in range(2):
            await conn.prompt(session_id=session.session_id, prompt=[acp.text_block("Erase it.")])
        assert editor.texts() == "One.Two."
        assert len(editor.asked) == 1


async def test_changes_are_shown_as_diffs_with_their_place_and_todos_as_the_plan(
    tmp_path: Path,
) -> None:
    todos = [{"content": "Write", "status": "in_progress", "priority": "high"}]
    model = ScriptedModel(
        tool_call("write", file_path="a.txt", content="new"),
        tool_call("edit", file_path="a.txt", old_string="new", new_string="newer"),
        tool_call("todowrite", todos=todos),
        "Done.",
    )
    agent = Agent("writer", model=model, allowed_tools=["write", "edit", "todowrite"])
    editor = Editor("allow")
    async with connected(tmp_path, editor, agent) as (conn, _):
        session = await conn.new_session(cwd=str(tmp_path), mcp_servers=[])
        await conn.prompt(session_id=session.session_id, prompt=[acp.text_block("Write.")])
        place = str(tmp_path / "a.txt")
        write, edit, _ = editor.of("tool_call_update")
        assert (write.content[0].path, write.content[0].new_text) == (place, "new")
        assert (edit.content[0].old_text, edit.content[0].new_text) == ("new", "newer")
        assert write.locations[0].path == place
        [plan] = editor.of("plan")
        entry = plan.entries[0]
        assert (entry.content, entry.status, entry.priority) == ("Write", "in_progress", "high")
        assert (tmp_path / "a.txt").read_text() == "newer"


async def test_session_is_loaded_listed_and_copied(tmp_path: Path) -> None:
    editor = Editor("allow")
    agent = make_agent(tool_call("erase", name="disk"), "First.", "Second.")
    async with connected(tmp_path, editor, agent) as (conn, _):
        session = await conn.new_session(cwd=str(tmp_path), mcp_servers=[])
        id = session.session_id
        await conn.prompt(session_id=id, prompt=[acp.text_block("Hello")])
    again = Editor("allow")
    async with connected(tmp_path, again, make_agent("Second.")) as (conn, _):
        loaded = await conn.load_session(cwd=str(tmp_path), session_id=id, mcp_servers=[])
        assert loaded.modes.current_mode_id == "helper"
        assert again.texts("user_message_chunk") == "Hello"
        assert again.texts() == "First."
        assert [one.status for one in again.of("tool_call_update")] == ["completed"]
        await conn.prompt(session_id=id, prompt=[acp.text_block("And?")])
        assert again.texts() == "First.Second."
        listed = await conn.list_sessions(cwd=str(tmp_path))
        assert [one.session_id for one in listed.sessions] == [id]
        with pytest.raises(RequestError):
            await conn.load_session(cwd=str(tmp_path), session_id="ses_no", mcp_servers=[])


async def test_cancelling_ends_the_run_and_says_so(tmp_path: Path) -> None:
    begun = asyncio.Event()
    release = asyncio.Event()

    @tool(effect="read")
    async def wait() -> str:
        """Wait."""
        begun.set()
        await release.wait()
        return "too late"

    agent = Agent("slow", model=ScriptedModel(tool_call("wait"), "Over."), tools=[wait])
    editor = Editor()
    async with connected(tmp_path, editor, agent) as (conn, runtime):
        session = await conn.new_session(cwd=str(tmp_path), mcp_servers=[])
        id = session.session_id
        asked = asyncio.ensure_future(conn.prompt(session_id=id, prompt=[acp.text_block("Go.")]))
        async with asyncio.timeout(20):
            await begun.wait()
            with pytest.raises(RequestError):
                await conn.prompt(session_id=id, prompt=[acp.text_block("Meanwhile?")])
            await conn.cancel(session_id=id)
            done = await asked
        assert done.stop_reason == "cancelled"
        [run] = await runtime.storage.runs()
        assert run.status == "cancelled"


async def test_modes_are_agents_and_commands_are_offered(tmp_path: Path) -> None:
    editor = Editor()
    other = Agent("other", model=ScriptedModel("I am the other one."), tools=[])
    async with connected(tmp_path, editor, make_agent("Me."), other) as (conn, _):
        session = await conn.new_session(cwd=str(tmp_path), mcp_servers=[])
        id = session.session_id
        known = {one.id for one in session.modes.available_modes}
        assert {"helper", "other", "build", "plan"} <= known
        assert "explore" not in known
        await conn.set_session_mode(session_id=id, mode_id="other")
        with pytest.raises(RequestError):
            await conn.set_session_mode(session_id=id, mode_id="nobody")
        await conn.prompt(session_id=id, prompt=[acp.text_block("Who?")])
        assert editor.texts() == "I am the other one."
        [offered] = editor.of("available_commands_update")
        assert [one.name for one in offered.available_commands] == ["compact", "undo", "status"]
        await conn.prompt(session_id=id, prompt=[acp.text_block("/status")])
        assert "2 messages" in editor.texts()
        await conn.prompt(session_id=id, prompt=[acp.text_block("/undo")])
        assert "taken back" in editor.texts()


async def test_question_of_an_agent_is_answered_by_choice_or_by_the_next_prompt(
    tmp_path: Path,
) -> None:
    choice = {"question": "Which?", "options": [{"label": "red"}, {"label": "blue"}]}
    model = ScriptedModel(
        tool_call("question", questions=[choice]),
        "Noted.",
        tool_call("question", questions=[{"question": "Why?"}]),
        "Understood.",
    )
    rule = {"permission": "question", "pattern": "*", "action": "allow"}
    agent = Agent("asker", model=model, permission=[rule])
    editor = Editor("blue")
    async with connected(tmp_path, editor, agent) as (conn, _):
        session = await conn.new_session(cwd=str(tmp_path), mcp_servers=[])
        id = session.session_id
        await conn.prompt(session_id=id, prompt=[acp.text_block("Ask.")])
        assert editor.asked[0][1] == ["red", "blue"]
        assert "blue" in editor.of("tool_call_update")[0].content[0].content.text
        await conn.prompt(session_id=id, prompt=[acp.text_block("Again.")])
        assert editor.texts().endswith("Why?")
        await conn.prompt(session_id=id, prompt=[acp.text_block("Because it is night.")])
        assert "Because it is night." in editor.of("tool_call_update")[-1].content[0].content.text
        assert editor.texts().endswith("Understood.")


async def test_pictures_and_files_come_along_and_wrong_ones_are_refused(tmp_path: Path) -> None:
    model = ScriptedModel("Seen.")
    agent = Agent("eye", model=model, tools=[])
    editor = Editor()
    async with connected(tmp_path, editor, agent) as (conn, _):
        session = await conn.new_session(cwd=str(tmp_path), mcp_servers=[])
        id = session.session_id
        for wrong in ([], [acp.image_block("???", "image/png")]):
            with pytest.raises(RequestError):
                await conn.prompt(session_id=id, prompt=wrong)
        text = acp.embedded_text_resource(uri=f"file://{tmp_path}/my%20a.py", text="x = 1")
        await conn.prompt(
            session_id=id,
            prompt=[
                acp.text_block("Look."),
                acp.image_block(PNG, "image/png"),
                acp.resource_block(text),
                acp.resource_link_block("b.py", f"file://{tmp_path}/b.py"),
            ],
        )
        [request] = model.requests
        told = request.messages[-1]
        assert f'<file path="{tmp_path}/my a.py">' in told.text
        assert f"[b.py]({tmp_path}/b.py)" in told.text
        assert any(
            part.media_type == "image/png" for part in told.parts if isinstance(part, FilePart)
        )
        assert editor.texts() == "Seen."
