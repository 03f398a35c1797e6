from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.errors import (
    LLMBadRequest,
    LLMCircuitOpen,
    LLMConnectionError,
    LLMError,
    LLMOverloaded,
    LLMRateLimited,
    RateLimitError,
    UsageError,
)
from holdfast.messages import Message, TextPart
from holdfast.providers.breaker import BreakerModel, CircuitBreaker
from holdfast.providers.events import ModelRetried, ProviderEvent, ProviderRateLimited
from holdfast.providers.fallback import FallbackModel
from holdfast.providers.model import Delta, Finished, Model, ModelRequest, Restarted, TextDelta
from holdfast.providers.retry import RetryingModel, RetryPolicy, use_retry_policy
from holdfast.testing import FakeClock, FunctionModel, ModelReply, ScriptedModel

REQUEST = ModelRequest(
    messages=(Message(id="m", session_id="s", role="user", parts=(TextPart(text="hi"),)),)
)
BUSY = LLMOverloaded(provider="test", detail="busy")


def retrying(
    inner: Model, policy: RetryPolicy | None = None, jitter: float = 0.0
) -> tuple[RetryingModel, FakeClock, list[ProviderEvent]]:
    clock, events = FakeClock(), []
    model = RetryingModel(
        inner,
        policy=policy or RetryPolicy(),
        on_event=events.append,
        clock=clock,
        sleep=clock.sleep,
        jitter=lambda low, high: min(jitter, high),
    )
    return model, clock, events


async def collect(model: Model, *, deltas: bool = True) -> list[Delta]:
    return [delta async for delta in model.stream(REQUEST, deltas=deltas)]


async def test_a_transient_failure_is_retried_after_a_growing_wait_and_reported():
    model, clock, events = retrying(ScriptedModel(BUSY, BUSY, BUSY, "fine"), jitter=0.25)
    begun = clock.monotonic()
    last = (await collect(model))[-1]
    assert isinstance(last, Finished)
    assert last.message.text == "fine"
    waits = [event.wait_s for event in events if isinstance(event, ModelRetried)]
    assert waits == [0.75, 1.25, 2.25]
    assert clock.monotonic() - begun == sum(waits)
    assert [event.attempt for event in events if isinstance(event, ModelRetried)] == [2, 3, 4]
    assert {event.error_code for event in events if isinstance(event, ModelRetried)} == {
        "llm.overloaded"
    }


async def test_the_last_error_is_raised_when_the_attempts_are_used_up():
    inner = ScriptedModel(*[LLMOverloaded(provider="test", detail=str(n)) for n in range(9)])
    model, _, events = retrying(inner, RetryPolicy(attempts=3))
    with pytest.raises(LLMOverloaded) as raised:
        await collect(model)
    assert raised.value.context["detail"] == "2"
    assert len(inner.requests) == 3
    assert len(events) == 2


@pytest.mark.parametrize(
    "error",
    [
        LLMBadRequest(provider="test", detail="no"),
        LLMError(provider="test", detail="?"),
        LLMCircuitOpen(provider="test", failures=5, retry_after_s=1),
        RateLimitError(rule="r", unit="calls", retry_after_s=1),
        ValueError("a bug"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_other_errors_are_not_retried(error: Exception):
    inner = ScriptedModel(error, "fine")
    model, _, events = retrying(inner)
    with pytest.raises(type(error)):
        await collect(model)
    assert len(inner.requests) == 1
    assert events == []


async def test_a_final_error_after_a_transient_one_ends_the_retrying():
    inner = ScriptedModel(BUSY, LLMBadRequest(provider="test", detail="no"), "fine")
    model, _, _ = retrying(inner)
    with pytest.raises(LLMBadRequest):
        await collect(model)
    assert len(inner.requests) == 2


async def test_the_wait_that_the_provider_asks_for_is_obeyed_and_reported():
    slow = LLMRateLimited(provider="test", detail="slow down", retry_after_s=45)
    model, clock, events = retrying(ScriptedModel(slow, "fine"))
    begun = clock.monotonic()
    await collect(model)
    assert clock.monotonic() - begun == 45
    assert [type(event) for event in events] == [ProviderRateLimited, ModelRetried]
    assert all(event.wait_s == 45 for event in events if not isinstance(event, str))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, "soon", True, None])
async def test_a_senseless_wait_is_ignored(value: object):
    slow = LLMRateLimited(provider="test", detail="slow down", retry_after_s=value)
    model, clock, _ = retrying(ScriptedModel(slow, "fine"))
    begun = clock.monotonic()
    await collect(model)
    assert clock.monotonic() - begun == 0.5


async def test_a_wait_that_would_break_the_total_bound_is_not_begun():
    slow = LLMRateLimited(provider="test", detail="slow down", retry_after_s=3600)
    inner = ScriptedModel(slow, "fine")
    model, clock, events = retrying(inner)
    begun = clock.monotonic()
    with pytest.raises(LLMRateLimited):
        await collect(model)
    assert (clock.monotonic(), len(inner.requests), events) == (begun, 1, [])


async def test_listeners_are_told_to_drop_the_half_text():
    inner = ScriptedModel(ModelReply(text="half of", error=BUSY), BUSY, "whole")
    model, _, _ = retrying(inner)
    deltas = await collect(model)
    assert deltas[:3] == [
        TextDelta("half "),
        TextDelta("of"),
        Restarted("llm.overloaded", "test", "scripted"),
    ]
    assert [type(delta) for delta in deltas[3:]] == [TextDelta, Finished]


async def test_nobody_is_told_to_restart_when_nothing_was_shown():
    model, _, _ = retrying(ScriptedModel(BUSY, "whole"))
    assert not [delta for delta in await collect(model) if isinstance(delta, Restarted)]
    model, _, _ = retrying(ScriptedModel(ModelReply(text="half of", error=BUSY), "whole"))
    assert [type(delta) for delta in await collect(model, deltas=False)] == [Finished]


class FailsAfterFinished(ScriptedModel):
    async def stream(self, request: ModelRequest, *, deltas: bool = True) -> AsyncIterator[Delta]:
        async for delta in super().stream(request, deltas=deltas):
            yield delta
        raise LLMConnectionError(provider="test", detail="late")


async def test_nothing_is_retried_once_the_answer_was_given():
    inner = FailsAfterFinished("one", "two")
    model, _, events = retrying(inner)
    seen = []
    with pytest.raises(LLMConnectionError):
        async for delta in model.stream(REQUEST, deltas=False):
            seen.append(delta)
    assert (len(seen), len(inner.requests), events) == (1, 1, [])


async def test_nor_after_an_answer_that_needed_a_second_attempt():
    inner = FailsAfterFinished(BUSY, "one", "two")
    model, _, events = retrying(inner)
    with pytest.raises(LLMConnectionError):
        await collect(model)
    assert (len(inner.requests), len(events)) == (2, 1)


async def test_cancellation_passes_untouched_and_closes_the_stream():
    begun = asyncio.Event()
    inner = ScriptedModel(BUSY, ModelReply(text="x", hold=asyncio.Event()), "never")
    model, _, _ = retrying(inner)

    async def watch() -> None:
        async for _ in model.stream(REQUEST):
            begun.set()

    task = asyncio.ensure_future(watch())
    await asyncio.wait_for(begun.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (len(inner.requests), inner.open_streams) == (2, 0)


async def test_closing_early_closes_the_stream_inside_at_once():
    inner = ScriptedModel(BUSY, "some words here")
    model, _, _ = retrying(inner)
    stream = model.stream(REQUEST)
    assert await anext(stream) == TextDelta("some ")
    assert inner.open_streams == 1
    await stream.aclose()
    assert inner.open_streams == 0


def test_a_second_layer_of_retries_is_refused_wherever_it_hides():
    inner, _, _ = retrying(ScriptedModel())
    for model in (inner, BreakerModel(inner, CircuitBreaker("x")), FallbackModel([inner])):
        with pytest.raises(UsageError):
            RetryingModel(model)


async def test_one_policy_holds_for_every_model_without_its_own():
    inner = ScriptedModel(BUSY, "fine")
    model = RetryingModel(inner)
    with use_retry_policy(RetryPolicy(attempts=1)), pytest.raises(LLMOverloaded):
        await collect(model)
    assert len(inner.requests) == 1
    assert model.policy == RetryPolicy()
    own = RetryingModel(ScriptedModel(BUSY, "fine"), policy=RetryPolicy(wait_max_s=0))
    with use_retry_policy(RetryPolicy(attempts=1)):
        await asyncio.wait_for(collect(own), 30)


async def test_without_a_sleep_of_ones_own_the_loop_waits():
    policy = RetryPolicy(wait_initial_s=0.001, wait_jitter_s=0.0)
    events = []
    model = RetryingModel(ScriptedModel(BUSY, "fine"), policy=policy, on_event=events.append)
    await asyncio.wait_for(collect(model), 30)
    assert [event.wait_s for event in events if isinstance(event, ModelRetried)] == [0.001]


async def test_a_base_that_overflows_waits_no_longer_than_allowed():
    policy = RetryPolicy(attempts=70, wait_base=1e300, wait_max_s=0.5, total_s=1e9)
    model, clock, _ = retrying(ScriptedModel(*[BUSY] * 69, "fine"), policy=policy)
    await collect(model)


async def test_info_counting_and_closing_are_those_of_the_model_inside():
    inner = FunctionModel(lambda request: "x")
    model, _, _ = retrying(inner)
    assert model.info is inner.info
    assert model.count_tokens(REQUEST) == inner.count_tokens(REQUEST)
    await model.close()
    assert inner.is_closed


@pytest.mark.parametrize(
    "wrong",
    [{"attempts": 0}, {"total_s": -1}, {"wait_base": 0.5}, {"wait_max_s": float("nan")}],
    ids=str,
)
def test_a_policy_without_meaning_is_refused(wrong: dict[str, float]):
    with pytest.raises(UsageError):
        RetryPolicy(**wrong)
