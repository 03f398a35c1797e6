"""Answers of a schema, from servers that obey one API's, another's or none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import LLMBadRequest
from holdfast.messages import Message, TextPart, TokenUsage
from holdfast.providers.endpoint_memory import EndpointMemory, SchemaWay
from holdfast.providers.model import Delta, Finished, ModelRequest, Restarted, TextDelta
from holdfast.providers.structured import StructuredOutputModel
from holdfast.testing import FakeClock, FunctionModel, ModelReply, ScriptedModel, tool_call

URL = "http://127.0.0.1:1/v1"
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
GOAL = Message(id="m", session_id="s", role="user", parts=(TextPart(text="How many?"),))
ASKED = ModelRequest(messages=(GOAL,), output_schema=SCHEMA)


def make(memory: EndpointMemory, *, inner: Any = None, **ways: Any) -> StructuredOutputModel:
    named: dict[SchemaWay, Any] = {}
    for way in ("responses", "chat"):
        if way in ways:
            named[way] = ways[way]
    return StructuredOutputModel(inner or ScriptedModel(), named, memory, URL)


async def collect(model: StructuredOutputModel, asked: ModelRequest = ASKED) -> list[Delta]:
    return [delta async for delta in model.stream(asked)]


async def answer(model: StructuredOutputModel, asked: ModelRequest = ASKED) -> Message:
    last = (await collect(model, asked))[-1]
    assert isinstance(last, Finished)
    return last.message


async def test_an_api_that_ignores_the_schema_is_left_for_one_that_obeys(tmp_path: Path) -> None:
    memory = EndpointMemory(tmp_path / "e.json")
    responses, chat = ScriptedModel("About five."), ScriptedModel('{"n": 5}', '{"n": 6}')
    model = make(memory, responses=responses, chat=chat)
    assert (await answer(model)).text == '{"n": 5}'
    assert memory.find_schema_way(URL, "scripted") == "chat"
    assert (await answer(model)).text == '{"n": 6}'
    assert len(responses.requests) == 1, "what was found out is remembered"
    assert EndpointMemory(tmp_path / "e.json").find_schema_way(URL, "scripted") == "chat"


async def test_where_no_api_obeys_the_schema_is_said_in_words_and_repaired() -> None:
    memory = EndpointMemory(None)
    inner = ScriptedModel("Five!", 'Here: {"n": "five"}', 'Sure: ```json\n{"n": 5}\n```')
    model = make(memory, inner=inner, responses=ScriptedModel("Five."), chat=ScriptedModel("Five."))
    message = await answer(model)
    assert json.loads(message.text) == {"n": 5}
    assert '"integer"' in inner.requests[0].system
    assert inner.requests[0].output_schema is None
    assert "no valid JSON" in inner.requests[1].messages[-1].text
    assert "does not fit" in inner.requests[2].messages[-1].text
    assert memory.find_schema_way(URL, "scripted") == "prompted"


async def test_a_refused_schema_is_no_failure_of_the_call() -> None:
    def refuse(asked: ModelRequest) -> Any:
        return LLMBadRequest(provider="x", detail="no such response_format")

    model = make(EndpointMemory(None), inner=ScriptedModel('{"n": 1}'), chat=FunctionModel(refuse))
    assert (await answer(model)).text == '{"n": 1}'


async def test_a_way_that_stops_working_is_left() -> None:
    memory = EndpointMemory(None)
    memory.set_schema_way(URL, "scripted", "responses")
    model = make(memory, responses=ScriptedModel("Five."), chat=ScriptedModel('{"n": 5}'))
    deltas = await collect(model)
    assert [type(delta) for delta in deltas[-2:]] == [Restarted, Finished], "it was shown"
    assert memory.find_schema_way(URL, "scripted") == "chat"


async def test_what_was_found_out_long_ago_is_found_out_again() -> None:
    clock = FakeClock()
    memory = EndpointMemory(None, clock=clock)
    memory.set_schema_way(URL, "scripted", "prompted")
    memory.set_tool_mode(URL, "scripted", "prompted")
    clock.advance(8 * 86_400)
    assert memory.find_schema_way(URL, "scripted") is None
    assert memory.tool_mode(URL, "scripted") is None
    assert memory.tool_mode(URL, "scripted", even_old=True) == "prompted"
    memory.set_schema_way(URL, "scripted", "chat")
    assert memory.tool_mode(URL, "scripted") is None, "only what was found out now is believed"


async def test_a_known_way_streams_and_an_unknown_one_shows_nothing_that_is_taken_back() -> None:
    memory = EndpointMemory(None)
    chat = ScriptedModel('{"n": 5}', '{"n": 5}')
    first = await collect(make(memory, responses=ScriptedModel("Five."), chat=chat))
    assert [type(delta) for delta in first] == [Finished]
    second = await collect(make(memory, responses=ScriptedModel(), chat=chat))
    assert any(isinstance(delta, TextDelta) for delta in second)


async def test_calls_cut_answers_and_last_tries_come_as_they_are() -> None:
    memory = EndpointMemory(None)
    called = await answer(make(memory, chat=ScriptedModel(tool_call("add", a=1))))
    assert called.tool_calls[0].tool == "add"
    cut = ModelReply(text='{"n": 12', stop_reason="length")
    assert (await answer(make(memory, chat=ScriptedModel(cut)))).stop_reason == "length"
    inner = ScriptedModel("no", "no", "never")
    assert (await answer(make(memory, inner=inner, chat=ScriptedModel("no")))).text == "never"
    assert memory.find_schema_way(URL, "scripted") is None


async def test_tokens_of_every_try_are_counted() -> None:
    used = TokenUsage(input=10, output=2)
    replies = [ModelReply(text="Five.", usage=used), ModelReply(text='{"n": 5}', usage=used)]
    model = make(
        EndpointMemory(None), responses=ScriptedModel(replies[0]), chat=ScriptedModel(replies[1])
    )
    assert (await answer(model)).usage == TokenUsage(input=20, output=4)


@pytest.mark.parametrize("deltas", (True, False))
async def test_without_a_schema_nothing_is_changed(deltas: bool) -> None:
    inner = ScriptedModel("Hello.")
    model = make(EndpointMemory(None), inner=inner, chat=ScriptedModel())
    asked = ModelRequest(messages=(GOAL,))
    found = [delta async for delta in model.stream(asked, deltas=deltas)]
    assert isinstance(found[-1], Finished)
    assert inner.requests == [asked]
