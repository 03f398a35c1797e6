from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from holdfast.errors import LLMToolCallMissing
from holdfast.messages import Message, TextPart, TokenUsage, ToolPart, ToolSpec
from holdfast.providers.json_schema import fits
from holdfast.providers.model import (
    Delta,
    Finished,
    Model,
    ModelRequest,
    Restarted,
    TextDelta,
    ToolCallDelta,
    ToolMode,
)
from holdfast.providers.tool_modes import ToolModeModel
from holdfast.testing import FunctionModel, ModelReply, ScriptedModel, tool_call

ADD = ToolSpec(
    name="add",
    description="Add two numbers",
    parameters={
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/n"}, "b": {"$ref": "#/$defs/n"}},
        "required": ["a", "b"],
        "additionalProperties": False,
        "$defs": {"n": {"type": "integer"}},
    },
)
SAY = ToolSpec(name="say", description="Say", parameters={"type": "object", "properties": {}})
CALL = '{"tool": "add", "arguments": {"a": 1, "b": 2}}'
GOAL = Message(id="m", session_id="s", role="user", parts=(TextPart(text="Add 1 and 2"),))


def request(**fields: Any) -> ModelRequest:
    return ModelRequest(
        **{"messages": (GOAL,), "tools": (ADD, SAY), "system": "Be kind.", **fields}
    )


async def collect(model: Model, asked: ModelRequest, *, deltas: bool = True) -> list[Delta]:
    return [delta async for delta in model.stream(asked, deltas=deltas)]


async def answer(model: Model, asked: ModelRequest) -> Message:
    last = (await collect(model, asked))[-1]
    assert isinstance(last, Finished)
    return last.message


def calls_of(message: Message) -> list[tuple[str, dict[str, Any]]]:
    return [(call.tool, call.input) for call in message.tool_calls]


async def test_json_schema_mode_lets_only_calls_and_answers_through() -> None:
    inner = ScriptedModel(CALL)
    model = ToolModeModel(inner, "json_schema")
    message = await answer(model, request())
    assert calls_of(message) == [("add", {"a": 1, "b": 2})]
    assert message.stop_reason == "tool_calls"
    asked = inner.requests[0]
    assert asked.tools == ()
    assert asked.system.startswith("Be kind.")
    assert "add" in asked.system
    schema = asked.output_schema
    assert schema is not None
    assert fits(msgspec.json.decode(CALL), schema)
    assert fits({"answer": "yes"}, schema)
    assert not fits({"tool": "add", "arguments": {"a": "x", "b": 2}}, schema)
    assert not fits({"tool": "other", "arguments": {}}, schema)
    assert model.info.tool_mode == "json_schema"


async def test_a_demanded_call_leaves_no_way_to_answer() -> None:
    inner = ScriptedModel(CALL)
    await answer(ToolModeModel(inner, "json_schema"), request(tool_choice="add"))
    schema = inner.requests[0].output_schema
    assert not fits({"answer": "yes"}, schema)
    assert not fits({"tool": "say", "arguments": {}}, schema)


@pytest.mark.parametrize("mode", ["json_schema", "prompted"])
async def test_an_answer_is_unwrapped(mode: ToolMode) -> None:
    inner = ScriptedModel('{"answer": "It is 3."}')
    deltas = await collect(ToolModeModel(inner, mode), request())
    assert [d.text for d in deltas if isinstance(d, TextDelta)] == ["It is 3."]
    assert isinstance(deltas[-1], Finished)
    assert deltas[-1].message.text == "It is 3."


@pytest.mark.parametrize(
    "text",
    [
        'Sure!\n```json\n{"answer": "It is 3."}\n```',
        'The answer is {"answer": "It is 3."}.',
        '<think>1 and 2 {add up}</think>{"answer": "It is 3."}',
    ],
)
async def test_an_answer_among_other_words_is_unwrapped_and_takes_them_back(text: str) -> None:
    deltas = await collect(ToolModeModel(ScriptedModel(text), "prompted"), request())
    kinds = [type(delta) for delta in deltas]
    shown = deltas[kinds.index(Restarted) + 1 :]
    assert [d.text for d in shown if isinstance(d, TextDelta)] == ["It is 3."]
    assert isinstance(shown[-1], Finished)
    assert shown[-1].message.text == "It is 3."


@pytest.mark.parametrize("text", ['Take `{"n": 1}`.', 'Take {"answer": 1} or {"answer": 2}.'])
async def test_other_json_in_an_answer_is_left_where_it_is(text: str) -> None:
    message = await answer(ToolModeModel(ScriptedModel(text), "prompted"), request())
    assert message.text == text


@pytest.mark.parametrize("mode", ["json_schema", "prompted"])
async def test_a_call_in_broken_json_is_asked_for_again(mode: ToolMode) -> None:
    broken = '{"tool": "add", "arguments": {"a": 1,'
    inner = ScriptedModel(broken, CALL)
    assert calls_of(await answer(ToolModeModel(inner, mode), request()))
    assert "no valid JSON" in inner.requests[1].messages[-1].text
    hopeless = ToolModeModel(ScriptedModel(broken, broken, broken), mode)
    assert (await answer(hopeless, request())).text == broken


async def test_usage_that_was_not_reported_stays_unknown() -> None:
    silent = Message(id="a", session_id="s", role="assistant", parts=(TextPart(text=CALL),))
    told = ModelReply(text="Hm.", usage=TokenUsage(input=5))
    model = ToolModeModel(ScriptedModel(silent, told, silent), "prompted")
    assert (await answer(model, request())).usage is None
    assert (await answer(model, request(tool_choice="add"))).usage == TokenUsage(input=5)


async def test_prompted_mode_shows_an_example_and_takes_plain_words_as_answer() -> None:
    inner = ScriptedModel("It is simply 3.")
    deltas = await collect(ToolModeModel(inner, "prompted"), request())
    assert inner.requests[0].output_schema is None
    assert '{"tool":"add","arguments":{"a":1,"b":1}}' in inner.requests[0].system
    shown = "".join(d.text for d in deltas if isinstance(d, TextDelta))
    assert shown == "It is simply 3."


async def test_a_call_inside_shown_words_takes_them_back() -> None:
    inner = ScriptedModel(f"I will add: {CALL}")
    deltas = await collect(ToolModeModel(inner, "prompted"), request())
    kinds = [type(delta) for delta in deltas]
    assert kinds.index(Restarted) < kinds.index(ToolCallDelta)
    assert isinstance(deltas[-1], Finished)
    assert calls_of(deltas[-1].message) == [("add", {"a": 1, "b": 2})]


async def test_a_call_written_as_text_is_never_shown_as_text() -> None:
    deltas = await collect(
        ToolModeModel(ScriptedModel(f"```json\n{CALL}\n```"), "native"), request()
    )
    assert not [d for d in deltas if isinstance(d, TextDelta | Restarted)]
    assert isinstance(deltas[-1], Finished)
    assert calls_of(deltas[-1].message) == [("add", {"a": 1, "b": 2})]
    assert deltas[-1].message.metadata["tool_call_rescued"] is True


async def test_native_calls_and_json_in_prose_pass_unchanged() -> None:
    native = ScriptedModel(tool_call("add", a=1, b=2), f"For example {CALL} would do.")
    model = ToolModeModel(native, "native")
    assert calls_of(await answer(model, request())) == [("add", {"a": 1, "b": 2})]
    told = await answer(model, request())
    assert told.tool_calls == ()
    assert native.requests[0].tools == (ADD, SAY)


async def test_a_demanded_call_is_asked_for_again_with_what_was_wrong() -> None:
    wrong = '{"tool": "add", "arguments": {"a": 1}}'
    inner = ScriptedModel("I would rather not.", wrong, CALL)
    model = ToolModeModel(inner, "prompted")
    deltas = await collect(model, request(tool_choice="required"))
    assert isinstance(deltas[-1], Finished)
    message = deltas[-1].message
    assert calls_of(message) == [("add", {"a": 1, "b": 2})]
    assert not [d for d in deltas if isinstance(d, TextDelta)]
    assert "must be called" in inner.requests[1].messages[-1].text
    assert "b: is missing" in inner.requests[2].messages[-1].text
    used = [request.messages for request in inner.requests]
    assert [len(messages) for messages in used] == [1, 3, 5]
    assert message.usage is not None
    assert message.usage.input > TokenUsage(input=1).input


@pytest.mark.parametrize("mode", ["native", "json_schema", "prompted"])
async def test_a_call_that_never_comes_is_an_error_after_three_attempts(mode: ToolMode) -> None:
    inner = FunctionModel(lambda asked: "no")
    with pytest.raises(LLMToolCallMissing) as raised:
        await answer(ToolModeModel(inner, mode), request(tool_choice="required"))
    assert raised.value.code == "llm.tool_call_missing"
    assert raised.value.is_retryable is False
    assert len(inner.requests) == 3


async def test_a_native_call_of_an_unknown_tool_is_corrected_when_demanded() -> None:
    inner = ScriptedModel(tool_call("sub", a=1), tool_call("add", a=1, b=2))
    message = await answer(ToolModeModel(inner, "native"), request(tool_choice="required"))
    assert calls_of(message) == [("add", {"a": 1, "b": 2})]
    assert "there is no tool 'sub'" in inner.requests[1].messages[-1].text


async def test_earlier_calls_and_results_become_text() -> None:
    call = ToolPart(call_id="c1", tool="add", input={"a": 1, "b": 2})
    done = ToolPart(call_id="c1", tool="add", state="completed", output="3")
    messages = (
        GOAL,
        Message(id="a", session_id="s", role="assistant", parts=(call,)),
        Message(id="t", session_id="s", role="tool", parts=(done,)),
    )
    inner = ScriptedModel('{"answer": "3"}')
    await answer(ToolModeModel(inner, "json_schema"), request(messages=messages))
    sent = inner.requests[0].messages
    assert [message.role for message in sent] == ["user", "assistant", "user"]
    assert msgspec.json.decode(sent[1].text) == {"tool": "add", "arguments": {"a": 1, "b": 2}}
    assert sent[2].text == "The tool add gave: 3"


async def test_an_answer_of_a_schema_is_checked_and_corrected() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    inner = ScriptedModel('```json\n{"n": "many"}\n```', '{"n": 3}')
    message = await answer(
        ToolModeModel(inner, "prompted"), request(tools=(), output_schema=schema)
    )
    assert message.text == '{"n":3}'
    assert len(inner.requests) == 2


async def test_closing_the_stream_closes_the_inner_one() -> None:
    hold = asyncio.Event()
    inner = ScriptedModel(ModelReply(text="Hello there", hold=hold))
    stream = ToolModeModel(inner, "native").stream(request())
    assert isinstance(await anext(stream), TextDelta)
    assert inner.open_streams == 1
    await stream.aclose()  # type: ignore[attr-defined]
    assert inner.open_streams == 0


HAND = "I used the add tool, and it gave 3."


async def test_a_tool_that_is_only_said_to_be_used_is_asked_about_once() -> None:
    inner = ScriptedModel(HAND, tool_call("add", a=1, b=2))
    deltas = await collect(ToolModeModel(inner, "native"), request())
    last = deltas[-1]
    assert isinstance(last, Finished)
    assert calls_of(last.message) == [("add", {"a": 1, "b": 2})]
    assert "no tool was called" in inner.requests[1].messages[-1].text
    assert any(isinstance(delta, Restarted) for delta in deltas), "what was made up is taken back"


async def test_a_claim_that_stays_is_told_with_the_answer() -> None:
    inner = ScriptedModel(HAND, HAND)
    message = await answer(ToolModeModel(inner, "native"), request())
    assert message.text == HAND
    assert message.metadata["claimed_not_called"] == "add"
    assert len(inner.requests) == 2


async def test_what_was_really_called_may_be_spoken_of() -> None:
    part = ToolPart(call_id="c", tool="add", input={"a": 1, "b": 2}, state="completed", output="3")
    called = Message(id="a", session_id="s", role="assistant", parts=(part,))
    inner = ScriptedModel(HAND)
    message = await answer(ToolModeModel(inner, "native"), request(messages=(GOAL, called)))
    assert "claimed_not_called" not in message.metadata
    assert len(inner.requests) == 1


@pytest.mark.parametrize(
    "text", ["I will use the add tool.", "You could use add for this.", "I can call add.", "3"]
)
async def test_what_is_no_claim_is_left_alone(text: str) -> None:
    inner = ScriptedModel(text)
    message = await answer(ToolModeModel(inner, "native"), request())
    assert (message.text, message.metadata) == (text, {})


@pytest.mark.parametrize("mode", ["json_schema", "prompted"])
async def test_a_call_whose_result_was_just_read_is_not_made_again(mode: ToolMode) -> None:
    made = ToolPart(call_id="c", tool="add", input={"a": 1, "b": 2}, state="completed", output="3")
    asked = Message(id="m2", session_id="s", role="assistant", parts=(made,))
    given = Message(id="m3", session_id="s", role="tool", parts=(made,))
    inner = ScriptedModel(CALL, '{"answer": "It is 3."}')
    message = await answer(ToolModeModel(inner, mode), request(messages=(GOAL, asked, given)))
    assert message.text == "It is 3."
    assert message.tool_calls == ()
    schema = inner.requests[1].output_schema
    if schema is not None:
        assert fits({"answer": "It is 3."}, schema)
        assert not fits(msgspec.json.decode(CALL), schema)


async def test_another_call_after_a_result_is_made() -> None:
    made = ToolPart(call_id="c", tool="add", input={"a": 2, "b": 2}, state="completed", output="4")
    asked = Message(id="m2", session_id="s", role="assistant", parts=(made,))
    given = Message(id="m3", session_id="s", role="tool", parts=(made,))
    model = ToolModeModel(ScriptedModel(CALL), "json_schema")
    message = await answer(model, request(messages=(GOAL, asked, given)))
    assert calls_of(message) == [("add", {"a": 1, "b": 2})]


async def test_each_way_to_answer_stands_as_it_is_written_and_the_answer_last() -> None:
    inner = ScriptedModel('{"answer": "x"}')
    await answer(ToolModeModel(inner, "json_schema"), request())
    told = inner.requests[0].system.splitlines()
    forms = [line for line in told if line.startswith("{")]
    assert forms[0].startswith('{"tool": "add", "arguments": {"a": ')
    assert '"n":{"type":"integer"}' in forms[0]
    assert forms[-1].startswith('{"answer": string}')
