"""The fake server refuses what the real ones refuse, and runs as its own process."""

from __future__ import annotations

import asyncio
import sys
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
import pytest

from holdfast.testing.fake_rules import RefusedRequest, check_request
from holdfast.testing.fake_server import FakeServer, RawAnswer, Reply

JSON = {"Content-Type": "application/json"}
ANTHROPIC = {**JSON, "anthropic-version": "2023-06-01"}
USER = {"role": "user", "content": "Hi."}
CALL = {"id": "c1", "type": "function", "function": {"name": "t", "arguments": "{}"}}
CALLED = {"role": "assistant", "tool_calls": [CALL]}
USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "t", "input": {}}]}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1"}]}
ITEM = {"type": "function_call", "call_id": "c1", "name": "t", "arguments": "{}"}


def chat(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages), **more}


def responses(*items: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "input": list(items), "store": False, **more}


def anthropic(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 10, "messages": list(messages), **more}


@pytest.mark.parametrize(
    ("wire", "body"),
    [
        ("chat", []),
        ("chat", chat()),
        ("chat", chat(USER, unknown=1)),
        ("chat", chat(USER) | {"model": ""}),
        ("chat", chat(USER, temperature=3)),
        ("chat", chat(USER, tool_choice="auto")),
        ("chat", chat({"role": "robot", "content": "x"})),
        ("chat", chat({"role": "user", "content": ""})),
        ("chat", chat(USER, {"role": "assistant", "content": None})),
        ("chat", chat(USER, {"role": "tool", "tool_call_id": "c1", "content": "x"})),
        ("chat", chat(USER, CALLED)),
        ("chat", chat(USER, CALLED, USER)),
        ("chat", chat(USER, stream_options={})),
        ("chat", chat(USER, tools=[{"type": "function", "function": {"name": "a b"}}])),
        ("responses", responses()),
        ("responses", responses(ITEM)),
        ("responses", responses({"type": "function_call_output", "call_id": "c1"})),
        ("responses", responses({"type": "reasoning", "id": "r", "summary": []})),
        ("responses", responses({"role": "user", "content": [{"type": "text", "text": "x"}]})),
        ("anthropic", anthropic()),
        ("anthropic", anthropic(USER) | {"max_tokens": None}),
        ("anthropic", anthropic({"role": "assistant", "content": "x"})),
        ("anthropic", anthropic(USER, USE)),
        ("anthropic", anthropic(USER, USE, USER)),
        ("anthropic", anthropic(USER, RESULT)),
        ("anthropic", anthropic({"role": "user", "content": " "})),
        ("anthropic", anthropic({"role": "user", "content": []})),
        (
            "anthropic",
            anthropic(
                USER,
                output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}},
            ),
        ),
        ("anthropic", anthropic(USER, thinking={"type": "enabled", "budget_tokens": 5})),
    ],
)
def test_what_the_real_api_refuses_is_refused(wire: Any, body: Any) -> None:
    with pytest.raises(RefusedRequest):
        check_request(wire, body, ANTHROPIC)


def test_headers_are_checked() -> None:
    check_request("chat", chat(USER), JSON)
    check_request("anthropic", anthropic(USER, USE, RESULT), ANTHROPIC)
    with pytest.raises(RefusedRequest):
        check_request("anthropic", anthropic(USER), JSON)
    with pytest.raises(RefusedRequest):
        check_request("chat", chat(USER), {})


async def test_requests_are_kept_and_a_missing_answer_is_a_clear_refusal() -> None:
    async with FakeServer([Reply(text="a")]) as server, aiohttp.ClientSession() as session:
        for status in (200, 400):
            async with session.post(f"{server.base_url}/chat/completions", json=chat(USER)) as got:
                assert got.status == status
        async with session.get(f"{server.base_url}/models") as got:
            assert (await got.json())["data"][0]["id"] == "fake-model"
        assert [request.json["model"] for request in server.requests] == ["m", "m"]
        assert server.requests[0].headers["content-type"].startswith("application/json")


async def test_raw_answers_are_sent_as_they_are() -> None:
    raw = RawAnswer(chunks=(b"a", b"b"), status=299, content_type="text/x")
    async with FakeServer([raw]) as server, aiohttp.ClientSession() as session:
        async with session.post(f"{server.base_url}/responses", json=responses(USER)) as got:
            assert got.status == 299 and await got.read() == b"ab"


async def test_a_stream_in_one_piece_arrives_with_one_read() -> None:
    reply = Reply(text="x" * 800, piece_chars=4, in_one_piece=True)
    body = msgspec.json.encode(chat(USER, stream=True))
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    async with FakeServer([reply]) as server:
        port = urlsplit(server.base_url).port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await reader.readuntil(b"\r\n\r\n")
        stream = await reader.read(1_000_000)
        writer.close()
        await writer.wait_closed()
    assert stream.endswith(b"\r\n0\r\n\r\n")
    assert stream.count(b'"content":"xxxx"') == 200


async def test_it_runs_as_its_own_process() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "holdfast.testing.fake_server", "--rounds", "1", "--said-chars", "50"),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), 30)
        base_url = msgspec.json.decode(line)["base_url"]
        tools = [
            {"type": "function", "function": {"name": "multiply", "parameters": {"type": "object"}}}
        ]
        async with aiohttp.ClientSession() as session:
            async with session.post(
                f"{base_url}/chat/completions", json=chat(USER, tools=tools)
            ) as got:
                body = await got.json()
        assert body["choices"][0]["finish_reason"] == "tool_calls"
        assert len(body["choices"][0]["message"]["content"]) == 50
    finally:
        process.terminate()
        await process.wait()
