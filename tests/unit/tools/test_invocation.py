"""Whatever a tool does, the run goes on."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from holdfast.errors import HoldfastError, TellModel, ToolError, ToolTimeout
from holdfast.tools import ToolContext, tool
from holdfast.tools.invocation import invoke

LONG_S = 30


@pytest.fixture(autouse=True)
def _stay_here():
    here = os.getcwd()
    yield
    os.chdir(here)


async def run(definition, context, *, limit_s=LONG_S, grace_s=5, **values):
    return await invoke(definition, values, context, limit_s=limit_s, grace_s=grace_s)


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), RecursionError("deep"), MemoryError(), GeneratorExit(),
     StopAsyncIteration(), ValueError("no"), ExceptionGroup("many", [ValueError()])],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
@pytest.mark.parametrize("waits", [False, True])
async def test_whatever_it_raises_is_a_tool_error(context, error, waits):
    @tool(effect="read")
    async def explode() -> str:
        """Fail."""
        if waits:
            await asyncio.sleep(0)
        raise error

    with pytest.raises(ToolError) as caught:
        await run(explode, context)
    assert type(error).__name__ in str(caught.value)


async def test_plain_functions_that_exit_or_recurse_are_tool_errors(context):
    @tool(effect="read")
    def explode(how: str) -> str:
        """Fail."""
        if how == "exit":
            raise SystemExit(1)
        return explode(how)

    for how in ("exit", "recurse"):
        with pytest.raises(ToolError, match="Tool explode failed"):
            await run(explode, context, how=how)


async def test_an_error_whose_text_cannot_be_had_is_still_told(context):
    class Hostile(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    @tool(effect="read")
    async def explode() -> str:
        """Fail."""
        raise Hostile

    with pytest.raises(ToolError) as caught:
        await run(explode, context)
    assert "Hostile" in str(caught.value)


@pytest.mark.parametrize("error", [TellModel("try b"), ToolError(tool="x", detail="y")])
async def test_errors_meant_for_the_model_pass_through(context, error):
    @tool(effect="read")
    async def explode() -> str:
        """Fail."""
        raise error

    with pytest.raises((TellModel, HoldfastError)) as caught:
        await run(explode, context)
    assert caught.value is error


@pytest.mark.parametrize("way", ["raise", "task", "task and wait", "late"])
async def test_a_tool_that_cancels_itself_does_not_cancel_the_run(context, way):
    @tool(effect="read")
    async def cancel() -> str:
        """Cancel."""
        if way == "late":
            await asyncio.sleep(0)
        if way == "raise":
            raise asyncio.CancelledError
        asyncio.current_task().cancel()
        if way != "task":
            await asyncio.sleep(0)
        return "done"

    with pytest.raises(ToolError, match="it cancelled itself"):
        await run(cancel, context)
    await asyncio.sleep(0)
    assert asyncio.current_task().cancelling() == 0


async def test_a_tool_that_hangs_is_stopped_and_told(context):
    told = []

    @tool(effect="read")
    async def hang(context: ToolContext) -> str:
        """Hang."""
        try:
            await asyncio.Event().wait()
        finally:
            told.append(context.cancellation.is_cancelled)
        return ""

    with pytest.raises(ToolTimeout):
        await run(hang, context, limit_s=0.01)
    assert told == [True]


async def test_a_tool_that_refuses_to_stop_is_left_behind(context):
    may_end, has_ended = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def stubborn() -> str:
        """Hang."""
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue
        has_ended.set()
        raise ValueError("nobody hears this")

    with pytest.raises(ToolTimeout):
        await run(stubborn, context, limit_s=0.01, grace_s=0.01)
    may_end.set()
    await asyncio.wait_for(has_ended.wait(), 30)


async def test_a_blocking_function_that_hangs_keeps_only_its_thread(context):
    may_end = threading.Event()

    @tool(effect="read")
    def hang(context: ToolContext) -> str:
        """Hang."""
        may_end.wait(20)
        return ""

    with pytest.raises(ToolTimeout):
        await run(hang, context, limit_s=0.01)
    assert context.threads.hanging == 1
    may_end.set()


async def test_cancelling_the_run_stops_the_call_first(context):
    begun, stopped = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def work() -> str:
        """Work."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    task = asyncio.create_task(run(work, context))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stopped.is_set()


async def test_a_tool_may_use_timeouts_and_task_groups_of_its_own(context):
    @tool(effect="read")
    async def busy() -> str:
        """Work."""
        try:
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        except TimeoutError:
            pass
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(asyncio.sleep(0, result=n)) for n in (1, 2)]
        return str(sum(task.result() for task in tasks))

    assert (await run(busy, context)).output == "3"


async def test_a_tools_own_timeout_error_is_no_timeout_of_ours(context):
    @tool(effect="read")
    async def slow() -> str:
        """Fail."""
        raise TimeoutError("upstream")

    with pytest.raises(ToolError) as caught:
        await run(slow, context)
    assert caught.value.code == "tool.failed"


async def test_changing_the_directory_does_not_move_the_workspace(context, root):
    @tool(effect="read")
    async def wander() -> str:
        """Go elsewhere."""
        os.chdir("/")
        return ""

    await run(wander, context)
    assert context.workspace.root == str(root.resolve())
