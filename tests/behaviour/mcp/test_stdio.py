"""MCP servers that are programs: confined, ended with everything they start, and borne with."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mcp_kit import client_for, program

from holdfast import Agent, AsyncClient
from holdfast.errors import McpFailed, McpUntrusted, PermissionDenied, UsageError
from holdfast.journal import SYSTEM_SESSION
from holdfast.mcp import McpInvoked, McpLost
from holdfast.observability import (
    INCOMING_TRACE,
    TraceParent,
    make_span_id,
    parse_traceparent,
)
from holdfast.providers.model import ModelRequest
from holdfast.settings import load_settings
from holdfast.testing import FunctionModel, tool_call
from holdfast.tools.gate import AutoConfirm


def rude(*args: str, **options: Any) -> dict[str, Any]:
    return {"rude": program("mcp_rude.py", *args, **{"timeout_s": 20, **options})}


async def said(client: AsyncClient, tool: str, **arguments: Any) -> tuple[str, str]:
    part = (await client.mcp.invoke("rude", tool, arguments)).part
    return part.state, part.output or part.error


async def test_program_made_with_the_sdk_is_called_confined(tmp_path: Path):
    endpoint = {"tests": program("mcp_server.py", "stdio", timeout_s=60, connect_timeout_s=120)}
    async with client_for(tmp_path, endpoint) as client:
        added = await client.mcp.invoke("tests", "add", {"a": 1, "b": 2})
        assert added.part.output == "3"
        made = await client.mcp.invoke("tests", "touch", {"path": "made"})
        assert made.part.output.startswith("refused")
        (health,) = await client.mcp.health()
        assert health.sandbox.endswith("/read-only")
        assert health.protocol >= "2026"
    assert not (tmp_path / "ws" / "made").exists()


async def test_program_sees_no_secret_but_its_own_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-somebody-elses-0123456789")
    monkeypatch.setenv("RUDE_TOKEN", "tok-5b21ab0f73a94ce8")
    async with client_for(tmp_path, rude(auth_token_env="RUDE_TOKEN")) as client:
        _, shown = await said(client, "where")
    seen = json.loads(shown)["environment"]
    assert "OPENAI_API_KEY" not in seen
    assert seen["HOME"] != os.environ.get("HOME")
    assert "RUDE_TOKEN" in seen
    assert "tok-5b21ab0f73a94ce8" not in shown


async def test_token_cannot_make_the_program_load_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PYTHONSTARTUP", "evil.py")
    async with client_for(tmp_path, rude(auth_token_env="PYTHONSTARTUP")) as client:
        with pytest.raises(UsageError):
            await client.mcp.tools("rude")


async def test_server_that_dies_in_a_call_is_told_and_started_again(tmp_path: Path):
    async with client_for(tmp_path, rude()) as client:
        state, text = await said(client, "die")
        assert state == "error"
        assert "it hurts" in text
        assert "whether the call took effect is not known" in text
        events = await (await client.storage.journal()).read(
            SYSTEM_SESSION, kinds=frozenset({"mcp.lost"})
        )
        assert [one.expect(McpLost).endpoint for one in events] == ["rude"]
        assert await said(client, "echo", text="back") == ("completed", "back")


@pytest.mark.parametrize("tool", ["hang", "garble"])
async def test_call_without_an_answer_ends_in_time(tmp_path: Path, tool: str):
    # On a slow machine a server that does answer may need longer than that.
    for limit_s in (0.5, 3.0, 20.0):
        place = tmp_path / f"{limit_s}"
        place.mkdir()
        async with client_for(place, rude(timeout_s=limit_s)) as client:
            state, text = await said(client, tool)
            assert state == "error"
            assert f"no answer in {limit_s:g} s" in text
            answered = await said(client, "echo", text="still here")
        if answered[0] == "completed":
            break
    assert answered == ("completed", "still here")


async def test_flood_ends_the_connection_and_not_the_run(tmp_path: Path):
    async with client_for(tmp_path, rude()) as client:
        state, text = await said(client, "flood")
        assert state == "error"
        assert "more than can be read" in text
        assert await said(client, "echo", text="back") == ("completed", "back")


async def test_strange_answers_are_results(tmp_path: Path):
    async with client_for(tmp_path, rude()) as client:
        assert await said(client, "noise", text="heard") == ("completed", "heard")
        assert await said(client, "ask", text="alone") == ("completed", "alone")
        assert await said(client, "refuse") == ("error", "The MCP server rude says: not today")
        assert (await said(client, "grow", text="now"))[0] == "completed"
        state, text = await said(client, "grown")
        assert (state, "held back" in text) == ("error", True)
        state, text = await said(client, "strange")
        assert (state, "not what the protocol promises" in text) == ("error", True)


@pytest.mark.parametrize(
    ("mode", "word"), [("exits", "no such database"), ("silent", "no answer within")]
)
async def test_server_that_does_not_start_says_why(tmp_path: Path, mode: str, word: str):
    # One that says something may take as long as a slow machine needs to start it.
    limit_s = 2 if mode == "silent" else 60
    async with client_for(tmp_path, rude(mode, connect_timeout_s=limit_s)) as client:
        with pytest.raises(McpFailed) as raised:
            await client.mcp.tools("rude")
        assert word in str(raised.value)


async def test_run_goes_on_without_a_server_that_does_not_start(tmp_path: Path):
    endpoints = {**rude("exits"), "none": program("no_such_file.py")}
    async with client_for(tmp_path, endpoints) as client:
        agent = Agent("plain", model=FunctionModel(lambda request: "done"))
        assert (await client.execute_agent(agent, "", "go")).response == "done"
        assert [one.status for one in await client.mcp.health()] == ["failed", "failed"]


async def test_absurd_offers_are_cut_down(tmp_path: Path):
    async with client_for(tmp_path, rude("many")) as client:
        tools, left_out = await client.mcp.tools("rude")
        assert (len(tools), len(left_out)) == (128, 372)
    (tmp_path / "state" / "mcp_pins.json").unlink()
    async with client_for(tmp_path, rude("hostile")) as client:
        tools, left_out = await client.mcp.tools("rude")
        names = {one.tool: one.name for one in tools}
        assert set(names) == {"a b/c", "read_file", "readFile", "x" * 100}
        assert len({name.replace("_", "").lower() for name in names.values()}) == 4
        assert sorted(one.tool for one in left_out) == ["", "huge", "twice", "twice"]
        assert all("\u202e" not in one.description for one in tools)


async def test_server_and_its_children_end_with_the_client(tmp_path: Path):
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "network.yaml").write_text("allow_net: true\nraw_processes: true\n")
    granted = {"policies.dir": policies, "network.allow_net": True}
    async with client_for(tmp_path, rude(sandbox="full"), **granted) as client:
        _, shown = await said(client, "where")
        pid = int(json.loads(shown)["pid"])
        os.kill(pid, 0)
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        pytest.fail("the server still runs")


async def test_cancelled_call_leaves_the_server_in_use(tmp_path: Path):
    async with client_for(tmp_path, rude(timeout_s=60)) as client:
        await said(client, "echo", text="up")
        heard = asyncio.Event()
        await client.events.on_progress(lambda update: heard.set())
        calling = asyncio.create_task(client.mcp.invoke("rude", "hang", {}))
        async with asyncio.timeout(30):
            await heard.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        journal = await client.storage.journal()
        called = await journal.read(SYSTEM_SESSION, kinds=frozenset({"mcp.invoke"}))
        assert [one.expect(McpInvoked).outcome for one in called] == ["answered", "unknown"]
        assert await said(client, "echo", text="on") == ("completed", "on")


@pytest.mark.parametrize(("sandbox", "is_done"), [("read-only", False), ("workspace-write", True)])
async def test_run_that_only_reads_reaches_no_server_that_may_write(
    tmp_path: Path, sandbox: Any, is_done: bool
):
    def answer(request: ModelRequest) -> Any:
        if request.messages[-1].role == "tool":
            return request.messages[-1].tool_calls[0].error or "done"
        return tool_call("mcp__rude__echo", text="x")

    rules = [{"permission": "mcp_*", "action": "allow"}]
    agent = Agent("a", model=FunctionModel(answer), permission=rules, sandbox=sandbox)
    async with client_for(tmp_path, rude(sandbox="workspace-write")) as client:
        said = (await client.execute_agent(agent, "", "go")).response
        assert ("only reads" not in said) is is_done


async def test_program_with_a_network_needs_the_operators_grant(tmp_path: Path):
    async with client_for(tmp_path, rude(sandbox="network")) as client:
        with pytest.raises(PermissionDenied):
            await client.mcp.tools("rude")


@pytest.mark.parametrize(("sandbox", "is_done"), [("workspace-write", False), ("network", True)])
async def test_run_without_a_network_neither_starts_nor_reaches_a_server_that_has_one(
    tmp_path: Path, sandbox: Any, is_done: bool
):
    def answer(request: ModelRequest) -> Any:
        if request.messages[-1].role == "tool":
            return request.messages[-1].tool_calls[0].error or "done"
        return tool_call("mcp__rude__echo", text="x")

    rules = [{"permission": "mcp_*", "action": "allow"}]
    agent = Agent("a", model=FunctionModel(answer), permission=rules, sandbox=sandbox)
    (tmp_path / "network.yaml").write_text("allow_net: true\nraw_processes: true\n")
    granted = {"policies.dir": str(tmp_path), "network.allow_net": True}
    async with client_for(tmp_path, rude(sandbox="read-only-network"), **granted) as client:
        said = (await client.execute_agent(agent, "", "go")).response
        is_started = (await client.tools.registry()).find("mcp__rude__echo") is not None
        assert (said == "done", is_started) == (is_done, is_done)
        # A person is held back by no sandbox; from now on the server runs.
        assert (await client.tools.call("mcp__rude__echo", {"text": "x"})).part.state == "completed"
        said = (await client.execute_agent(agent, "", "go")).response
        assert (said == "done") is is_done
        assert ("talks to the network by itself" in said) is not is_done


async def test_projects_server_is_not_started_before_it_is_trusted(tmp_path: Path):
    (tmp_path / ".git").mkdir()
    endpoint = rude()["rude"]
    lines = [f"{key} = {json.dumps(value)}" for key, value in endpoint.items()]
    file = tmp_path / "holdfast.toml"
    file.write_text("\n".join(["[mcp_endpoints.rude]", *lines]))

    def client() -> AsyncClient:
        loaded = load_settings(cwd=tmp_path, environ={"HOME": str(tmp_path)})
        made = AsyncClient(tmp_path / "state", settings=loaded.settings)
        made.approver = AutoConfirm()
        return made

    async with client() as first:
        assert [one.trusted for one in await first.mcp.endpoints()] == [False]
        with pytest.raises(McpUntrusted):
            await first.mcp.invoke("rude", "echo", {})
        assert [one.status for one in await first.mcp.health()] == ["untrusted"]
        assert (await first.mcp.trust("rude")).trusted
        assert await said(first, "echo", text="x") == ("completed", "x")
        assert not (await first.mcp.trust("rude", revoke=True)).trusted
        barred = await first.tools.call("mcp__rude__echo", {"text": "x"})
        assert "is not trusted" in barred.part.error
        await first.mcp.trust("rude")
    file.write_text(file.read_text() + "\nrate_limit_per_minute = 7\n")
    async with client() as second:
        with pytest.raises(McpUntrusted):
            await second.mcp.invoke("rude", "echo", {})


async def test_server_is_told_the_trace_of_the_call(tmp_path: Path):
    endpoint = {"tests": program("mcp_server.py", "stdio", timeout_s=60, connect_timeout_s=120)}
    given = f"00-{'1f' * 16}-{'2e' * 8}-00"
    async with client_for(tmp_path, endpoint) as client:
        token = INCOMING_TRACE.set(given)
        called = await client.mcp.invoke("tests", "trace", {})
        INCOMING_TRACE.reset(token)
        told = parse_traceparent(called.part.output)
        assert told is not None
        key = f"call:{called.run.id}:{called.part.call_id}"
        assert told == TraceParent(
            bytes.fromhex("1f" * 16), make_span_id(called.run.id, key), False
        )
        other = parse_traceparent((await client.mcp.invoke("tests", "trace", {})).part.output)
        assert other is not None and other.is_sampled and other.trace_id != told.trace_id
