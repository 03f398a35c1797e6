"""One bounded pool of threads for the `def` tools of all runs of a process."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from holdfast import AsyncClient, tool
from holdfast.testing import make_tool_context
from holdfast.tools import Tool, ToolThreads
from holdfast.tools.invocation import invoke

WAIT_S = 10


def count_tool_threads() -> int:
    return sum(thread.name == "holdfast-tool" for thread in threading.enumerate())


async def test_many_runs_of_blocking_tools_take_no_more_threads_than_the_pool_has(
    tmp_path: Path,
) -> None:
    before = count_tool_threads()  # of tests that ran in this process, idle for a while
    most = 0
    lock = threading.Lock()

    @tool(permission="allow")
    def blocking() -> str:
        """Block for a moment."""
        nonlocal most
        with lock:
            most = max(most, count_tool_threads())
        return "done"

    async with (
        AsyncClient(base_dir=tmp_path / "a") as one,
        AsyncClient(base_dir=tmp_path / "b") as other,
    ):
        for client in (one, other):
            await client.tools.register(blocking)
            session = await client.sessions.create("one after the other")
            for _ in range(15):
                await client.tools.call("blocking", {}, session_id=session.id)
    # One thread is enough for one call at a time; each run used to bring its own.
    assert most <= before + 2


async def test_time_spent_waiting_for_a_thread_does_not_count_against_a_tool(
    tmp_path: Path,
) -> None:
    threads = ToolThreads(limit=1)
    started, end = threading.Event(), threading.Event()

    def hold() -> None:
        started.set()
        end.wait(WAIT_S)

    holding = asyncio.create_task(threads.run(hold))
    assert await asyncio.to_thread(started.wait, WAIT_S)

    @tool
    def quick() -> str:
        """Answer at once."""
        return "at once"

    context = make_tool_context(tmp_path, threads=threads)
    assert isinstance(quick, Tool)
    call = asyncio.create_task(invoke(quick, {}, context, limit_s=0.05))
    # Longer than its limit: it has not begun, so it cannot be late.
    done, _ = await asyncio.wait((call,), timeout=0.2)
    assert not done
    end.set()
    outcome = await asyncio.wait_for(call, WAIT_S)
    assert outcome.output == "at once"
    await holding


@pytest.mark.parametrize("count", [200])
async def test_the_pool_is_bounded_however_many_ask(count: int) -> None:
    threads = ToolThreads(limit=4)
    names: set[int] = set()

    def work() -> None:
        names.add(threading.get_ident())

    await asyncio.gather(*(threads.run(work) for _ in range(count)))
    assert len(names) <= 4
