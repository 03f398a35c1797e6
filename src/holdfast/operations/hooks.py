"""Hooks: those of files, and Python functions of this process."""

from __future__ import annotations

import asyncio
from typing import Final

from holdfast.hooks import Callbacks, Hook, Hooks
from holdfast.operations.caller import Caller
from holdfast.operations.operation import LocalMember, local, operation
from holdfast.runs import HookFile
from holdfast.runtime import Runtime

_INSTEAD: Final = "put a hook's description below `.holdfast/hooks` there"


def _find_hooks(runtime: Runtime) -> Hooks:
    return runtime.hooks.hooks


@operation("hooks:read")
async def list_(runtime: Runtime, caller: Caller, /) -> list[HookFile]:
    """Return the hooks of files, trusted or not, with what is wrong with them."""
    return await asyncio.to_thread(runtime.hooks.files.find)


@operation("hooks:admin")
async def trust(runtime: Runtime, caller: Caller, /, *, revoke: bool = False) -> list[HookFile]:
    """Vouch for the project's hooks as they are now, or take that back.

    They take part in runs that begin from now on.

    Raises:
        NotFound: the project has none.
    """
    return await runtime.hooks.trust(revoke=revoke)


on = LocalMember("hooks.on", _INSTEAD, Hooks.on, lambda runtime: _find_hooks(runtime).on)
observe = LocalMember(
    "hooks.observe",
    "read `events.stream`",
    Hooks.observe,
    lambda runtime: _find_hooks(runtime).observe,
)
on_script = LocalMember(
    "hooks.on_script", _INSTEAD, Hooks.on_script, lambda runtime: _find_hooks(runtime).on_script
)
off = LocalMember(
    "hooks.off", "remove its description there", Hooks.off, lambda runtime: _find_hooks(runtime).off
)
load_entry_points = LocalMember(
    "hooks.load_entry_points",
    "install the packages where the runtime is",
    Hooks.load_entry_points,
    lambda runtime: _find_hooks(runtime).load_entry_points,
)


@local(_INSTEAD)
async def use_callbacks(
    runtime: Runtime, /, callbacks: Callbacks, *, agent: str = "", priority: int = 0
) -> tuple[Hook, ...]:
    """Call plain functions before and after agents, models and tools."""
    return callbacks.register(runtime.hooks.hooks, agent=agent, priority=priority)


@local("use the operations of `hooks`", opens=False)
async def registry(runtime: Runtime, /) -> Hooks:
    """Return the Python hooks of this client, for what the namespace does not cover."""
    return runtime.hooks.hooks
