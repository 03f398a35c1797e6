"""State: values that agents and applications share and keep, by address."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Annotated, Any, TypeAlias

from holdfast.canonical import JsonValue
from holdfast.operations.caller import ALL_OWNERS, OWNER, Caller
from holdfast.operations.local_values import Local
from holdfast.operations.operation import local, operation, stream_operation
from holdfast.runtime import Runtime
from holdfast.state import (
    ConflictCase,
    StateChange,
    StateEntry,
    StateManager,
    StatePage,
    StateSchema,
    StateSnapshot,
)

LocalResolver: TypeAlias = Annotated[
    Callable[[ConflictCase], Any], Local("name a strategy: ask-again, last-writer or merge")
]


@local("use the operations of `state`")
async def manager(runtime: Runtime, /) -> StateManager:
    """Return the state of all scopes, for typed values and for views of one scope."""
    return runtime.state.manager()


@operation("state:read")
async def get(
    runtime: Runtime, caller: Caller, /, address: str, default: JsonValue = None
) -> JsonValue:
    """Return the value at an address (`user/language`), or the default."""
    return await _open(runtime, caller).get(address, default)


@operation("state:read")
async def entry(runtime: Runtime, caller: Caller, /, address: str) -> StateEntry | None:
    """Return a value with its version, labels and times; `None` if there is none."""
    return await _open(runtime, caller).entry(address)


@operation("state:write")
async def set_(
    runtime: Runtime,
    caller: Caller,
    /,
    address: str,
    value: JsonValue,
    *,
    expected: int | None = None,
    on_conflict: str | LocalResolver = "ask-again",
    ttl_s: float | None = None,
    labels: Sequence[str] = (),
) -> StateEntry:
    """Set a value; with `expected`, only if it is at that version. See `ScopedState.set`.

    Raises:
        StateConflict: somebody else changed it first, and `on_conflict` does not resolve that.
    """
    return await _open(runtime, caller).set(
        address, value, expected=expected, on_conflict=on_conflict, ttl_s=ttl_s, labels=labels
    )


@operation("state:write")
async def delete(
    runtime: Runtime, caller: Caller, /, address: str, *, expected: int | None = None
) -> bool:
    """Remove a value; says whether there was one. Its history stays until it is forgotten."""
    return await _open(runtime, caller).delete(address, expected=expected)


@local("read `state.entry`, then `state.set` with `expected`, and again while it conflicts")
async def update(
    runtime: Runtime,
    /,
    address: str,
    function: Callable[[Any], Any],
    *,
    default: JsonValue = None,
    retries: int = 100,
    ttl_s: float | None = None,
    labels: Sequence[str] = (),
    schema: StateSchema[Any] | type[Any] | None = None,
) -> StateEntry:
    """Set a value to what a function makes of it, whoever else writes meanwhile."""
    return await runtime.state.manager().update(
        address,
        function,
        default=default,
        retries=retries,
        ttl_s=ttl_s,
        labels=labels,
        schema=schema,
    )


@operation("state:read")
async def list_(
    runtime: Runtime, caller: Caller, /, prefix: str, *, limit: int = 100, cursor: str = ""
) -> StatePage:
    """Return values by prefix (`user/`, `user/settings.`) in order of keys, page by page."""
    return await _open(runtime, caller).list(prefix, limit=limit, cursor=cursor)


@operation("state:read")
async def history(
    runtime: Runtime, caller: Caller, /, address: str, *, limit: int = 100, before: int = 0
) -> list[StateChange]:
    """Return the changes of a value, newest first; `before` is the number of the last one seen."""
    return await _open(runtime, caller).history(address, limit=limit, before=before)


@stream_operation("state:read")
async def watch(
    runtime: Runtime, caller: Caller, /, prefix: str, *, after: int | None = None
) -> AsyncGenerator[StateChange, None]:
    """Yield changes as they happen, here or in another process, without gaps."""
    changes = _open(runtime, caller).watch(prefix, after=after)
    async with contextlib.aclosing(changes):
        async for change in changes:
            yield change


@operation("state:read")
async def snapshot(
    runtime: Runtime,
    caller: Caller,
    /,
    scope: str,
    *,
    at: int | None = None,
    at_seq: int | None = None,
) -> StateSnapshot:
    """Return all values of a scope (`user`, `session:ID`), now or at an event."""
    return await _open(runtime, caller).snapshot(scope, at=at, at_seq=at_seq)


@operation("state:write")
async def restore(runtime: Runtime, caller: Caller, /, scope: str, to: int) -> int:
    """Make all values of a scope what they were at an event; returns how many changed.

    `to` is the number of an event in the scope's chain, such as the `position` of a snapshot.
    """
    return await _open(runtime, caller).restore(scope, to)


@operation("state:write")
async def forget(runtime: Runtime, caller: Caller, /, scope: str, *, reason: str = "") -> bool:
    """Remove a scope (`user:ann`) with its history for good; says whether there was one."""
    return await _open(runtime, caller).forget(scope, reason=reason)


@operation("state:write")
async def sweep(runtime: Runtime, caller: Caller, /) -> int:
    """Remove values whose time to live is over; returns how many."""
    return await _open(runtime, caller).sweep()


def _open(runtime: Runtime, caller: Caller) -> StateManager:
    if caller is OWNER:
        return runtime.state.manager()
    return runtime.state.manager(caller.subject, sees_all=caller.may(ALL_OWNERS))
