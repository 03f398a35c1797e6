"""Our model, lent to an MCP server in the midst of a call: within rules and budgets, recorded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.server.lowlevel import Server
from mcp_kit import client_for, served

from holdfast import Agent, AsyncClient
from holdfast.messages import ToolPart
from holdfast.policy import Budget
from holdfast.testing import ScriptedModel, tool_call


@pytest.fixture(scope="module")
def asking() -> Iterator[str]:
    async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
        schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        return types.ListToolsResult(tools=[types.Tool(name="ponder", input_schema=schema)])

    async def call_tool(
        _: Any, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        said = (params.input_responses or {}).get("thought")
        if said is None:
            text = types.TextContent(type="text", text=str((params.arguments or {})["text"]))
            asked = types.CreateMessageRequestParams(
                messages=[types.SamplingMessage(role="user", content=text)], max_tokens=50
            )
            return types.InputRequiredResult(
                input_requests={"thought": types.CreateMessageRequest(params=asked)}
            )
        heard = types.TextContent(type="text", text=f"heard: {said.content.text}")
        return types.CallToolResult(content=[heard])

    server = Server("asking", on_list_tools=list_tools, on_call_tool=call_tool)
    with served(server.streamable_http_app()) as port:
        yield f"http://127.0.0.1:{port}/mcp"


def at(url: str, **options: Any) -> dict[str, Any]:
    return {"far": {"transport": "http", "url": url, "timeout_s": 20, **options}}


def make_agent(**options: Any) -> Agent:
    model = ScriptedModel(tool_call("mcp__far__ponder", text="Why?"), "Because.", "It is over.")
    return Agent("asker", model=model, allowed_tools=["mcp__far__ponder"], **options)


async def find_calls(client: AsyncClient, session_id: str) -> list[ToolPart]:
    page = await client.messages.list(session_id)
    return [call for message in page.items for call in message.tool_calls]


async def test_server_may_ask_our_model_in_a_run_below_the_call(tmp_path: Path, asking: str):
    async with client_for(tmp_path, at(asking, sampling=True)) as client:
        session = await client.sessions.create("s")
        await client.agents.register(make_agent())
        result = await client.runs.execute("asker", session.id, "Go.")
        [call] = await find_calls(client, session.id)
        assert (call.error, call.output) == ("", "heard: Because.")
        assert result.response == "It is over."
        [child] = await client.runs.children(result.run_id)
        assert child.agent == "mcp_sampling"


@pytest.mark.parametrize("kind", ["not lent", "a rule", "a budget"])
async def test_server_that_may_not_ask_is_refused(tmp_path: Path, asking: str, kind: str):
    rule = {"permission": "mcp_sampling", "pattern": "far", "action": "deny"}
    options: dict[str, Any] = {}
    if kind == "a rule":
        options = {"permission": [rule]}
    if kind == "a budget":
        options = {"budget": Budget(max_calls=1)}
    async with client_for(tmp_path, at(asking, sampling=kind != "not lent")) as client:
        session = await client.sessions.create("s")
        model = ScriptedModel(tool_call("mcp__far__ponder", text="Why?"), "It is over.")
        agent = make_agent(**options)
        agent.model = model
        result = await client.runs.execute(agent, session.id, "Go.")
        [call] = await find_calls(client, session.id)
        assert "heard" not in (call.output or "")
        assert call.state == "error"
        assert result.status in ("completed", "failed")
