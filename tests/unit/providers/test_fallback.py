from __future__ import annotations

import pytest

from holdfast.errors import (
    LLMAuthError,
    LLMBadRequest,
    LLMCircuitOpen,
    LLMContentFiltered,
    LLMContextTooLong,
    LLMOverloaded,
    LLMQuotaExhausted,
    RateLimitError,
    UsageError,
)
from holdfast.messages import Message, TextPart
from holdfast.providers.events import ModelFellBack
from holdfast.providers.fallback import FallbackModel
from holdfast.providers.model import Finished, Model, ModelInfo, ModelRequest, Restarted, TextDelta
from holdfast.testing import ModelReply, ScriptedModel

REQUEST = ModelRequest(
    messages=(Message(id="m", session_id="s", role="user", parts=(TextPart(text="hi"),)),)
)
BUSY = LLMOverloaded(provider="a", detail="busy")


def model(name: str, *answers: object, window: int = 1000) -> ScriptedModel:
    info = ModelInfo(provider=name, model=name + "-1", context_window=window)
    return ScriptedModel(*answers, info=info)  # type: ignore[arg-type]


async def text_of(asked: Model) -> str:
    async for delta in asked.stream(REQUEST, deltas=False):
        if isinstance(delta, Finished):
            return delta.message.text
    raise AssertionError("no answer")


async def test_the_first_model_answers_when_it_can():
    second = model("b", "from b")
    assert await text_of(FallbackModel([model("a", "from a"), second])) == "from a"
    assert second.requests == []


async def test_the_next_model_answers_and_the_reason_is_reported():
    events = []
    both = FallbackModel([model("a", BUSY), model("b", "from b")], on_event=events.append)
    assert await text_of(both) == "from b"
    assert events == [
        ModelFellBack(
            from_provider="a",
            from_model="a-1",
            to_provider="b",
            to_model="b-1",
            error_code="llm.overloaded",
            reason=str(BUSY),
        )
    ]


@pytest.mark.parametrize(
    "error",
    [
        LLMAuthError(provider="a", detail="wrong key", key_env="A_KEY"),
        LLMQuotaExhausted(provider="a", detail="insufficient_quota"),
        LLMCircuitOpen(provider="a", failures=5, retry_after_s=30),
        RateLimitError(rule="r", unit="calls", retry_after_s=5, scope="model"),
    ],
    ids=lambda error: error.code,
)
async def test_troubles_of_one_endpoint_move_on(error):
    assert await text_of(FallbackModel([model("a", error), model("b", "from b")])) == "from b"


@pytest.mark.parametrize(
    "error",
    [
        LLMBadRequest(provider="a", detail="no"),
        LLMContentFiltered(provider="a", detail="no"),
        RateLimitError(rule="r", unit="calls", retry_after_s=5, scope="tenant"),
    ],
    ids=lambda error: error.code,
)
async def test_troubles_of_the_request_do_not(error):
    second = model("b", "from b")
    with pytest.raises(type(error)):
        await text_of(FallbackModel([model("a", error), second]))
    assert second.requests == []


async def test_a_request_too_long_goes_to_a_larger_window_only():
    long = LLMContextTooLong(model="a-1", detail="1200 of 1000")
    same, larger = model("b", "from b"), model("c", "from c", window=9000)
    assert await text_of(FallbackModel([model("a", long), same, larger])) == "from c"
    assert same.requests == []
    with pytest.raises(LLMContextTooLong):
        await text_of(FallbackModel([model("a", long), same]))


async def test_listeners_are_told_to_drop_the_half_text_of_the_first_model():
    broken = model("a", ModelReply(text="half of", error=BUSY))
    deltas = [d async for d in FallbackModel([broken, model("b", "whole")]).stream(REQUEST)]
    assert deltas[:4] == [
        TextDelta("half "),
        TextDelta("of"),
        Restarted("llm.overloaded", "b", "b-1"),
        TextDelta("whole"),
    ]


async def test_the_last_error_is_raised_when_nobody_is_left():
    with pytest.raises(LLMAuthError):
        auth = LLMAuthError(provider="b", detail="no", key_env="B_KEY")
        await text_of(FallbackModel([model("a", BUSY), model("b", auth)]))


async def test_every_call_begins_at_the_top():
    both = FallbackModel([model("a", BUSY, "from a"), model("b", "from b")])
    assert [await text_of(both), await text_of(both)] == ["from b", "from a"]


class Unclosable(ScriptedModel):
    async def close(self) -> None:
        raise ValueError("cannot")


async def test_closing_closes_all_also_when_one_fails():
    last = model("b")
    with pytest.raises(ValueError, match="cannot"):
        await FallbackModel([Unclosable(), last]).close()
    assert last.is_closed
    with pytest.raises(UsageError):
        FallbackModel([])
