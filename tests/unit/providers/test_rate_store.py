from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.errors import RateLimitError
from holdfast.providers import rate_store
from holdfast.providers.rate_limits import RateLimiter
from holdfast.providers.rate_rules import RateCharge, RateLimitRule, RateSubject
from holdfast.providers.rate_store import Shortage, WindowRateStore
from holdfast.testing import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(start=100.0)


def make_charge(amount: int = 1, *, key: str = "a", limit: int = 3, window: int = 10) -> RateCharge:
    rule = RateLimitRule(name=key, max_calls=limit, window_seconds=window)
    return RateCharge(rule=rule, unit="calls", key=key, limit=limit, amount=amount)


async def test_a_charge_counts_for_exactly_its_window(clock):
    store = WindowRateStore(clock=clock)
    assert await store.charge([make_charge(2)]) == 100
    clock.advance(4)
    short = await store.charge([make_charge(2)])
    assert isinstance(short, Shortage) and short.wait_s == 6
    assert await store.charge([make_charge()]) == 104
    clock.advance(6)
    assert await store.charge([make_charge(2)]) == 110


async def test_all_or_nothing_is_charged(clock):
    store = WindowRateStore(clock=clock)
    await store.charge([make_charge(3, key="full")])
    short = await store.charge([make_charge(3, key="free"), make_charge(1, key="full")])
    assert isinstance(short, Shortage) and short.charge.key == "full"
    assert await store.charge([make_charge(3, key="free")]) == 100


async def test_what_was_used_replaces_what_was_expected(clock):
    store = WindowRateStore(clock=clock)
    at = await store.charge([make_charge(3)])
    assert isinstance(at, float)
    await store.correct(make_charge(3), at=at, difference=-2)
    assert await store.charge([make_charge(2)]) == 100
    clock.advance(10)
    await store.correct(make_charge(3), at=at, difference=3)
    assert isinstance(await store.charge([make_charge()]), Shortage)


async def test_windows_of_those_who_left_are_dropped(clock, monkeypatch):
    monkeypatch.setattr(rate_store, "_SWEEP_EVERY", 10)
    store = WindowRateStore(clock=clock)
    for number in range(9):
        await store.charge([make_charge(key=f"tenant-{number}")])
    clock.advance(10)
    await store.charge([make_charge(key="new")])
    assert [key for key, _ in store._windows] == ["new"]


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
