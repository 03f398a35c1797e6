"""Holdfast as an MCP server, with the official SDK's client as the peer, in both eras."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from pydantic import TypeAdapter
from served import Running, running

from holdfast import Agent, tool
from holdfast.testing import ScriptedModel, tool_call

MODES = ["legacy", "2026-07-28"]


@tool(permission="ask")
def erase(name: str) -> str:
    """Erase something."""
    return f"erased {name}"


def make_agent(name: str, *answers: Any) -> Agent:
    return Agent(name, model=ScriptedModel(*answers), tools=[erase], description=f"The {name}.")


@contextlib.asynccontextmanager
async def connect(server: Running, mode: str, key: str = "", **more: Any) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {key or server.token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
        transport = streamable_http_client(f"{server.url}/mcp", http_client=http)
        async with Client(transport, mode=mode, **more) as client:
            yield client


@pytest.mark.parametrize("mode", MODES)
async def test_agents_are_tools_that_tell_how_far_they_are(tmp_path: Path, mode: str) -> None:
    agent = make_agent("helper", tool_call("todoread"), "It is done.", "Still here.")
    async with running(tmp_path, agents=[agent]) as server, connect(server, mode) as client:
        names = [one.name for one in (await client.list_tools()).tools]
        assert "ask_helper" in names
        told: list[str] = []

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            told.append(message or "")

        done = await client.call_tool("ask_helper", {"message": "Do it."}, progress_callback=hear)
        assert done.content[0].text == "It is done."
        assert done.structured_content["status"] == "completed"
        assert "It is done." in told
        session_id = done.structured_content["session_id"]
        more = await client.call_tool("ask_helper", {"message": "And?", "session_id": session_id})
        assert more.structured_content["session_id"] == session_id
        wrong = await client.call_tool("ask_nobody", {"message": "x"})
        assert wrong.is_error
        with pytest.raises(MCPError):
            await client.call_tool("no_such_tool", {})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("decision", ["allow", "deny"])
async def test_a_person_behind_the_client_is_asked(
    tmp_path: Path, mode: str, decision: str
) -> None:
    agent = make_agent("helper", tool_call("erase", name="disk"), "Over.")
    asked: list[str] = []

    async def elicit(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": decision})

    async with running(tmp_path, agents=[agent]) as server:
        async with connect(server, mode, elicitation_callback=elicit) as client:
            done = await client.call_tool("ask_helper", {"message": "Erase it."})
        assert done.structured_content["status"] == "completed"
        assert len(asked) == 1
        assert "erase" in asked[0]
        assert "disk" in asked[0]
        session_id = done.structured_content["session_id"]
        _, found = await server.ask("GET", f"/v1/sessions/{session_id}/messages")
        [call] = [p for m in found["items"] for p in m["parts"] if p["type"] == "tool"]
        assert (call["state"] == "completed") == (decision == "allow")


async def test_the_state_of_a_question_is_of_use_to_its_client_alone(tmp_path: Path) -> None:
    agents = [make_agent(name, tool_call("erase", name="disk"), "Over.") for name in ("a", "b")]
    states: list[str] = []

    async def elicit(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"decision": "allow"})

    async with running(tmp_path, agents=agents) as server:
        made = await server.ask(
            "POST", "/v1/keys", {"name": "k", "roles": ["admin"], "subject": "eve"}
        )
        async with connect(server, MODES[1], elicitation_callback=elicit) as client:
            call = _call("ask_a", {"message": "Erase it."})
            asked = await client.session.send_request(call, _ANSWER)
            assert isinstance(asked, types.InputRequiredResult)
            states.append(asked.request_state or "")
            _, runs = await server.ask("GET", "/v1/runs")
            [run] = runs["items"]
            assert run["id"] not in states[0]
            for state, tool_name in ((run["id"], "ask_a"), (states[0], "ask_b"), ("x", "ask_a")):
                again = _call(tool_name, {"message": "x"}, request_state=state)
                with pytest.raises(MCPError, match="request_state"):
                    await client.session.send_request(again, _ANSWER)
        async with connect(server, MODES[1], made[1]["secret"]) as other:
            again = _call("ask_a", {"message": "x"}, request_state=states[0])
            with pytest.raises(MCPError, match="request_state"):
                await other.session.send_request(again, _ANSWER)
        _, found = await server.ask("GET", f"/v1/runs/{run['id']}")
        assert found["status"] == "parked"


_ANSWER: Any = TypeAdapter(types.CallToolResult | types.InputRequiredResult)


def _call(name: str, arguments: dict[str, Any], **more: Any) -> types.CallToolRequest:
    params = types.CallToolRequestParams(name=name, arguments=arguments, **more)
    return types.CallToolRequest(params=params)


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_that_cannot_be_asked_has_such_calls_refused(
    tmp_path: Path, mode: str
) -> None:
    agent = make_agent("helper", tool_call("erase", name="disk"), "I could not.")
    async with running(tmp_path, agents=[agent]) as server, connect(server, mode) as client:
        done = await client.call_tool("ask_helper", {"message": "Erase it."})
        assert done.content[0].text == "I could not."


@pytest.mark.parametrize("mode", MODES)
async def test_sessions_and_files_are_resources_and_templates_are_prompts(
    tmp_path: Path, mode: str
) -> None:
    async with running(tmp_path, agents=[make_agent("helper", "Hello.")]) as server:
        async with connect(server, mode) as client:
            done = await client.call_tool("ask_helper", {"message": "Hi."})
            body = {"name": "note.txt", "data": "aGVsbG8="}
            status, saved = await server.ask("POST", "/v1/artifacts", body)
            assert status == 201, saved
            uris = [str(one.uri) for one in (await client.list_resources()).resources]
            session_uri = f"holdfast://sessions/{done.structured_content['session_id']}"
            assert session_uri in uris
            read = (await client.read_resource(session_uri)).contents[0]
            assert [one["text"] for one in json.loads(read.text)] == ["Hi.", "Hello."]
            file_uri = f"holdfast://artifacts/{saved['id']}"
            assert file_uri in uris
            assert (await client.read_resource(file_uri)).contents[0].text == "hello"
            for wrong in ("holdfast://sessions/ses_0", "file:///etc/passwd"):
                with pytest.raises(MCPError):
                    await client.read_resource(wrong)
            prompts = (await client.list_prompts()).prompts
            research = next(one for one in prompts if one.name == "research")
            given = {one.name: "whales" for one in research.arguments or () if one.required}
            made = await client.get_prompt("research", given)
            assert "whales" in made.messages[0].content.text
            assert len((await client.list_resource_templates()).resource_templates) == 2


async def test_cancelling_a_call_ends_its_run(tmp_path: Path) -> None:
    reached = asyncio.Event()

    @tool
    async def hang() -> str:
        """Wait for ever."""
        reached.set()
        await asyncio.Event().wait()
        return ""

    agent = Agent("helper", model=ScriptedModel(tool_call("hang"), "never"), tools=[hang])
    async with running(tmp_path, agents=[agent]) as server:
        async with connect(server, "legacy") as client:
            call = asyncio.create_task(client.call_tool("ask_helper", {"message": "Wait."}))
            await reached.wait()
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            async with asyncio.timeout(10):
                while True:
                    _, found = await server.ask("GET", "/v1/runs")
                    if found["items"][0]["status"] == "cancelled":
                        break


async def test_keys_hold_for_mcp_as_for_everything(tmp_path: Path) -> None:
    agents = [make_agent("helper", "One.", "Two."), make_agent("other", "Three.")]
    async with running(tmp_path, agents=agents) as server:
        keys = {}
        for name, scopes in {
            "ann": ["runs:write:helper", "runs:read", "agents:read", "sessions:read"],
            "bob": ["runs:*", "agents:read", "sessions:read"],
        }.items():
            body = {"name": name, "subject": name, "scopes": scopes}
            _, made = await server.ask("POST", "/v1/keys", body)
            keys[name] = made["secret"]
        async with connect(server, "legacy", keys["ann"]) as client:
            names = [one.name for one in (await client.list_tools()).tools]
            assert "ask_helper" in names
            assert "ask_other" not in names
            done = await client.call_tool("ask_helper", {"message": "x"})
            with pytest.raises(MCPError):
                await client.call_tool("ask_other", {"message": "x"})
        uri = f"holdfast://sessions/{done.structured_content['session_id']}"
        async with connect(server, "legacy", keys["bob"]) as client:
            assert uri not in [str(one.uri) for one in (await client.list_resources()).resources]
            with pytest.raises(MCPError):
                await client.read_resource(uri)
            session_id = done.structured_content["session_id"]
            stolen = await client.call_tool(
                "ask_helper", {"message": "x", "session_id": session_id}
            )
            assert stolen.is_error


async def test_who_has_no_key_learns_where_to_get_one(server: Running) -> None:
    headers = {"Authorization": "Bearer wrong"}
    async with server.http.post(f"{server.url}/mcp", json={}, headers=headers) as refused:
        assert refused.status == 401
        assert "resource_metadata" in refused.headers["www-authenticate"]
    path = "/.well-known/oauth-protected-resource/mcp"
    status, told = await server.ask("GET", path, headers=headers)
    assert status == 200
    assert told["resource"].endswith("/mcp")


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_on_stdio_is_served_by_the_command(tmp_path: Path, mode: str) -> None:
    words = ["-m", "holdfast", "--state-dir", str(tmp_path / "state"), "mcp", "serve"]
    program = StdioServerParameters(
        command=sys.executable, args=[*words, "--tool", "read"], cwd=str(tmp_path)
    )
    (tmp_path / "note.txt").write_text("forty-two")
    async with Client(program, mode=mode) as client:
        names = [one.name for one in (await client.list_tools()).tools]
        assert "ask_build" in names
        assert "read" in names
        assert "bash" not in names
        done = await client.call_tool("ask_build", {"message": "What is 15 times 23?"})
        assert "345" in done.content[0].text
        read = await client.call_tool("read", {"file_path": "note.txt"})
        assert "forty-two" in read.content[0].text, read
