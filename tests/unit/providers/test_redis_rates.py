from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator

import pytest
from small_redis import SmallRedis, small_redis

from holdfast.errors import ConfigError, MissingExtra, RateLimitError, RateStoreFailed
from holdfast.providers.rate_limits import RateLimiter
from holdfast.providers.rate_rules import RateLimitRule, RateSubject
from holdfast.providers.rate_store import open_rate_store
from holdfast.testing import FakeClock

ANN = RateSubject(model="m", agent="ann", tenant="acme")
CALLS = "holdfast:rate:60:r/global//calls"
TOKENS = "holdfast:rate:60:r/global//tokens"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(start=1_000_000.0)


@pytest.fixture
async def redis(clock: FakeClock) -> AsyncIterator[SmallRedis]:
    async with small_redis(clock) as server:
        yield server


def limiter(redis: SmallRedis, *rules: RateLimitRule) -> RateLimiter:
    given = rules or (RateLimitRule(name="r", max_calls=2, max_tokens=100),)
    return RateLimiter(given, on_exhausted="refuse", store=open_rate_store(redis.url))


async def test_processes_share_their_windows(redis: SmallRedis, clock: FakeClock) -> None:
    here, there = limiter(redis), limiter(redis)
    await here.acquire(ANN, input_tokens=10)
    clock.advance(30)
    await there.acquire(ANN, input_tokens=10)
    with pytest.raises(RateLimitError) as raised:
        await here.acquire(ANN, input_tokens=10)
    assert 30 <= raised.value.context["retry_after_s"] <= 30.6
    clock.advance(30.6)
    await here.acquire(ANN, input_tokens=10)
    assert sum(redis.hashes[CALLS].values()) == 2
    await here.close()
    await there.close()


async def test_a_refused_call_costs_nothing_anywhere(redis: SmallRedis) -> None:
    wide = RateLimitRule(name="wide", max_calls=5)
    narrow = RateLimitRule(name="narrow", max_calls=1, scope="agent")
    limits = limiter(redis, wide, narrow)
    await limits.acquire(ANN)
    for _ in range(3):
        with pytest.raises(RateLimitError):
            await limits.acquire(ANN)
    assert sum(redis.hashes["holdfast:rate:60:wide/global//calls"].values()) == 1
    await limits.close()


async def test_two_that_come_at_the_same_moment_cannot_overshoot(
    redis: SmallRedis, clock: FakeClock
) -> None:
    def another() -> None:
        redis.before_exec = lambda: None
        redis.touch(CALLS)[str(int(clock.now() / 0.6))] = 2

    redis.before_exec = another
    limits = limiter(redis)
    with pytest.raises(RateLimitError):
        await limits.acquire(ANN)
    assert sum(redis.hashes[CALLS].values()) == 2
    await limits.close()


async def test_what_was_not_used_is_given_back(redis: SmallRedis, clock: FakeClock) -> None:
    limits = limiter(redis, RateLimitRule(name="r", max_tokens=100))
    held = await limits.acquire(ANN, input_tokens=90)
    await limits.settle(held, 20)
    more = await limits.acquire(ANN, input_tokens=80)
    await limits.release(more)
    assert sum(redis.hashes[TOKENS].values()) == 20
    clock.advance(61)
    await limits.settle(held, 15)  # less than expected, but nothing of it counts any more
    await limits.acquire(ANN, input_tokens=100)
    assert sum(redis.hashes[TOKENS].values()) == 100
    await limits.settle(held, 130)  # used beyond its window: that counts from now on
    assert sum(redis.hashes[TOKENS].values()) == 140
    await limits.close()


async def test_a_server_that_cannot_be_asked_refuses_and_keeps_what_was_answered(
    clock: FakeClock,
) -> None:
    async with small_redis(clock) as redis:
        limits = limiter(redis)
        held = await limits.acquire(ANN, input_tokens=10)
        await limits.close()
    await limits.settle(held, 5)
    with pytest.raises(RateStoreFailed) as raised:
        await limits.acquire(ANN)
    assert "hunter2" not in str(raised.value)
    await limits.close()


async def test_a_cancelled_call_does_not_go_on_although_the_driver_swallows_it(
    redis: SmallRedis,
) -> None:
    limits = limiter(redis, RateLimitRule(name="r", max_calls=100))
    await limits.acquire(ANN)
    for steps in range(20):
        charging = asyncio.create_task(limits.acquire(ANN))
        for _ in range(steps):
            await asyncio.sleep(0)
        if charging.cancel():
            with pytest.raises(asyncio.CancelledError):
                await charging
    await limits.acquire(ANN)
    await limits.close()


def test_each_loop_has_connections_of_its_own(clock: FakeClock) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        store = open_rate_store(f"redis://127.0.0.1:{taken.getsockname()[1]}")
        limits = RateLimiter([RateLimitRule(name="r", max_calls=1)], store=store)
        for _ in range(2):
            with pytest.raises(RateStoreFailed):
                asyncio.run(limits.acquire(ANN))
            asyncio.run(limits.close())


async def test_a_call_without_any_charge_asks_nobody() -> None:
    store = open_rate_store("redis://127.0.0.1:1")
    limits = RateLimiter([RateLimitRule(name="r", max_tokens=5)], store=store)
    assert (await limits.acquire(ANN)).charges == ()


def test_an_address_that_cannot_be_meant_is_refused_without_its_password() -> None:
    with pytest.raises(ConfigError) as raised:
        open_rate_store("redis://:hunter2@host:port/0")
    assert "hunter2" not in str(raised.value)


def test_a_missing_driver_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "holdfast.providers.stores.redis_rates", raising=False)
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(MissingExtra) as raised:
        open_rate_store("redis://127.0.0.1")
    assert raised.value.context["extra"] == "redis"
