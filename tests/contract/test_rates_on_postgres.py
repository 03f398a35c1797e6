"""Rate rules that several processes share, on the Postgres of the records."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from postgres_server import APP, OWNER, PostgresServer

from holdfast.errors import ConfigError, RateLimitError, RateStoreFailed
from holdfast.journal import grant_role, migrate_store
from holdfast.providers import RateLimiter, RateLimitRule, RateSubject, open_rate_store

ANN = RateSubject(model="m", agent="ann", tenant="acme")


@pytest.fixture(scope="module")
def address(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    name = postgres.make_database()
    place: Path = tmp_path_factory.mktemp("rates")
    asyncio.run(migrate_store(postgres.url(name), base_dir=place, projections=()))
    asyncio.run(grant_role(postgres.url(name, role=OWNER), APP, "records"))
    return postgres.url(name, role=APP)


def limiter(address: str, rule: RateLimitRule) -> RateLimiter:
    return RateLimiter([rule], on_exhausted="refuse", store=open_rate_store(address))


async def test_many_that_charge_at_once_never_pass_a_rule_together(address: str) -> None:
    rule = RateLimitRule(name="together", max_calls=7, window_seconds=600)
    limiters = [limiter(address, rule) for _ in range(4)]
    outcomes = await asyncio.gather(
        *(limiters[n % 4].acquire(ANN) for n in range(20)), return_exceptions=True
    )
    refused = [outcome for outcome in outcomes if isinstance(outcome, RateLimitError)]
    assert (len(refused), len(outcomes) - len(refused)) == (13, 7)
    for one in limiters:
        await one.close()


async def test_all_rules_of_a_call_are_charged_or_none(address: str) -> None:
    wide = RateLimitRule(name="wide", max_calls=10, window_seconds=600)
    narrow = RateLimitRule(name="narrow", max_calls=1, window_seconds=600)
    both = RateLimiter([wide, narrow], on_exhausted="refuse", store=open_rate_store(address))
    await both.acquire(ANN)
    for _ in range(3):
        with pytest.raises(RateLimitError) as raised:
            await both.acquire(ANN)
        assert raised.value.context["rule"] == "narrow"
    alone = limiter(address, wide)
    for _ in range(9):
        await alone.acquire(ANN)
    with pytest.raises(RateLimitError):
        await alone.acquire(ANN)
    await both.close()
    await alone.close()


async def test_what_a_call_did_not_use_is_there_for_the_next_process(address: str) -> None:
    rule = RateLimitRule(name="tokens", max_tokens=100, window_seconds=600)
    here, there = limiter(address, rule), limiter(address, rule)
    held = await here.acquire(ANN, input_tokens=90)
    with pytest.raises(RateLimitError):
        await there.acquire(ANN, input_tokens=80)
    await here.settle(held, 20)
    await there.acquire(ANN, input_tokens=80)
    await here.close()
    await there.close()


async def test_what_is_older_than_its_window_counts_no_longer(address: str) -> None:
    rule = RateLimitRule(name="second", max_calls=1, window_seconds=1)
    waiting = RateLimiter(
        [rule], on_exhausted="wait", max_wait_s=10, store=open_rate_store(address)
    )
    async with asyncio.timeout(20):
        for _ in range(3):
            await waiting.acquire(ANN)
    await waiting.close()


async def test_tenants_have_windows_of_their_own(address: str) -> None:
    rule = RateLimitRule(name="own", max_calls=1, window_seconds=600)
    for tenant in ("acme", "zenith"):
        one = limiter(f"{address}&holdfast_tenant={tenant}", rule)
        await one.acquire(ANN)
        with pytest.raises(RateLimitError):
            await one.acquire(ANN)
        await one.close()


async def test_a_server_that_cannot_be_asked_refuses(address: str) -> None:
    gone = limiter("postgresql://me@127.0.0.1:1/x", RateLimitRule(name="r", max_calls=1))
    with pytest.raises(RateStoreFailed):
        await gone.acquire(ANN)
    await gone.close()
    with pytest.raises(ConfigError):
        open_rate_store("mysql://x")
