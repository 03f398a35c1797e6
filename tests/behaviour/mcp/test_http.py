"""Tools of an MCP server at an address: called through the gate, told apart from ours."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp_kit import answering, client_for, served
from mcp_server import make_server

from holdfast import Agent, AsyncClient
from holdfast.errors import McpAuthFailed, McpFailed, NotFound, PermissionDenied, UsageError
from holdfast.journal import SYSTEM_SESSION
from holdfast.providers.model import ModelRequest
from holdfast.testing import FunctionModel, tool_call
from holdfast.tools.gate import NoApprover


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served(make_server().streamable_http_app()) as port:
        yield f"http://127.0.0.1:{port}/mcp"


def at(url: str, **options: Any) -> dict[str, Any]:
    return {"far": {"transport": "http", "url": url, "timeout_s": 20, **options}}


async def facts(client: AsyncClient, kind: str) -> list[Any]:
    events = await (await client.storage.journal()).read(SYSTEM_SESSION, kinds=frozenset({kind}))
    return [event.decode() for event in events]


async def test_remote_tool_is_called_through_the_gate_and_kept(tmp_path: Path, address: str):
    async with client_for(tmp_path, at(address)) as client:
        done = await client.mcp.invoke("far", "add", {"a": 2, "b": 3})
        assert (done.part.state, done.part.output) == ("completed", "5")
        assert done.part.tool == "mcp__far__add"
        kinds = [one.kind for one in await client.events.list(done.run.session_id)]
        assert "approval.requested" in kinds
        assert "tool.started" in kinds
        (met,) = await facts(client, "mcp.connected")
        assert (met.endpoint, met.transport, met.tools) == ("far", "http", 9)
        (called,) = await facts(client, "mcp.invoke")
        assert (called.tool, called.outcome) == ("add", "answered")
        assert called.session_id == done.run.session_id


async def test_nobody_to_ask_means_no_call(tmp_path: Path, address: str):
    async with client_for(tmp_path, at(address)) as client:
        client.approver = NoApprover()
        done = await client.mcp.invoke("far", "echo", {"text": "x"})
        assert done.part.state == "error"
        assert await facts(client, "mcp.invoke") == []


async def test_answers_become_results_without_what_nobody_sees(tmp_path: Path, address: str):
    async with client_for(tmp_path, at(address)) as client:
        shown = await client.mcp.invoke("far", "controls", {})
        assert shown.part.output == "a[31mred[0mevilb"
        drawn = await client.mcp.invoke("far", "picture", {})
        assert [one.media_type for one in drawn.part.attachments] == ["image/png"]
        failed = await client.mcp.invoke("far", "fail", {"text": "x"})
        assert failed.part.state == "error"
        wrong = await client.mcp.invoke("far", "add", {"a": "one", "c": 1})
        assert "a: must be integer" in wrong.part.error
        assert len(await facts(client, "mcp.invoke")) == 3


async def test_progress_is_heard(tmp_path: Path, address: str):
    heard: list[str] = []
    async with client_for(tmp_path, at(address)) as client:
        await client.events.on_progress(lambda update: heard.append(update.text))
        await client.mcp.invoke("far", "slow", {})
        await client.events.settle()
    assert heard == ["half"]


async def test_agent_uses_remote_tools_that_its_rules_allow_and_sees_no_others(
    tmp_path: Path, address: str
):
    seen: list[str] = []

    def answer(request: ModelRequest) -> Any:
        if request.messages[-1].role == "tool":
            return "done"
        seen.extend(tool.name for tool in request.tools if tool.name.startswith("mcp"))
        return [tool_call("mcp__far__add", a=1, b=1), tool_call("mcp__far__echo", text="x")]

    rules = [
        {"permission": "mcp__far__*", "action": "deny"},
        {"permission": "mcp__far__add", "pattern": "far/add", "action": "allow"},
    ]
    agent = Agent("reader", model=FunctionModel(answer), permission=rules)
    async with client_for(tmp_path, at(address)) as client:
        client.approver = NoApprover()
        result = await client.execute_agent(agent, "", "go")
        assert result.status == "completed"
        assert seen == ["mcp__far__add"]
        called = await facts(client, "mcp.invoke")
        assert [one.tool for one in called] == ["add"]


async def test_one_connection_serves_runs_at_the_same_time(tmp_path: Path, address: str):
    async with client_for(tmp_path, at(address)) as client:
        calls = [client.mcp.invoke("far", "add", {"a": n, "b": n}) for n in range(8)]
        assert [one.part.output for one in await asyncio.gather(*calls)] == [
            str(2 * n) for n in range(8)
        ]
        assert len(await facts(client, "mcp.connected")) == 1


async def test_changed_and_new_tools_are_held_back_until_accepted(tmp_path: Path, address: str):
    async with client_for(tmp_path, at(address)) as client:
        await client.mcp.tools("far")
    with served(make_server("changed").streamable_http_app()) as port:
        changed = f"http://127.0.0.1:{port}/mcp"
        async with client_for(tmp_path, at(changed)) as client:
            held = await client.mcp.invoke("far", "echo", {"text": "x"})
            assert held.part.state == "error"
            assert "held back" in held.part.error
            assert (await client.mcp.invoke("far", "add", {"a": 1, "b": 1})).part.output == "2"
            context = await client.sessions.context(held.run.session_id)
            assert "mcp__far__echo" not in {spec.name for spec in context.tool_specs}
            accepted = await client.mcp.accept("far", ["echo"])
            assert {one.verdict for one in accepted} == {"accepted"}
            again = await client.mcp.invoke("far", "echo", {"text": "x"})
            assert again.part.output == "x"


async def test_health_says_how_a_server_is(tmp_path: Path, address: str):
    gone = {"gone": {"transport": "http", "url": "http://127.0.0.1:9/mcp"}}
    off = {"off": {"transport": "http", "url": address, "enabled": False}}
    async with client_for(tmp_path, {**at(address), **gone, **off}) as client:
        await client.mcp.invoke("far", "echo", {"text": "x"})
        health = {one.name: one for one in await client.mcp.health()}
    assert (health["far"].status, health["far"].invocations, health["far"].tools) == ("ok", 1, 9)
    assert health["far"].latency_ms is not None
    assert health["gone"].status == "failed"
    assert health["gone"].last_error
    assert health["off"].status == "disabled"


async def test_rate_limit_holds(tmp_path: Path, address: str):
    async with client_for(tmp_path, at(address, rate_limit_per_minute=1)) as client:
        assert (await client.mcp.invoke("far", "echo", {"text": "x"})).part.output == "x"
        second = await client.mcp.invoke("far", "echo", {"text": "x"})
        assert "Rate rule" in second.part.error
        (health,) = await client.mcp.health()
        assert health.throttled


async def test_unknown_server_and_tool_are_told(tmp_path: Path, address: str):
    async with client_for(tmp_path, at(address)) as client:
        with pytest.raises(NotFound):
            await client.mcp.invoke("near", "echo", {})
        with pytest.raises(NotFound):
            await client.mcp.invoke("far", "no_such_tool", {})


async def test_server_that_is_switched_off_is_not_asked(tmp_path: Path, address: str):
    async with client_for(tmp_path, at(address, enabled=False)) as client:
        with pytest.raises(UsageError):
            await client.mcp.invoke("far", "echo", {"text": "x"})


async def test_remote_host_needs_the_network_rules(tmp_path: Path):
    endpoint = at("https://mcp.example.org/mcp")
    async with client_for(tmp_path, endpoint) as client:
        with pytest.raises(PermissionDenied):
            await client.mcp.tools("far")


JSON = "application/json"
NONE = {
    "unauthorized": (answering(401), McpAuthFailed),
    "redirect": (answering(307, location="http://127.0.0.2:1/mcp"), McpFailed),
    "html": (answering(200, b"<html>", content_type="text/html"), McpFailed),
    "cut": (answering(200, b'{"jsonrpc"', content_type=JSON), McpFailed),
    "nonsense": (answering(200, b'{"jsonrpc": "2.0", "id": 1}', content_type=JSON), McpFailed),
    "broken": (answering(500), McpFailed),
    "huge": (answering(200, b"x" * 9_000_000, content_type=JSON), McpFailed),
    "packed": (answering(200, b"x", content_type=JSON, content_encoding="gzip"), McpFailed),
}


@pytest.mark.parametrize("how", NONE)
async def test_server_that_is_none_fails_clearly(tmp_path: Path, how: str):
    app, error = NONE[how]
    with served(app) as port:
        endpoint = at(f"http://127.0.0.1:{port}/mcp", connect_timeout_s=15)
        async with client_for(tmp_path, endpoint) as client:
            with pytest.raises(error) as raised:
                await client.mcp.tools("far")
            assert raised.value.code == error.code


async def test_server_that_breaks_off_in_a_call_is_told_and_asked_again(tmp_path: Path):
    inner, broken = make_server().streamable_http_app(), ["once"]

    async def breaking(scope: Any, receive: Any, send: Any) -> None:
        async def watched(message: Any) -> None:
            headers = dict(scope["headers"])
            if headers.get(b"mcp-method") == b"tools/call" and broken:
                broken.clear()
                told = [(b"content-type", b"application/json"), (b"content-length", b"99")]
                await send({"type": "http.response.start", "status": 200, "headers": told})
                raise ConnectionError("the cable")
            await send(message)

        await inner(scope, receive, watched if scope["type"] == "http" else send)

    with served(breaking) as port:
        async with client_for(tmp_path, at(f"http://127.0.0.1:{port}/mcp")) as client:
            lost = await client.mcp.invoke("far", "echo", {"text": "x"})
            assert lost.part.state == "error"
            assert "whether the call took effect is not known" in lost.part.error
            again = await client.mcp.invoke("far", "echo", {"text": "x"})
            assert again.part.output == "x"


async def test_token_is_sent_and_kept_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    token = "tok-4f1c9ab37de24c55b1"
    monkeypatch.setenv("FAR_TOKEN", token)
    inner = make_server().streamable_http_app()

    async def guard(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization")
            if given != f"Bearer {token}".encode():
                await answering(401)(scope, receive, send)
                return
        await inner(scope, receive, send)

    with served(guard) as port:
        url = f"http://127.0.0.1:{port}/mcp"
        async with client_for(tmp_path, at(url, auth_token_env="FAR_TOKEN")) as client:
            said = await client.mcp.invoke("far", "echo", {"text": f"my token is {token}"})
            assert said.part.state == "completed"
            (health,) = await client.mcp.health()
            assert health.authenticated
        monkeypatch.delenv("FAR_TOKEN")
        async with client_for(tmp_path, at(url, auth_token_env="FAR_TOKEN")) as client:
            with pytest.raises(McpAuthFailed):
                await client.mcp.tools("far")
    for file in (tmp_path / "state").rglob("*"):
        assert file.is_dir() or token.encode() not in file.read_bytes()
