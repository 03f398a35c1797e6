"""The watchdog closes when a wait is too long, and only then."""

from __future__ import annotations

import asyncio

from holdfast.providers.wire.connection import WHOLE, Limit, Watchdog


class Door:
    def __init__(self) -> None:
        self.closed = asyncio.Event()

    def cut(self) -> None:
        self.closed.set()


def within(seconds: float, phase: str = WHOLE) -> Limit:
    return phase, seconds, asyncio.get_running_loop().time() + seconds


def watch(door: Door, total_s: float = 60.0) -> Watchdog:
    dog = Watchdog(door)
    dog.begin(within(total_s))
    return dog


async def test_a_wait_that_is_too_long_closes() -> None:
    door = Door()
    dog = watch(door)
    dog.wait(within(0.01, "the next piece"))
    await asyncio.wait_for(door.closed.wait(), 30)
    assert dog.expired == ("the next piece", 0.01)


async def test_a_timer_that_goes_off_too_early_is_set_again() -> None:
    door = Door()
    dog = watch(door)
    dog.wait(within(0.02, "first"))
    dog.wait(within(0.06, "second"))
    await asyncio.wait_for(door.closed.wait(), 30)
    assert dog.expired == ("second", 0.06)


async def test_the_total_limit_counts_also_while_nobody_waits() -> None:
    door = Door()
    dog = watch(door, total_s=0.03)
    dog.wait(within(10, "piece"))
    dog.rest()
    await asyncio.wait_for(door.closed.wait(), 30)
    assert dog.expired == (WHOLE, 0.03)


async def test_what_begins_anew_is_not_held_to_what_was_before() -> None:
    door = Door()
    dog = watch(door, total_s=0.01)
    dog.begin(within(0.03, "the next one"))
    await asyncio.wait_for(door.closed.wait(), 30)
    assert dog.expired == ("the next one", 0.03)


async def test_many_answers_share_one_timer() -> None:
    dog = watch(Door())
    timer = dog._handle
    for _ in range(3):
        dog.begin(within(90))
        dog.wait(within(80, "piece"))
        dog.rest()
    assert dog._handle is timer and timer is not None
    dog.stop()


async def test_a_stopped_watchdog_closes_nothing() -> None:
    door = Door()
    dog = watch(door)
    dog.wait(within(0.01, "piece"))
    timer = dog._handle
    dog.stop()
    assert timer is not None and timer.cancelled()
    assert dog.expired is None and not door.closed.is_set()
