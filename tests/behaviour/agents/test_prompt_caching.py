"""Requests begin with the same bytes, turn after turn, and say what can be cached. (2.11)"""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast import Agent, AsyncClient, tool
from holdfast.messages import Message, TextPart, TokenUsage, ToolSpec
from holdfast.providers import ModelInfo, ModelRequest
from holdfast.providers.wire.anthropic import AnthropicCodec
from holdfast.providers.wire.chat import ChatCodec
from holdfast.providers.wire.endpoint import Endpoint
from holdfast.providers.wire.responses import ResponsesCodec
from holdfast.testing import ModelReply, ScriptedModel, tool_call

CODECS = {"anthropic": AnthropicCodec, "chat": ChatCodec, "responses": ResponsesCodec}
ADDRESSES = {
    "anthropic": "https://api.anthropic.com/v1",
    "chat": "https://api.openai.com/v1",
    "responses": "https://api.openai.com/v1",
}
LOOK = ToolSpec(name="look", description="Look.", parameters={"type": "object", "properties": {}})


@tool(effect="read")
def look(place: str) -> str:
    """Look at a place."""
    return f"nothing in {place}"


def open_codec(api: str, address: str = "", **fields: Any) -> Any:
    endpoint = Endpoint(provider=api, base_url=address or ADDRESSES[api], **fields)
    return CODECS[api](endpoint, ModelInfo(provider=api, model="m"))


def say(text: str) -> Message:
    return Message(id="m", session_id="s", role="user", parts=(TextPart(text=text),))


def ask(codec: Any, *said: str, **fields: Any) -> dict[str, Any]:
    fields = {"system": "Be brief.", "tools": (LOOK,)} | fields
    request = ModelRequest(messages=tuple(map(say, said)), **fields)
    return json.loads(codec.encode(request, stream=False))


async def record_requests(tmp_path) -> list[ModelRequest]:
    """Three turns with calls, and memories that change between them."""
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    model = ScriptedModel(
        tool_call("look", place="here"), "one", tool_call("look", place="there"), "two", "three"
    )
    agent = Agent("scout", model=model, prompt="You look around.", tools=[look])
    async with AsyncClient(base_dir=tmp_path / "state") as client:
        session = await client.create_session("A walk", directory=tmp_path)
        for word in ("here", "there", "everywhere"):
            await agent.run(f"Look {word}, where the gate is", client=client, session=session.id)
            await client.store_memory(session.id, f"The gate {word} is green")
    return model.requests


@pytest.mark.parametrize("api", CODECS)
async def test_the_beginning_is_the_same_to_the_byte_over_turns_tools_and_memories(api, tmp_path):
    requests = await record_requests(tmp_path)
    assert len(requests) == 5
    assert any("green" in m.text for m in requests[-1].messages), "memories are there, and new"
    codec = open_codec(api)
    bodies = [json.loads(codec.encode(request, stream=False)) for request in requests]
    heads = {
        json.dumps([body.get("tools"), body.get("system"), body.get("instructions")])
        for body in bodies
    }
    assert len(heads) == 1
    field = "input" if api == "responses" else "messages"
    for before, after in zip(bodies, bodies[1:], strict=False):
        # Memories stand before the newest request; all that stands before them is repeated.
        fixed = [one for one in before[field] if "<memories>" not in json.dumps(one)]
        known = min(len(fixed) - 1, len(after[field]))
        places = [at for at, one in enumerate(before[field]) if "<memories>" in json.dumps(one)]
        known = min([known, *places])
        assert after[field][:known] == before[field][:known]
    raw = [codec.encode(request, stream=False) for request in requests]
    assert raw == [codec.encode(request, stream=False) for request in requests]


def test_anthropic_is_told_where_the_stable_beginning_ends():
    codec = open_codec("anthropic")
    body = ask(codec, "Hi")
    mark = {"type": "ephemeral"}
    assert body["system"] == [{"type": "text", "text": "Be brief.", "cache_control": mark}]
    assert body["cache_control"] == mark
    body = ask(codec, "Hi", system="Be brief.\n\nIt is noon.", changing=len("It is noon."))
    assert body["system"] == [
        {"type": "text", "text": "Be brief.", "cache_control": mark},
        {"type": "text", "text": "It is noon."},
    ]
    only = ask(codec, "Hi", system="It is noon.", changing=len("It is noon."))
    assert only["system"] == [{"type": "text", "text": "It is noon."}]
    assert "system" not in ask(codec, "Hi", system="")


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_openai_gets_a_key_that_stays_while_the_beginning_does(api):
    codec = open_codec(api)
    key = ask(codec, "Hi")["prompt_cache_key"]
    assert len(key) == 32
    assert ask(codec, "Hi", "And now?")["prompt_cache_key"] == key
    assert ask(open_codec(api), "Other")["prompt_cache_key"] == key
    changed = ask(codec, "Hi", system="Be brief.\n\nIt is noon.", changing=len("It is noon."))
    assert changed["prompt_cache_key"] == key
    assert ask(codec, "Hi", system="Be long.")["prompt_cache_key"] != key
    assert ask(codec, "Hi", tools=())["prompt_cache_key"] != key


@pytest.mark.parametrize("api", CODECS)
def test_servers_that_only_speak_the_api_are_told_nothing_unless_asked(api):
    fields = {"cache_control", "prompt_cache_key"}
    plain = ask(open_codec(api, "http://127.0.0.1:8080/v1"), "Hi")
    assert not fields & set(plain)
    assert "cache_control" not in json.dumps(plain)
    assert fields & set(ask(open_codec(api, "http://127.0.0.1:8080/v1", prompt_cache="on"), "Hi"))
    assert not fields & set(ask(open_codec(api, prompt_cache="off"), "Hi"))


async def test_what_was_read_from_the_cache_stands_in_usage_and_in_the_session(tmp_path):
    used = TokenUsage(input=20, output=5, cache_read=1_900, cache_write=80)
    agent = Agent("helper", model=ScriptedModel(ModelReply(text="Done.", usage=used)))
    async with AsyncClient(base_dir=tmp_path / "state") as client:
        result = await agent.run("Go on", client=client)
        [_, answer] = (await client.messages.list(result.session_id)).items
    assert result.usage == used
    assert answer.usage == used
