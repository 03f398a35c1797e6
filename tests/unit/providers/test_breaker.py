from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import (
    LLMBadRequest,
    LLMCircuitOpen,
    LLMConnectionError,
    LLMOverloaded,
    LLMRateLimited,
    UsageError,
)
from holdfast.messages import Message, TextPart
from holdfast.providers.breaker import (
    BreakerModel,
    BreakerPolicy,
    CircuitBreaker,
    CircuitBreakers,
)
from holdfast.providers.model import Model, ModelRequest
from holdfast.testing import FakeClock, ModelReply, ScriptedModel

REQUEST = ModelRequest(
    messages=(Message(id="m", session_id="s", role="user", parts=(TextPart(text="hi"),)),)
)
DOWN = LLMConnectionError(provider="test", detail="down")
POLICY = BreakerPolicy(failures_in_row=3, failure_rate=0.5, rate_calls=6, open_s=10)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def breaker(clock: FakeClock) -> CircuitBreaker:
    return CircuitBreaker("http://127.0.0.1", policy=POLICY, clock=clock)


async def ask(model: Model) -> str:
    try:
        async for _ in model.stream(REQUEST):
            continue
    except (LLMConnectionError, LLMOverloaded, LLMBadRequest, LLMRateLimited) as error:
        return error.code
    except LLMCircuitOpen as error:
        return error.code
    return "fine"


async def fail(breaker: CircuitBreaker, times: int) -> None:
    for _ in range(times):
        await ask(BreakerModel(ScriptedModel(DOWN), breaker))


async def test_failures_in_a_row_open_the_circuit_and_calls_are_refused_unsent(breaker, clock):
    await fail(breaker, 3)
    inner = ScriptedModel("fine")
    clock.advance(4)
    with pytest.raises(LLMCircuitOpen) as raised:
        async for _ in BreakerModel(inner, breaker).stream(REQUEST):
            continue
    assert raised.value.context == {"provider": "test", "failures": 3, "retry_after_s": 6}
    assert inner.requests == []
    assert breaker.state == "open"


async def test_a_success_between_failures_keeps_the_circuit_closed(breaker):
    await fail(breaker, 2)
    assert await ask(BreakerModel(ScriptedModel("fine"), breaker)) == "fine"
    await fail(breaker, 2)
    assert breaker.state == "closed"


async def test_a_high_rate_of_failures_opens_the_circuit_without_a_row(breaker):
    for _ in range(3):
        await ask(BreakerModel(ScriptedModel("fine"), breaker))
        assert breaker.state == "closed"
        await fail(breaker, 1)
    assert breaker.state == "open"


async def test_a_good_probe_closes_the_circuit(breaker, clock):
    await fail(breaker, 3)
    clock.advance(10)
    assert breaker.state == "half_open"
    assert await ask(BreakerModel(ScriptedModel("fine"), breaker)) == "fine"
    assert breaker.state == "closed"
    await fail(breaker, 2)
    assert breaker.state == "closed"


async def test_a_failed_probe_opens_the_circuit_again(breaker, clock):
    await fail(breaker, 3)
    clock.advance(10)
    await fail(breaker, 1)
    assert breaker.state == "open"
    clock.advance(9)
    assert await ask(BreakerModel(ScriptedModel("fine"), breaker)) == "llm.circuit_open"


async def test_only_one_probe_runs_at_a_time_and_a_cancelled_one_gives_its_place_back(
    breaker, clock
):
    await fail(breaker, 3)
    clock.advance(10)
    begun = asyncio.Event()

    async def probe() -> None:
        model = BreakerModel(ScriptedModel(ModelReply(text="x", hold=asyncio.Event())), breaker)
        async for _ in model.stream(REQUEST):
            begun.set()

    task = asyncio.ensure_future(probe())
    await asyncio.wait_for(begun.wait(), 30)
    assert await ask(BreakerModel(ScriptedModel("fine"), breaker)) == "llm.circuit_open"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert breaker.state == "half_open"
    assert await ask(BreakerModel(ScriptedModel("fine"), breaker)) == "fine"


async def test_calls_from_before_the_opening_do_not_count_afterwards(breaker, clock):
    early = breaker.enter("test")
    late = breaker.enter("test")
    await fail(breaker, 3)
    breaker.leave(early, "success")
    assert breaker.state == "open"
    clock.advance(10)
    breaker.leave(late, "failure")
    assert breaker.state == "half_open"


@pytest.mark.parametrize(
    "error",
    [
        LLMBadRequest(provider="test", detail="no"),
        LLMRateLimited(provider="test", detail="slow down"),
    ],
    ids=lambda error: error.code,
)
async def test_refused_requests_and_rate_limits_do_not_open_the_circuit(breaker, error):
    for _ in range(20):
        await ask(BreakerModel(ScriptedModel(error), breaker))
    assert breaker.state == "closed"


async def test_models_of_one_endpoint_share_a_breaker_and_others_do_not(clock):
    breakers = CircuitBreakers(policy=POLICY, clock=clock)
    await fail(breakers.of("a"), 3)
    assert await ask(BreakerModel(ScriptedModel("x"), breakers.of("a"))) == "llm.circuit_open"
    assert await ask(BreakerModel(ScriptedModel("x"), breakers.of("b"))) == "fine"


@pytest.mark.parametrize(
    "wrong",
    [{"failures_in_row": 0}, {"failure_rate": 0.0}, {"open_s": 0.0}, {"rate_calls": 0}],
    ids=str,
)
def test_a_policy_without_meaning_is_refused(wrong):
    with pytest.raises(UsageError):
        BreakerPolicy(**wrong)
