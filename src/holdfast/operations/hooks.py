"""Hooks: files of them, and plain functions as callbacks."""

from __future__ import annotations

import asyncio

from holdfast.hooks import Callbacks, Hook
from holdfast.operations.caller import Caller
from holdfast.operations.operation import local, operation
from holdfast.runs import HookFile
from holdfast.runtime import Runtime


@operation("hooks:read")
async def list_(runtime: Runtime, caller: Caller, /) -> list[HookFile]:
    """Return the hooks of files, trusted or not, with what is wrong with them."""
    return await asyncio.to_thread(runtime.hooks.files.find)


@operation("hooks:write")
async def trust(runtime: Runtime, caller: Caller, /, *, revoke: bool = False) -> list[HookFile]:
    """Vouch for the project's hooks as they are now, or take that back.

    They take part in runs that begin from now on.

    Raises:
        NotFound: the project has none.
    """
    return await runtime.hooks.trust(revoke=revoke)


@local("put a hook's description below `.holdfast/hooks`")
async def use_callbacks(
    runtime: Runtime, /, callbacks: Callbacks, *, agent: str = "", priority: int = 0
) -> tuple[Hook, ...]:
    """Call plain functions before and after agents, models and tools."""
    return callbacks.register(runtime.hooks.hooks, agent=agent, priority=priority)
