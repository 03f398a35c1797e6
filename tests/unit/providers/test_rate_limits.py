from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import (
    ConfigError,
    LLMCircuitOpen,
    LLMOverloaded,
    RateLimitError,
    RateRuleTooSmall,
)
from holdfast.messages import Message, TextPart, TokenUsage
from holdfast.providers.events import ProviderRateLimited
from holdfast.providers.model import Finished, ModelRequest
from holdfast.providers.rate_limits import RateLimitedModel, RateLimiter
from holdfast.providers.rate_rules import RateLimitRule, RateSubject
from holdfast.providers.rate_store import WindowRateStore, open_rate_store
from holdfast.testing import FakeClock, ModelReply, ScriptedModel

REQUEST = ModelRequest(
    messages=(Message(id="m", session_id="s", role="user", parts=(TextPart(text="hi"),)),)
)
ANN = RateSubject(model="p:m", agent="ann", tenant="acme")
BOB = RateSubject(model="p:m", agent="bob", tenant="acme")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def limiter(clock: FakeClock, *rules: RateLimitRule, **options) -> RateLimiter:
    options.setdefault("on_exhausted", "refuse")
    return RateLimiter(rules, clock=clock, sleep=clock.sleep, **options)


async def admitted(limits: RateLimiter, subject: RateSubject, times: int, **tokens: int) -> int:
    done = 0
    for _ in range(times):
        try:
            await limits.acquire(subject, **tokens)
        except RateLimitError:
            continue
        done += 1
    return done


async def test_calls_beyond_a_rule_are_refused_with_the_time_to_wait(clock):
    limits = limiter(clock, RateLimitRule(name="slow", max_calls=2, window_seconds=60))
    await limits.acquire(ANN)
    clock.advance(10)
    await limits.acquire(ANN)
    with pytest.raises(RateLimitError) as raised:
        await limits.acquire(BOB)
    assert raised.value.context == {
        "rule": "slow",
        "unit": "calls",
        "retry_after_s": 50,
        "scope": "global",
    }
    clock.advance(50)
    await limits.acquire(BOB)


async def test_each_subject_of_a_scope_has_a_window_of_its_own(clock):
    for scope, others in {"agent": 2, "tenant": 0, "model": 0, "global": 0}.items():
        rule = RateLimitRule(name=scope, max_calls=2, scope=scope)
        limits = limiter(clock, rule)
        assert await admitted(limits, ANN, 3) == 2
        assert await admitted(limits, BOB, 3) == others
        other = RateSubject(model="q:m", agent="cy", tenant="else")
        assert await admitted(limits, other, 3) == (0 if scope == "global" else 2)


async def test_two_rules_of_the_same_shape_never_share_a_history(clock):
    """In an ancestor one history served all rules, so that a second rule halved the first."""
    first = RateLimitRule(name="first", max_calls=4, scope="agent")
    second = RateLimitRule(name="second", max_calls=4, scope="agent")
    assert await admitted(limiter(clock, first, second), ANN, 9) == 4


async def test_names_with_separators_cannot_reach_into_another_window(clock):
    first = RateLimitRule(name="a", max_calls=1, scope="agent")
    second = RateLimitRule(name="a/agent/x", max_calls=1, scope="agent")
    limits = limiter(clock, first)
    assert await admitted(limits, RateSubject(agent="x/agent/y"), 1) == 1
    both = limiter(clock, first, second)
    assert await admitted(both, RateSubject(agent="x/agent/y"), 1) == 1
    assert await admitted(both, RateSubject(agent="y"), 1) == 1


async def test_a_refused_call_charges_no_rule_at_all(clock):
    wide = RateLimitRule(name="wide", max_calls=3, max_tokens=100, scope="tenant")
    tight = RateLimitRule(name="tight", max_calls=1, scope="agent")
    limits = limiter(clock, wide, tight)
    assert await admitted(limits, ANN, 5, input_tokens=20) == 1
    assert await admitted(limits, BOB, 1, input_tokens=80) == 1


async def test_calls_at_the_same_moment_cannot_overshoot_together(clock):
    rules = [RateLimitRule(name=str(n), max_calls=10, max_tokens=1000) for n in range(3)]
    limits = limiter(clock, *rules)
    done = await asyncio.gather(*(admitted(limits, ANN, 1, input_tokens=50) for _ in range(40)))
    assert sum(done) == 10


async def test_tokens_are_reserved_by_estimate_and_corrected_afterwards(clock):
    limits = limiter(clock, RateLimitRule(name="t", max_tokens=1000))
    held = await limits.acquire(ANN, input_tokens=100, output_tokens=700)
    assert await admitted(limits, ANN, 1, input_tokens=300) == 0
    await limits.settle(held, 150)
    assert await admitted(limits, ANN, 1, input_tokens=850) == 1
    assert await admitted(limits, ANN, 1, input_tokens=1) == 0


async def test_tokens_used_beyond_the_estimate_count_too(clock):
    limits = limiter(clock, RateLimitRule(name="t", max_tokens=1000))
    held = await limits.acquire(ANN, input_tokens=100)
    await limits.settle(held, 1500)
    assert await admitted(limits, ANN, 1, input_tokens=1) == 0
    clock.advance(60)
    assert await admitted(limits, ANN, 1, input_tokens=1000) == 1


async def test_a_call_longer_than_the_window_still_counts_what_it_used_beyond(clock):
    limits = limiter(clock, RateLimitRule(name="t", max_tokens=1000, window_seconds=10))
    held = await limits.acquire(ANN, input_tokens=100)
    clock.advance(30)
    await limits.settle(held, 1100)
    assert await admitted(limits, ANN, 1, input_tokens=1) == 0


async def test_a_correction_changes_the_call_it_belongs_to(clock):
    limits = limiter(clock, RateLimitRule(name="t", max_tokens=1000))
    first = await limits.acquire(ANN, input_tokens=500)
    clock.advance(30)
    await limits.acquire(ANN, input_tokens=400)
    await limits.settle(first, 600)
    with pytest.raises(RateLimitError) as raised:
        await limits.acquire(ANN, input_tokens=500)
    assert raised.value.context["retry_after_s"] == 30


async def test_input_that_never_fits_is_refused_for_good_but_an_estimate_is_capped(clock):
    limits = limiter(clock, RateLimitRule(name="t", max_tokens=1000), on_exhausted="wait")
    with pytest.raises(RateRuleTooSmall) as raised:
        await limits.acquire(ANN, input_tokens=1001)
    assert raised.value.is_retryable is False
    await limits.acquire(ANN, input_tokens=900, output_tokens=8000)


async def test_waiting_calls_go_when_there_is_room(clock):
    rule = RateLimitRule(name="r", max_calls=2, window_seconds=30)
    limits = limiter(clock, rule, on_exhausted="wait")
    begun = clock.monotonic()
    waited = [(await limits.acquire(ANN)).waited_s for _ in range(5)]
    assert waited[:2] == [0, 0]
    assert clock.monotonic() - begun == pytest.approx(60, abs=1.1)


async def test_a_wait_longer_than_allowed_is_refused_at_once(clock):
    rule = RateLimitRule(name="r", max_calls=1, window_seconds=3600)
    limits = limiter(clock, rule, on_exhausted="wait", max_wait_s=60)
    await limits.acquire(ANN)
    begun = clock.monotonic()
    with pytest.raises(RateLimitError):
        await limits.acquire(ANN)
    assert clock.monotonic() == begun


async def test_who_waits_is_served_before_later_calls_for_the_same_window(clock):
    gate = asyncio.Event()

    async def sleep(seconds: float) -> None:
        await gate.wait()
        await clock.sleep(seconds)

    rule = RateLimitRule(name="t", max_tokens=100, scope="tenant")
    limits = RateLimiter([rule], clock=clock, sleep=sleep)
    order: list[str] = []

    async def call(name: str, tokens: int, tenant: str = "acme") -> None:
        await limits.acquire(RateSubject(tenant=tenant), input_tokens=tokens)
        order.append(name)

    await call("first", 60)
    big = asyncio.ensure_future(call("big", 90))
    await asyncio.sleep(0)
    small = asyncio.ensure_future(call("small", 10))
    await asyncio.sleep(0)
    await call("elsewhere", 90, tenant="other")
    assert order == ["first", "elsewhere"]
    gate.set()
    await asyncio.wait_for(asyncio.gather(big, small), 30)
    assert order == ["first", "elsewhere", "big", "small"]


async def test_a_call_cancelled_while_it_waits_charges_nothing_and_blocks_nobody(clock):
    rule = RateLimitRule(name="r", max_calls=1)
    limits = RateLimiter([rule], clock=clock, sleep=lambda seconds: asyncio.Event().wait())
    await limits.acquire(ANN)
    task = asyncio.ensure_future(limits.acquire(ANN))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    clock.advance(60)
    await asyncio.wait_for(limits.acquire(ANN), 30)


async def test_a_model_settles_with_the_usage_of_the_answer(clock):
    limits = limiter(clock, RateLimitRule(name="t", max_tokens=1200))
    inner = ScriptedModel(ModelReply(text="x", usage=TokenUsage(input=10, output=5)), "again")
    model = RateLimitedModel(inner, limits, agent="ann")
    async for _ in model.stream(REQUEST):
        continue
    async for delta in model.stream(REQUEST):
        last = delta
    assert isinstance(last, Finished)


async def test_a_model_reports_and_refuses_before_anything_is_sent(clock):
    events = []
    limits = limiter(clock, RateLimitRule(name="one", max_calls=1, scope="model"))
    inner = ScriptedModel("x", "y")
    model = RateLimitedModel(inner, limits, on_event=events.append)
    async for _ in model.stream(REQUEST):
        continue
    with pytest.raises(RateLimitError) as raised:
        async for _ in model.stream(REQUEST):
            continue
    assert raised.value.context["scope"] == "model"
    assert len(inner.requests) == 1
    assert events == [
        ProviderRateLimited(
            provider="test", model="scripted", rule="one", wait_s=60, is_refused=True
        )
    ]


async def test_an_open_circuit_gives_the_charge_back_and_other_failures_keep_it(clock):
    limits = limiter(clock, RateLimitRule(name="one", max_calls=1))
    opened = LLMCircuitOpen(provider="test", failures=5, retry_after_s=1)
    model = RateLimitedModel(ScriptedModel(opened, LLMOverloaded(provider="t", detail="")), limits)
    for expected in (LLMCircuitOpen, LLMOverloaded, RateLimitError):
        with pytest.raises(expected):
            async for _ in model.stream(REQUEST):
                continue


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "r"},
        {"name": "r", "max_calls": 0},
        {"name": "r", "max_tokens": -1},
        {"name": "r", "max_calls": True},
        {"name": "r", "max_calls": 1, "window_seconds": 0},
        {"name": "r", "max_calls": 1, "scope": "planet"},
    ],
    ids=str,
)
def test_a_rule_that_cannot_be_meant_is_refused(wrong):
    with pytest.raises(ConfigError):
        RateLimitRule(**wrong)


def test_two_rules_of_one_name_are_refused():
    rule = RateLimitRule(name="r", max_calls=1)
    with pytest.raises(ConfigError):
        RateLimiter([rule, rule])


def test_a_storage_address_that_cannot_be_used_is_a_clear_error_without_its_password():
    assert isinstance(open_rate_store(), WindowRateStore)
    for uri in ("nonsense://user:hunter2@host", "memory://"):
        with pytest.raises(ConfigError) as raised:
            open_rate_store(uri)
        assert "hunter2" not in str(raised.value)
