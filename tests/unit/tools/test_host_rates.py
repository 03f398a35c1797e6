"""Per-host rates hold across processes, by a clock that cannot step."""

from __future__ import annotations

import asyncio
import multiprocessing
from pathlib import Path

import pytest

from holdfast.clock import SYSTEM
from holdfast.errors import RateLimitError, StorageError
from holdfast.policy import NetworkRules
from holdfast.testing import FakeClock
from holdfast.tools import HostRates

RULES = NetworkRules(allow_net=True, per_minute=20, host_rates=(("free.test", 1_000),))


def ask(place: str, times: int) -> int:
    """Return how many requests were let through, in a process of its own."""

    async def work() -> int:
        rates, passed = HostRates(SYSTEM, place), 0
        for _ in range(times):
            try:
                await rates.count("a.test", RULES)
            except RateLimitError:
                continue
            passed += 1
        return passed

    return asyncio.run(work())


def test_processes_that_ask_at_once_share_one_minute(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        passed = pool.starmap(ask, [(str(tmp_path / "rates"), 15)] * 3)
    assert sum(passed) == 20


async def test_a_minute_later_and_after_a_restart_of_the_machine_it_is_open_again(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    first, second = HostRates(clock, tmp_path), HostRates(clock, tmp_path)
    for at in range(20):
        await (first, second)[at % 2].count("a.test", RULES)
    for rates in (first, second):
        with pytest.raises(RateLimitError) as limited:
            await rates.count("a.test", RULES)
        assert 0 < limited.value.context["retry_after_s"] <= 60
    await first.count("free.test", RULES)
    clock.advance(60.1)
    await second.count("a.test", RULES)
    for _ in range(19):
        await first.count("a.test", RULES)
    clock.reboot()
    await second.count("a.test", RULES)


async def test_a_file_that_was_cut_short_counts_for_nothing_and_one_that_cannot_be_kept_refuses(
    tmp_path: Path,
) -> None:
    rates = HostRates(SYSTEM, tmp_path / "rates")
    await rates.count("a.test", RULES)
    [file] = (tmp_path / "rates").iterdir()
    file.write_bytes(b'{"boot":')
    await rates.count("a.test", RULES)
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError):
        await HostRates(SYSTEM, tmp_path / "file").count("a.test", RULES)
    await HostRates(SYSTEM, tmp_path / "file").count("a.test", NetworkRules())
