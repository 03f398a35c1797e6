"""A coroutine that is started at once, and the task that it finds itself in."""

from __future__ import annotations

import asyncio
import contextvars
import inspect

import pytest

from holdfast.errors import UsageError
from holdfast.tools.invocation import Ended, _seats, _start_by_hand, start_eagerly

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="")


@pytest.mark.parametrize("start", [start_eagerly, _start_by_hand])
async def test_the_first_step_is_taken_at_once_and_as_the_right_task(start):
    seen = []

    async def work(fails: bool) -> str:
        seen.append(asyncio.current_task())
        await asyncio.sleep(0)
        seen.append(asyncio.current_task())
        if fails:
            raise ValueError("late")
        return "done"

    task = start(work(False))
    assert len(seen) == 1
    assert not task.done()
    assert await task == "done"
    assert seen[0] is seen[1] is task
    with pytest.raises(ValueError, match="late"):
        await start(work(True))


@pytest.mark.parametrize("start", [start_eagerly, _start_by_hand])
async def test_a_coroutine_that_never_waits_is_done_at_once(start):
    async def quick(error: BaseException | None) -> int:
        if error:
            raise error
        return 1

    assert start(quick(None)) == Ended(1)
    for error in (asyncio.CancelledError(), ValueError()):
        with pytest.raises(type(error)):
            start(quick(error))
    await asyncio.sleep(0)


@pytest.mark.parametrize("start", [start_eagerly, _start_by_hand])
async def test_a_variable_that_is_set_before_a_wait_can_be_reset_after_it(start):
    async def work() -> str:
        token = variable.set("mine")
        await asyncio.sleep(0)
        seen = variable.get()
        variable.reset(token)
        return seen

    assert await start(work()) == "mine"


@pytest.mark.parametrize("start", [start_eagerly, _start_by_hand])
async def test_variables_of_the_caller_are_seen_and_those_of_a_coroutine_stay_its_own(start):
    async def work(value: str) -> str:
        before = variable.get()
        variable.set(value)
        return before

    variable.set("caller")
    assert start(work("first")) == Ended("caller")
    assert start(work("second")) == Ended("caller")
    variable.set("changed")
    assert start(work("third")) == Ended("changed")
    assert variable.get() == "changed"


@pytest.mark.parametrize("start", [start_eagerly, _start_by_hand])
@pytest.mark.parametrize("waits", [False, True])
async def test_a_coroutine_that_cancels_itself_is_cancelled_and_harms_no_other(start, waits):
    async def cancel() -> str:
        asyncio.current_task().cancel()
        if waits:
            await asyncio.sleep(0)
        return "done"

    async def work() -> str:
        await asyncio.sleep(0)
        return "unharmed"

    if waits:
        first, second = start(cancel()), start(work())
        await asyncio.wait([first, second])
        assert first.cancelled()
    else:
        with pytest.raises(asyncio.CancelledError):
            start(cancel())
        second = start(work())
    assert await second == "unharmed"
    assert asyncio.current_task().cancelling() == 0


@pytest.mark.parametrize("start", [start_eagerly, _start_by_hand])
async def test_a_coroutine_that_cancels_itself_late_and_waits_is_cancelled(start):
    async def quick() -> int:
        return 1

    async def cancel() -> None:
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    assert start(quick()) == Ended(1)
    await asyncio.sleep(0)
    task = start(cancel())
    await asyncio.wait([task])
    assert task.cancelled()
    assert start(quick()) == Ended(1)


@pytest.mark.parametrize("start", [start_eagerly, _start_by_hand])
async def test_a_coroutine_that_is_cancelled_before_the_loop_turns_can_clean_up(start):
    cleaned = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    task = start(work())
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert cleaned == [True]


@pytest.mark.parametrize("start", [start_eagerly, _start_by_hand])
async def test_coroutines_may_start_others_and_wait_at_any_depth(start):
    async def inner(waits: bool) -> int:
        if waits:
            await asyncio.sleep(0)
        return 1

    async def outer() -> int:
        return start(inner(False)).value + await start(inner(True)) + start(inner(False)).value

    assert [await start(outer()) for _ in range(2)] == [3, 3]


async def test_only_a_task_executes_a_seat():
    async def quick() -> int:
        return 1

    async def wait() -> None:
        await asyncio.Event().wait()

    _start_by_hand(quick())
    seat = _seats[asyncio.current_task()]
    with pytest.raises(UsageError):
        await seat
    seat.close()
    waiting = wait()
    task = _start_by_hand(waiting)
    seat.close()
    assert inspect.getcoroutinestate(waiting) == inspect.CORO_CLOSED
    task.cancel()
    with pytest.raises(RuntimeError):
        await task


@pytest.mark.parametrize("start", [start_eagerly, _start_by_hand])
async def test_no_task_stays_behind_its_caller(start):
    async def quick() -> int:
        return 1

    async def nested() -> int:
        return start(quick()).value

    async def caller() -> int:
        return start(nested()).value + start(quick()).value

    before = asyncio.all_tasks()
    assert await asyncio.create_task(caller()) == 2
    for _ in range(4):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
