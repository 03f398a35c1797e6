"""What tools and prompts may ask the MCP client behind a call, and what an application offers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError
from pydantic import TypeAdapter
from served import Running, running
from test_mcp_face import MODES, connect

from holdfast import tool
from holdfast.errors import UsageError
from holdfast.server.mcp import McpContent, McpPrompt, McpResource, offer_content
from holdfast.server.mcp.replay import SessionEvents
from holdfast.tools import Peer, ToolContext, ask_folders, ask_form, ask_model, find_peer

FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
_ANSWER: Any = TypeAdapter(types.CallToolResult | types.InputRequiredResult)


@tool(effect="idempotent")
async def introduce(context: ToolContext) -> str:
    """Ask for a name, then for a sentence about it."""
    peer = find_peer(context)
    await peer.log("info", "begun")
    said = await peer.ask({"who": ask_form("Who are you?", FORM), "where": ask_folders()})
    name = said["who"]["content"]["name"]
    thought = await peer.ask({"thought": ask_model(f"Praise {name}")})
    context.report("nearly there", fraction=0.5)
    return f"{thought['thought']['content']['text']} {len(said['where']['roots'])}"


async def elicit(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"name": "Ada"})


async def think(_: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    said = types.TextContent(type="text", text="Ada is great.")
    return types.CreateMessageResult(role="assistant", content=said, model="theirs")


async def list_roots(_: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri="file:///w")])


def register(server: Running, *tools: Any) -> None:
    for one in tools:
        server.app.runtimes.operator.toolbox.registry.register(one)


@pytest.mark.parametrize("mode", MODES)
async def test_tool_asks_the_client_in_several_rounds(tmp_path: Path, mode: str) -> None:
    lines: list[Any] = []
    told: list[tuple[float, float | None]] = []

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        lines.append(params.data)

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total))

    abilities: dict[str, Any] = {
        "elicitation_callback": elicit,
        "sampling_callback": think,
        "list_roots_callback": list_roots,
        "logging_callback": log,
    }
    async with running(tmp_path) as server:
        register(server, introduce)
        async with connect(server, mode, **abilities) as client:
            done = await client.call_tool("introduce", {}, progress_callback=hear)
        assert done.content[0].text == "Ada is great. 1"
        assert (50.0, 100.0) in told
        assert lines == (["begun"] if mode == "legacy" else [])
        _, runs = await server.ask("GET", "/v1/runs")
        assert [one["status"] for one in runs["items"]] == ["completed"]


@pytest.mark.parametrize("mode", MODES)
async def test_client_that_cannot_be_asked_is_told_what_was_needed(
    tmp_path: Path, mode: str
) -> None:
    async with running(tmp_path) as server:
        register(server, introduce)
        async with connect(server, mode, elicitation_callback=elicit) as client:
            if mode == "legacy":
                refused = await client.call_tool("introduce", {})
                assert refused.is_error
                return
            with pytest.raises(MCPError) as failed:
                await client.call_tool("introduce", {})
            assert failed.value.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY


async def test_answers_of_one_client_are_of_no_use_to_another_or_when_changed(
    tmp_path: Path,
) -> None:
    abilities: dict[str, Any] = {
        "elicitation_callback": elicit,
        "sampling_callback": think,
        "list_roots_callback": list_roots,
    }
    async with running(tmp_path) as server:
        register(server, introduce)
        made = await server.ask(
            "POST", "/v1/keys", {"name": "k", "roles": ["admin"], "subject": "eve"}
        )
        call = types.CallToolRequest(
            params=types.CallToolRequestParams(name="introduce", arguments={})
        )
        async with connect(server, MODES[1], **abilities) as client:
            asked = await client.session.send_request(call, _ANSWER)
            state = asked.request_state
            for wrong in (state[:-4] + "AAAA", "x"):
                again = call.params.model_copy(update={"request_state": wrong})
                with pytest.raises(MCPError):
                    await client.session.send_request(types.CallToolRequest(params=again), _ANSWER)
        async with connect(server, MODES[1], made[1]["secret"], **abilities) as other:
            again = call.params.model_copy(update={"request_state": state})
            with pytest.raises(MCPError):
                await other.session.send_request(types.CallToolRequest(params=again), _ANSWER)


def make_content() -> McpContent:
    async def write(peer: Peer, tone: str) -> str:
        said = await peer.ask({"who": ask_form("Who?", FORM)})
        return f"Write {tone}ly to {said['who']['content']['name']}."

    return McpContent(
        resources=[
            McpResource(uri="notes://today", name="Today", read=lambda: "Rain."),
            McpResource(
                uri="notes://{day}/{part}",
                name="A day",
                media_type="application/octet-stream",
                read=lambda day, part, caller: f"{day} {part} {caller.subject}".encode(),
            ),
        ],
        prompts=[
            McpPrompt(
                name="letter",
                write=write,
                required=("tone",),
                complete=lambda _, typed: [one for one in ("kind", "cool") if typed in one],
            )
        ],
    )


@pytest.mark.parametrize("mode", MODES)
async def test_application_offers_resources_and_prompts(tmp_path: Path, mode: str) -> None:
    async with running(tmp_path) as server:
        offer_content(server.app, make_content())
        async with connect(server, mode, elicitation_callback=elicit) as client:
            names = [one.uri for one in (await client.list_resources()).resources]
            assert "notes://today" in names
            read = await client.read_resource("notes://today")
            assert read.contents[0].text == "Rain."
            blob = await client.read_resource("notes://monday/noon")
            assert blob.contents[0].blob
            with pytest.raises(MCPError):
                await client.read_resource("notes://monday/a/b")
            templates = (await client.list_resource_templates()).resource_templates
            assert "notes://{day}/{part}" in [one.uri_template for one in templates]
            got = await client.get_prompt("letter", {"tone": "kind"})
            assert got.messages[0].content.text == "Write kindly to Ada."
            with pytest.raises(MCPError):
                await client.get_prompt("letter", {})
            ref = types.PromptReference(name="letter")
            found = await client.complete(ref, {"name": "tone", "value": "co"})
            assert found.completion.values == ["cool"]


async def test_content_needs_its_scopes(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        offer_content(server.app, make_content())
        _, made = await server.ask("POST", "/v1/keys", {"name": "k", "scopes": ["runs:read"]})
        async with connect(server, MODES[1], made["secret"]) as client:
            assert (await client.list_resources()).resources == []
            with pytest.raises(MCPError):
                await client.read_resource("notes://today")
            with pytest.raises(MCPError):
                await client.get_prompt("letter", {"tone": "kind"})


async def subscribe(client: Client, uri: str) -> None:
    asked = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))
    await client.session.send_request(asked, types.EmptyResult)


@pytest.mark.parametrize("mode", MODES)
async def test_client_hears_that_a_conversation_has_grown(tmp_path: Path, mode: str) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def hear(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            heard.put_nowait(str(message.params.uri))

    async with running(tmp_path) as server:
        _, session = await server.ask("POST", "/v1/sessions", {"title": "s"})
        uri = f"holdfast://sessions/{session['id']}"
        async with connect(server, mode, message_handler=hear) as client:
            if mode == "legacy":
                await subscribe(client, uri)
                await server.run(session_id=session["id"])
                async with asyncio.timeout(20):
                    assert await heard.get() == uri
                with pytest.raises(MCPError):
                    await subscribe(client, "holdfast://sessions/ses_other")
                return
            async with client.listen(resource_subscriptions=[uri]) as events:
                await server.run(session_id=session["id"])
                async with asyncio.timeout(20):
                    event = await anext(aiter(events))
                assert event.uri == uri


def test_content_of_an_application_cannot_take_our_addresses() -> None:
    for uri in ("holdfast://sessions/x", "plain"):
        with pytest.raises(UsageError):
            McpContent(resources=[McpResource(uri=uri, name="x", read=lambda: "")])


async def test_events_of_a_session_are_bounded_and_cannot_be_guessed() -> None:
    kept = SessionEvents()
    message = types.JSONRPCNotification(jsonrpc="2.0", method="x", params={"a": "b" * 10_000})
    first = await kept.store_event("1", None)
    second = await kept.store_event("1", message)
    assert first != second
    sent: list[Any] = []

    async def send(event: Any) -> None:
        sent.append(event)

    assert await kept.replay_events_after(first, send) == "1"
    assert len(sent) == 1
    assert await kept.replay_events_after("1", send) is None
    for _ in range(200):
        await kept.store_event("2", message)
    assert await kept.replay_events_after(first, send) is None
    assert len(sent) == 1
