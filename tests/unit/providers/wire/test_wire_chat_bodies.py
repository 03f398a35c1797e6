"""Chat answers that come as one body, from servers that take liberties with it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.errors import LLMOverloaded, LLMProtocolError
from holdfast.messages import ReasoningPart, TextPart, TokenUsage, ToolPart
from holdfast.providers.model import ModelInfo
from holdfast.providers.wire import Endpoint
from holdfast.providers.wire.chat import ChatCodec
from holdfast.providers.wire.codec import MAX_TOOL_CALLS, Answer


def read(said: dict[str, Any], *, finish: str | None = "stop", **more: Any) -> Answer:
    endpoint = Endpoint(provider="p", base_url="http://h/v1")
    codec = ChatCodec(endpoint, ModelInfo(provider="p", model="m"))
    choice = {"index": 0, "message": said, "finish_reason": finish}
    return codec.decode(json.dumps({"id": "i", "choices": [choice], **more}).encode())


def call(**more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "add", "arguments": '{"a": 1}', **more}}


def test_calls_that_share_an_index_and_have_no_ids_are_two_calls() -> None:
    calls = [{"index": 0, **call()}, {"index": 0, **call(arguments={"a": 2})}]
    answer = read({"tool_calls": calls}, finish=None)
    first, second = answer.parts
    assert isinstance(first, ToolPart) and isinstance(second, ToolPart)
    assert (first.input, second.input) == ({"a": 1}, {"a": 2})
    assert first.call_id and second.call_id and first.call_id != second.call_id
    assert answer.stop_reason == "tool_calls"


def test_texts_and_thoughts_in_a_list_are_told_apart() -> None:
    thinking = {"type": "thinking", "thinking": [{"text": "Well, "}, {"text": "no."}, 5]}
    answer = read({"content": [thinking, {"type": "text", "text": "No."}, "odd"]})
    assert answer.parts == (ReasoningPart(text="Well, no."), TextPart(text="No."))


def test_only_the_first_answer_counts() -> None:
    other = {"index": 1, "message": {"content": "Other."}, "finish_reason": "stop"}
    mine = {"index": 0, "message": {"content": "Mine."}, "finish_reason": "length"}
    answer = read({}, choices=[other, mine])
    assert (answer.parts, answer.stop_reason) == ((TextPart(text="Mine."),), "length")
    assert read({}, choices=[other]).parts == ()


def test_a_refusal_is_filtered_text() -> None:
    answer = read({"content": None, "refusal": "I will not."})
    assert (answer.parts, answer.stop_reason) == ((TextPart(text="I will not."),), "filtered")


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, None),
        ("many", None),
        ({"prompt_tokens": 9, "completion_tokens": 4}, TokenUsage(input=9, output=4)),
        ({"prompt_tokens": 9.0, "completion_tokens": "4"}, TokenUsage(input=9)),
        ({"prompt_tokens": -9, "completion_tokens": 10**13}, TokenUsage()),
        (
            {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": None}},
            TokenUsage(input=9),
        ),
        (
            {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 2}, "x": "odd"},
            TokenUsage(input=7, cache_read=2),
        ),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": True,
                "prompt_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 3.0},
                "completion_tokens_details": {"reasoning_tokens": []},
            },
            TokenUsage(input=4, cache_read=2, cache_write=3),
        ),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "total_tokens": 18,
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
            TokenUsage(input=9, output=4, reasoning=5),
        ),
        ({"prompt_tokens": 9, "prompt_cache_hit_tokens": 4}, TokenUsage(input=5, cache_read=4)),
    ],
)
def test_what_can_be_counted_is_counted(usage: Any, expected: TokenUsage | None) -> None:
    assert read({"content": "x"}, usage=usage).usage == expected


@pytest.mark.parametrize(
    ("said", "more", "error"),
    [
        ({"tool_calls": [call(name=None)]}, {}, LLMProtocolError),
        ({"tool_calls": [call()] * (MAX_TOOL_CALLS + 1)}, {}, LLMProtocolError),
        ({}, {"choices": []}, LLMProtocolError),
        ({"content": "x"}, {"choices": None}, LLMProtocolError),
        ({"content": "x"}, {"error": {"message": "busy", "code": 503}}, LLMOverloaded),
        ({"content": "x"}, {"finish": "error"}, LLMOverloaded),
        ({"content": 5}, {}, LLMProtocolError),
    ],
)
def test_what_is_no_answer_is_an_error(
    said: dict[str, Any], more: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        read(said, **more)
