"""Tools: call one by hand, see what was called, fetch what was too long to show."""

from __future__ import annotations

import msgspec

from holdfast.artifacts import ArtifactActor
from holdfast.canonical import JsonObject
from holdfast.messages import ToolState
from holdfast.operations.caller import Caller
from holdfast.operations.operation import local, operation
from holdfast.policy import Budget, OnAsk
from holdfast.runtime import Runtime, ToolCallResult
from holdfast.tools import (
    SearchProvider,
    Tool,
    ToolExecution,
    ToolExecutionTracker,
    ToolRegistry,
    choose_default_action,
    describe,
    load_kept_output,
)


@local("install the tool where the runtime is: as an entry point, a bundle or an MCP server")
async def register(runtime: Runtime, /, tool: Tool) -> None:
    """Offer a tool to every agent of this client; rules decide who may call it."""
    runtime.toolbox.registry.register(tool)


@local("use the operations of `tools`", opens=False)
async def registry(runtime: Runtime, /) -> ToolRegistry:
    """Return the tools of this client: the built-in ones, and what was registered."""
    return runtime.toolbox.registry


class ToolInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as callers see it; `permission` holds where no rule speaks."""

    name: str
    version: str
    scope: str
    effect: str
    permission: str
    tags: tuple[str, ...]
    purpose: str


@operation("tools:read")
async def list_(runtime: Runtime, caller: Caller, /, *, tag: str = "") -> list[ToolInfo]:
    """Return the tools that agents can be given, by name, those of one tag if it is named."""
    registry = runtime.toolbox.registry
    return [
        ToolInfo(
            name=one.name,
            version=one.version,
            scope=registry.find_scope(one.name),
            effect=one.effect,
            permission=choose_default_action(one, registry.find_scope(one.name)),
            tags=tuple(one.tags),
            purpose=one.description.partition("\n")[0],
        )
        for one in registry
        if not tag or tag in one.tags
    ]


@operation("tools:read")
async def describe_(runtime: Runtime, caller: Caller, /, name: str) -> JsonObject:
    """Return everything about a tool: its words, effect, arguments and output as JSON Schema.

    Raises:
        NotFound: there is no such tool.
    """
    registry = runtime.toolbox.registry
    found = registry.get(name)
    action = choose_default_action(found, registry.find_scope(found.name))
    return {**describe(found), "permission": action}


@operation("tools:call")
async def call(
    runtime: Runtime,
    caller: Caller,
    /,
    name: str,
    arguments: JsonObject,
    *,
    session_id: str = "",
    run_id: str = "",
    on_ask: OnAsk = "deny",
    budget: Budget | None = None,
) -> ToolCallResult:
    """Call a tool through the gate, in a session, and return what came back.

    Everything is recorded as if an agent had called it: hooks are asked, subscribers hear
    of it, and it counts against the budgets of its session and of the settings, and
    against `budget`. A call that fits into none of them ends the run as failed with the
    error `budget.exceeded`, before anything happens.

    An empty `session_id` means that of `run_id` if there is such a run, or else a new
    session. The same `run_id` again returns the finished call, or goes on with one that
    was interrupted or has waited; `name` may then be empty. `on_ask` is as for
    `execute_agent`.

    Raises:
        NotFound: there is no such tool or session.
        UsageError: the run is none of a call by hand, or calls another tool.
        PolicyInvalid: a policy file is wrong; nothing was called.
        RunInTheWay: a run that a dead process left behind stands first in the session, and
            its agent is not known here; nothing was called.
    """
    return await runtime.hand_calls.call(
        name, arguments, session_id=session_id, run_id=run_id, on_ask=on_ask, budget=budget
    )


@local("configure a search server in the settings there")
async def use_search(
    runtime: Runtime, /, *, web: SearchProvider | None = None, code: SearchProvider | None = None
) -> None:
    """Let `websearch` and `codesearch` ask these providers from now on."""
    runtime.toolbox.use_search(web, code)


@operation("tools:read")
async def history(
    runtime: Runtime,
    caller: Caller,
    /,
    session_id: str,
    limit: int = 100,
    *,
    tool: str | None = None,
    state: ToolState | None = None,
) -> list[ToolExecution]:
    """Return the newest calls of a session, newest first."""
    tracker = ToolExecutionTracker(runtime.sessions)
    return await tracker.get_execution_history(session_id, limit, tool=tool, state=state)


@operation("tools:read")
async def output(runtime: Runtime, caller: Caller, /, session_id: str, handle: str) -> bytes:
    """Return the whole of an output that was too long; the shown text names the handle.

    Raises:
        NotFound: there is no such session or handle.
    """
    session = await runtime.sessions.get_session(session_id)
    if handle.startswith("out_"):
        return await load_kept_output(runtime.journal, session.id, handle)
    actor = ArtifactActor(
        tenant=runtime.tenant, subject=f"session:{session.id}", session_id=session.id
    )
    return await (await runtime.artifacts.act_for(actor)).load(handle)
