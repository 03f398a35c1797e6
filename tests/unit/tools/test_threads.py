import asyncio
import contextvars
import threading

import pytest

from holdfast.tools.threads import ToolThreads

WAIT_S = 10


async def until(event):
    assert await asyncio.to_thread(event.wait, WAIT_S)


async def test_no_more_run_at_once_than_the_limit_and_all_get_their_turn():
    threads = ToolThreads(limit=2)
    lock = threading.Lock()
    running, most = 0, 0
    both = threading.Barrier(2)

    def work(n):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        both.wait(WAIT_S)
        with lock:
            running -= 1
        return n

    assert await asyncio.gather(*(threads.run(work, n) for n in range(8))) == list(range(8))
    assert most == 2


async def test_hanging_call_does_not_keep_its_place():
    threads = ToolThreads(limit=1, max_hanging=2)
    started, end = threading.Event(), threading.Event()

    def hang():
        started.set()
        end.wait(WAIT_S)

    task = asyncio.create_task(threads.run(hang))
    await until(started)
    waiting = asyncio.create_task(threads.run(lambda: "next"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.wait_for(waiting, WAIT_S) == "next"
    assert threads.hanging == 1
    started.clear()
    second = asyncio.create_task(threads.run(hang))
    await until(started)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    with pytest.raises(RuntimeError):
        await threads.run(lambda: None)
    end.set()


async def test_call_that_waits_can_be_given_up():
    threads = ToolThreads(limit=1)
    started, end = threading.Event(), threading.Event()
    first = asyncio.create_task(threads.run(lambda: (started.set(), end.wait(WAIT_S))[1]))
    await until(started)
    never = threading.Event()
    second = asyncio.create_task(threads.run(never.set))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    end.set()
    assert await first
    assert await threads.run(lambda: "free") == "free"
    assert not never.is_set()
    assert threads.hanging == 0


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
async def test_tool_that_tries_to_end_the_program_only_fails(error):
    def leave():
        raise error

    with pytest.raises(RuntimeError):
        await ToolThreads().run(leave)


async def test_errors_and_context_variables_pass():
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("set")
    threads = ToolThreads()
    assert await threads.run(variable.get) == "set"
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 / 0)


def test_one_pool_serves_several_loops():
    threads = ToolThreads(limit=1)
    for n in range(3):
        assert asyncio.run(threads.run(lambda n=n: n)) == n
