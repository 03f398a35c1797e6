"""Triggers: add, list, remove, and the loop that fires them."""

from __future__ import annotations

from typing import Annotated, Final

from holdfast.canonical import JsonObject
from holdfast.errors import UsageError
from holdfast.operations.caller import Caller
from holdfast.operations.local_values import Local, LocalEvent
from holdfast.operations.operation import operation
from holdfast.orchestration.triggers import Firing, FiringStatus, Trigger, TriggerRow, read_trigger
from holdfast.runtime import Runtime

_MOST_PARALLEL: Final = 1_000
LocalTrigger = Annotated[Trigger, Local("send its fields as data")]


@operation("triggers:write")
async def add(
    runtime: Runtime, caller: Caller, /, trigger: JsonObject | LocalTrigger
) -> TriggerRow:
    """Put a trigger in force, from now on; it stays in force after a restart.

    It fires only while some process executes `triggers.run`; events that came before
    that are made up for, ticks as the trigger says.

    Raises:
        TriggerInvalid: something is wrong with it.
        AlreadyExists: there is one of this name.
    """
    chosen = trigger if isinstance(trigger, Trigger) else read_trigger(trigger)
    return await runtime.triggers.book.add(chosen)


@operation("triggers:read")
async def list_(runtime: Runtime, caller: Caller, /) -> list[TriggerRow]:
    """Return the triggers in force, by name."""
    return await runtime.triggers.book.all()


@operation("triggers:write")
async def remove(runtime: Runtime, caller: Caller, /, name: str) -> None:
    """Take a trigger out of force; what it has started goes on.

    Raises:
        NotFound: there is none of this name.
    """
    await runtime.triggers.book.remove(name)


@operation("triggers:read")
async def firings(
    runtime: Runtime,
    caller: Caller,
    /,
    *,
    name: str = "",
    status: FiringStatus | None = None,
    limit: int = 100,
) -> list[Firing]:
    """Return what triggers have started, newest first."""
    return await runtime.triggers.book.firings(name=name, status=status, limit=limit)


@operation("triggers:write")
async def run(
    runtime: Runtime,
    caller: Caller,
    /,
    stop: LocalEvent | None = None,
    *,
    once: bool = False,
    most_parallel: int = 4,
) -> None:
    """Fire triggers until `stop` is set; with `once`, only what is due now.

    Several processes may do so at once: each event and each tick is taken by one of them.
    Runs that wait for a model or an MCP server go on meanwhile, as soon as it answers again.

    Raises:
        UsageError: `most_parallel` is out of range; nothing was begun.
    """
    if not 1 <= most_parallel <= _MOST_PARALLEL:
        raise UsageError(detail=f"most_parallel is a number from 1 to {_MOST_PARALLEL}.")
    if not once:
        runtime.recovery.follow_outages()
    await runtime.triggers.run(stop, once=once, most_parallel=most_parallel)
