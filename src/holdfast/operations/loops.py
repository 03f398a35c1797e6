"""The autonomous loop: give it a goal, resume it, see what it did, move it elsewhere."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator
from io import BytesIO
from typing import Annotated, TypeAlias

from holdfast.operations.caller import Caller
from holdfast.operations.local_values import Local, LocalFile
from holdfast.operations.operation import local, operation, stream_operation
from holdfast.orchestration.loop import (
    LoopListener,
    LoopNews,
    LoopOptions,
    LoopReport,
    LoopSetup,
    LoopState,
)
from holdfast.runtime import LoopItem, Runtime
from holdfast.sessions import Run

LocalSetup: TypeAlias = Annotated[
    LoopSetup, Local("register the agents there, and name them in `LoopOptions`")
]


def _hear_nothing(_: LoopNews) -> None:
    """There is no subscriber."""


@operation("runs:write")
async def run(
    runtime: Runtime,
    caller: Caller,
    /,
    goal: str,
    *,
    run_id: str = "",
    options: LoopOptions | LocalSetup | None = None,
    listener: Annotated[LoopListener, Local("read `loops.stream`")] = _hear_nothing,
) -> LoopReport:
    """Plan, work, check and review until the goal is reached or a limit is; then report.

    The same `run_id` again returns the report of a loop that is over, or resumes one that
    was interrupted or has waited; its goal and limits stay those it began with. The report
    says `waiting` if the loop waits for a person.

    An end is final. To go on after one that came before the goal, such as a spent budget,
    begin another run with `options.continues` set to the ended one: it takes over goal,
    plan and what is done, and has limits of its own.

    Raises:
        UsageError: there is no goal, or the run is none of a loop.
    """
    return await runtime.loops.run(goal, run_id=run_id, options=options, listener=listener)


@operation("runs:write")
async def submit(
    runtime: Runtime,
    caller: Caller,
    /,
    goal: str,
    *,
    run_id: str = "",
    options: LoopOptions | None = None,
) -> Run:
    """Put a loop into the queue, for a worker on any machine, and return its run.

    Nothing is executed here: `holdfast worker` does it, and another one goes on if that one dies.
    `runs.wait` waits for its end, `loops.report` says how it ended. Its session lies where the
    worker finds it: the workspace of these settings has to be there too.

    Raises:
        UsageError: there is no goal, or the run is none of a loop.
        NotFound: an agent that is named does not exist.
    """
    return await runtime.loops.submit(goal, run_id=run_id, options=options)


@stream_operation("runs:write")
async def stream(
    runtime: Runtime,
    caller: Caller,
    /,
    goal: str,
    *,
    run_id: str = "",
    options: LoopOptions | LocalSetup | None = None,
) -> AsyncGenerator[LoopItem, None]:
    """Do the same and yield what happens; the last item is the report.

    Leaving the loop early cancels the run.
    """
    items = runtime.loops.stream(goal, run_id=run_id, options=options)
    async with contextlib.aclosing(items):
        async for item in items:
            yield item


@operation("runs:read")
async def state(runtime: Runtime, caller: Caller, /, run_id: str) -> LoopState:
    """Return where a loop stands: plan, steps, attempts, evidence.

    Raises:
        NotFound: there is no such run.
        UsageError: it is none of a loop.
    """
    return await runtime.loops.state(run_id)


@operation("runs:read")
async def report(runtime: Runtime, caller: Caller, /, run_id: str) -> LoopReport:
    """Return the report of a loop; one that is not over is reported as far as it is.

    Raises:
        NotFound: there is no such run.
        UsageError: it is none of a loop.
    """
    return await runtime.loops.report(run_id)


@operation("runs:read")
async def replay(runtime: Runtime, caller: Caller, /, run_id: str) -> list[LoopNews]:
    """Return everything that happened in a loop, in order: its facts and its agents' calls.

    Raises:
        NotFound: there is no such run.
        UsageError: it is none of a loop.
    """
    return await runtime.loops.replay(run_id)


@local("take the events of the run and write them where you are")
async def export(runtime: Runtime, /, run_id: str, target: str | os.PathLike[str]) -> int:
    """Write a loop as one `run-<id>.jsonl` and return the number of its lines."""
    return await runtime.loops.export(run_id, target)


@operation("storage:admin")
async def load(runtime: Runtime, caller: Caller, /, source: bytes | LocalFile) -> Run:
    """Bring in a `run-<id>.jsonl`, so that `loops.run` with its id goes on here.

    The whole file is checked before anything is changed. Sessions that are here already
    are left as they are. The run works in this client's workspace from now on. Rules that
    allow, granted directories and consent that it brings are inert, and calls that it left open
    are given up: the model is told, and may ask for them anew. It goes on when it is asked to.

    Raises:
        InvalidImport: the file is none of a run, is damaged or was changed.
    """
    return await runtime.loops.load(BytesIO(source) if isinstance(source, bytes) else source)
