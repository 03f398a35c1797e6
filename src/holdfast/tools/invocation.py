"""Call a tool's function in bounds: whatever it does, the run goes on.

The function runs in a task of its own. It can end neither the task that waits for it nor the
loop, and one that does not stop when it is told to is left behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from holdfast.errors import HoldfastError, TellModel, ToolError, ToolTimeout
from holdfast.tools.context import ToolContext
from holdfast.tools.definition import Tool
from holdfast.tools.eager import Ended, start_eagerly
from holdfast.tools.result import NestedCallWaits, Outcome, to_outcome

P = ParamSpec("P")
T = TypeVar("T")

STOP_GRACE_S = 5.0
"""How long a call that was told to stop may take to do so."""

_left_behind: set[asyncio.Future[Outcome]] = set()


async def invoke(
    tool: Tool,
    values: Mapping[str, Any],
    context: ToolContext,
    *,
    limit_s: float,
    grace_s: float = STOP_GRACE_S,
) -> Outcome:
    """Call the tool with validated values and return what it gives back.

    Cancelling this stops the call first; at the latest after `grace_s`, nobody waits for it.

    Raises:
        ToolTimeout: it did not end in time.
        ToolError: it failed, tried to end the program, or cancelled itself.
        TellModel, HoldfastError: what the tool itself raises.
    """
    try:
        task = start_eagerly(_guarded(tool, values, context))
    except (asyncio.CancelledError, GeneratorExit) as error:
        # Nobody has waited yet, so it is the tool's own.
        raise _own_end(tool, error) from error
    if isinstance(task, Ended):
        return task.value
    try:
        await asyncio.wait((task,), timeout=limit_s)
    except asyncio.CancelledError:
        await _stop(task, context, grace_s)
        raise
    if not task.done():
        await _stop(task, context, grace_s)
        raise ToolTimeout(tool=tool.name, limit_s=limit_s)
    try:
        return task.result()
    except (asyncio.CancelledError, GeneratorExit) as error:
        raise _own_end(tool, error) from error


def _own_end(tool: Tool, error: BaseException) -> ToolError:
    """Return the failure of a tool that ended its own task."""
    is_cancelled = isinstance(error, asyncio.CancelledError)
    detail = "it cancelled itself" if is_cancelled else type(error).__name__
    return ToolError(tool=tool.name, detail=detail)


async def _guarded(tool: Tool, values: Mapping[str, Any], context: ToolContext) -> Outcome:
    try:
        return to_outcome(await tool.started(values, context), tool.name)
    except (asyncio.CancelledError, GeneratorExit, TellModel, HoldfastError, NestedCallWaits):
        raise
    except BaseException as error:
        raise failure_of(tool.name, error) from error


async def ask_aside(
    tool: Tool, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call what a tool has besides its function (a preview, a note); it fails as the tool does.

    Raises:
        ToolTimeout: it did not end in the time that the tool itself has.
        ToolError: it failed, or tried to end the program.
        TellModel, HoldfastError: what it raises itself.
    """
    try:
        async with asyncio.timeout(tool.timeout_s) as limit:
            return await function(*args, **kwargs)
    except (asyncio.CancelledError, GeneratorExit, TellModel, HoldfastError):
        raise
    except BaseException as error:
        if isinstance(error, TimeoutError) and limit.expired():
            raise ToolTimeout(tool=tool.name, limit_s=tool.timeout_s) from error
        raise failure_of(tool.name, error) from error


def failure_of(tool: str, error: BaseException) -> ToolError:
    """Return the failure of a tool that raised something."""
    detail = f"{type(error).__name__}: {_text(error)}".removesuffix(": ")
    return ToolError(tool=tool, detail=detail)


async def _stop(task: asyncio.Future[Outcome], context: ToolContext, grace_s: float) -> None:
    """Tell a call to stop and wait a little; one that goes on is left behind."""
    context.cancellation.cancel()
    task.cancel()
    _left_behind.add(task)
    task.add_done_callback(_forget)
    await asyncio.wait((task,), timeout=grace_s)


def _forget(task: asyncio.Future[Outcome]) -> None:
    """Let go of a call that nobody waits for, and of how it ended."""
    _left_behind.discard(task)
    if not task.cancelled():
        task.exception()


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - even this can be a tool's own code
        return ""
