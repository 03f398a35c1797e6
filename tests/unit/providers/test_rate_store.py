from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from limits import RateLimitItemPerSecond
from limits.aio.strategies import MovingWindowRateLimiter

from holdfast.errors import RateLimitError
from holdfast.providers import rate_store
from holdfast.providers.rate_limits import RateLimiter
from holdfast.providers.rate_rules import RateLimitRule, RateSubject
from holdfast.providers.rate_store import WindowStorage
from holdfast.testing import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(start=100.0)


async def test_the_storage_serves_the_strategy_of_limits(clock):
    storage = WindowStorage(clock=clock)
    limiter = MovingWindowRateLimiter(storage)
    item = RateLimitItemPerSecond(3, 10)
    assert await limiter.hit(item, "a", cost=2)
    clock.advance(4)
    assert not await limiter.test(item, "a", cost=2)
    assert not await limiter.hit(item, "a", cost=2)
    assert await limiter.hit(item, "a")
    stats = await limiter.get_window_stats(item, "a")
    assert (stats.reset_time, stats.remaining) == (110, 0)
    clock.advance(6)
    assert await limiter.test(item, "a", cost=2)
    await limiter.clear(item, "a")
    assert await limiter.hit(item, "a", cost=3)


async def test_the_storage_counts_without_a_limit_too(clock):
    storage = WindowStorage(clock=clock)
    assert (await storage.get("k"), await storage.get_expiry("k")) == (0, 100)
    assert await storage.incr("k", 10, 5) == 5
    clock.advance(3)
    assert await storage.incr("k", 10) == 6
    assert (await storage.get("k"), await storage.get_expiry("k")) == (6, 113)
    clock.advance(7)
    assert await storage.get("k") == 1
    assert await storage.check()
    assert await storage.reset() == 1
    assert await storage.get("k") == 0


async def test_windows_of_those_who_left_are_dropped(clock, monkeypatch):
    monkeypatch.setattr(rate_store, "_SWEEP_EVERY", 10)
    storage = WindowStorage(clock=clock)
    for number in range(9):
        assert await storage.acquire_entry(f"tenant-{number}", 5, 10)
    clock.advance(10)
    assert await storage.acquire_entry("new", 5, 10)
    assert list(storage._windows) == ["new"]


def test_threads_with_loops_of_their_own_cannot_overshoot_together():
    clock = FakeClock()
    rules = [RateLimitRule(name=str(n), max_calls=100, max_tokens=5000) for n in range(2)]
    limits = RateLimiter(rules, on_exhausted="refuse", clock=clock)

    async def many() -> int:
        done = 0
        for _ in range(100):
            try:
                await limits.acquire(RateSubject(), input_tokens=50)
            except RateLimitError:
                continue
            done += 1
        return done

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(lambda _: asyncio.run(many()), range(4))) == 100
