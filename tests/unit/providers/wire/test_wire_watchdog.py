"""The watchdog closes when a wait is too long, and only then."""

from __future__ import annotations

import asyncio

from holdfast.providers.wire.watchdog import WHOLE, Watchdog


class Door:
    def __init__(self) -> None:
        self.closed = asyncio.Event()

    def close(self) -> None:
        self.closed.set()


def watch(door: Door, total_s: float = 60.0) -> Watchdog:
    now = asyncio.get_running_loop().time()
    return Watchdog(door, total_at=now + total_s, total_s=total_s)


async def test_a_wait_that_is_too_long_closes() -> None:
    door = Door()
    dog = watch(door)
    dog.wait("the next piece", 0.01)
    await asyncio.wait_for(door.closed.wait(), 30)
    assert dog.expired == ("the next piece", 0.01)


async def test_a_timer_that_goes_off_too_early_is_set_again() -> None:
    door = Door()
    dog = watch(door)
    dog.wait("first", 0.02)
    dog.wait("second", 0.06)
    await asyncio.wait_for(door.closed.wait(), 30)
    assert dog.expired == ("second", 0.06)


async def test_the_total_limit_counts_also_while_nobody_waits() -> None:
    door = Door()
    dog = watch(door, total_s=0.03)
    dog.wait("piece", 10)
    dog.rest()
    await asyncio.wait_for(door.closed.wait(), 30)
    assert dog.expired == (WHOLE, 0.03)


async def test_a_stopped_watchdog_closes_nothing() -> None:
    door = Door()
    dog = watch(door)
    dog.wait("piece", 0.01)
    timer = dog._handle
    dog.stop()
    assert timer is not None and timer.cancelled()
    assert dog.expired is None and not door.closed.is_set()
