"""Rate rules that several processes share, on a real Redis server."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import machine
import pytest

from holdfast.errors import RateLimitError, RateStoreFailed
from holdfast.providers.rate_limits import RateLimiter
from holdfast.providers.rate_rules import RateLimitRule, RateSubject
from holdfast.providers.rate_store import open_rate_store

ANN = RateSubject(model="m", agent="ann", tenant="acme")
PASSWORD = "hunter2"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("redis")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {"port": port, "bind": "127.0.0.1", "dir": folder, "requirepass": PASSWORD}
    command = [machine.program("redis-server", "redis-server"), "--save", "", "--appendonly", "no"]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        for line in server.stdout:
            if "Ready to accept connections" in line:
                break
        yield f"redis://:{PASSWORD}@127.0.0.1:{port}/0"
        server.terminate()


def limiter(address: str, rule: RateLimitRule) -> RateLimiter:
    return RateLimiter([rule], on_exhausted="refuse", store=open_rate_store(address))


async def test_many_that_charge_at_once_never_pass_a_rule_together(address: str) -> None:
    rule = RateLimitRule(name="together", max_calls=7, window_seconds=600)
    limiters = [limiter(address, rule) for _ in range(4)]
    outcomes = await asyncio.gather(
        *(limiters[n % 4].acquire(ANN) for n in range(20)), return_exceptions=True
    )
    refused = [outcome for outcome in outcomes if isinstance(outcome, RateLimitError)]
    assert len(refused) == 13
    assert len(outcomes) - len(refused) == 7
    for one in limiters:
        await one.close()


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


async def test_a_wrong_password_refuses_without_saying_it(address: str) -> None:
    wrong = address.replace(PASSWORD, "other-word")
    refused = limiter(wrong, RateLimitRule(name="r", max_calls=1))
    with pytest.raises(RateStoreFailed) as raised:
        await refused.acquire(ANN)
    assert "other-word" not in str(raised.value)
    await refused.close()
