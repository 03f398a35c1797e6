from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import LLMOverloaded, ScriptExhausted, UsageError
from holdfast.messages import Message, TextPart, TokenUsage
from holdfast.providers.model import (
    Delta,
    Finished,
    Model,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from holdfast.testing import FunctionModel, ModelReply, ScriptedModel, tool_call


def ask(text: str) -> ModelRequest:
    message = Message(id="msg_1", session_id="ses_1", role="user", parts=(TextPart(text=text),))
    return ModelRequest(messages=(message,))


async def collect(model: Model, request: ModelRequest, *, deltas: bool = True) -> list[Delta]:
    return [delta async for delta in model.stream(request, deltas=deltas)]


async def answer(model: Model, text: str = "hello") -> Message:
    last = (await collect(model, ask(text)))[-1]
    assert isinstance(last, Finished)
    return last.message


async def test_answers_come_in_the_order_of_the_script_and_requests_are_kept():
    model = ScriptedModel("one", "two")
    assert [(await answer(model, "a")).text, (await answer(model, "b")).text] == ["one", "two"]
    assert [request.messages[-1].text for request in model.requests] == ["a", "b"]
    model.assert_exhausted()


async def test_deltas_join_to_the_message_and_the_last_one_is_finished():
    model = ScriptedModel(ModelReply(text="a few words", reasoning="let me think"))
    deltas = await collect(model, ask("x"))
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == "a few words"
    assert "".join(d.text for d in deltas if isinstance(d, ReasoningDelta)) == "let me think"
    assert isinstance(deltas[-1], Finished)
    assert deltas[-1].message.stop_reason == "stop"
    assert deltas[-1].message.session_id == "ses_1"


async def test_without_deltas_only_the_finished_message_comes():
    deltas = await collect(ScriptedModel("a few words"), ask("x"), deltas=False)
    assert [type(delta) for delta in deltas] == [Finished]


async def test_tool_calls_get_ids_and_their_arguments_arrive_in_pieces():
    model = ScriptedModel([tool_call("add", a=1, b=2), tool_call("read", path="a b c")])
    deltas = await collect(model, ask("x"))
    finished = deltas[-1]
    assert isinstance(finished, Finished)
    calls = finished.message.tool_calls
    assert [call.call_id for call in calls] == ["call_1_0", "call_1_1"]
    assert finished.message.stop_reason == "tool_calls"
    second = [d for d in deltas if isinstance(d, ToolCallDelta) and d.index == 1]
    assert "".join(d.name for d in second) == "read"
    assert "".join(d.arguments for d in second) == '{"path":"a b c"}'


async def test_a_scripted_error_is_raised_and_the_script_goes_on():
    model = ScriptedModel(LLMOverloaded(provider="test", detail="busy"), "fine")
    with pytest.raises(LLMOverloaded):
        await answer(model)
    assert (await answer(model)).text == "fine"


async def test_a_reply_with_an_error_breaks_after_its_deltas():
    error = LLMOverloaded(provider="test", detail="busy")
    model = ScriptedModel(ModelReply(text="half of", error=error))
    seen: list[Delta] = []
    with pytest.raises(LLMOverloaded):
        async for delta in model.stream(ask("x")):
            seen.append(delta)
    assert seen == [TextDelta("half "), TextDelta("of")]
    assert model.open_streams == 0


async def test_an_exhausted_script_says_what_was_asked():
    model = ScriptedModel("only one")
    await answer(model)
    with pytest.raises(ScriptExhausted) as raised:
        await answer(model, "once more")
    assert raised.value.code == "testing.script_exhausted"
    assert raised.value.context == {"answers": 1, "asked": "once more"}


def test_something_that_is_no_answer_is_refused_when_the_script_is_written():
    with pytest.raises(UsageError):
        ScriptedModel(42)  # type: ignore[arg-type]


def test_answers_left_over_fail_the_test():
    with pytest.raises(AssertionError):
        ScriptedModel("unused").assert_exhausted()


async def test_a_held_answer_waits_for_the_test_and_can_be_cancelled():
    hold, begun = asyncio.Event(), asyncio.Event()
    model = ScriptedModel(
        ModelReply(text="late", hold=hold), ModelReply(text="never", hold=asyncio.Event())
    )

    async def watch() -> str:
        text = ""
        async for delta in model.stream(ask("x")):
            begun.set()
            text = delta.message.text if isinstance(delta, Finished) else text
        return text

    task = asyncio.ensure_future(watch())
    await asyncio.wait_for(begun.wait(), 30)
    assert model.open_streams == 1
    hold.set()
    assert await asyncio.wait_for(task, 30) == "late"
    begun.clear()
    task = asyncio.ensure_future(watch())
    await asyncio.wait_for(begun.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert model.open_streams == 0


async def test_a_function_answers_plainly_or_later():
    async def later(request: ModelRequest) -> str:
        return request.messages[-1].text.upper()

    assert (await answer(FunctionModel(lambda request: "plain"), "a")).text == "plain"
    model = FunctionModel(later)
    assert (await answer(model, "a")).text == "A"
    assert len(model.requests) == 1


async def test_usage_can_be_scripted_and_a_whole_message_goes_through_unchanged():
    usage = TokenUsage(input=7, output=3, cache_read=2)
    assert (await answer(ScriptedModel(ModelReply(text="x", usage=usage)))).usage == usage
    message = Message(id="msg_9", session_id="s", role="assistant", parts=(TextPart(text="x"),))
    assert await answer(ScriptedModel(message)) is message


async def test_a_closed_model_refuses_to_be_asked():
    model = ScriptedModel("x")
    await model.close()
    with pytest.raises(UsageError):
        await answer(model)
