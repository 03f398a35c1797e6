"""Every hook point: one frozen payload each, and what a hook may do there.

A point is in this file only if it fires; `tests/behaviour/test_hooks_fire.py` makes each of
them fire through the public API. `accepts` names the verdicts that an interceptor may return
besides `continue`; where it is empty, hooks only observe. `changeable` names the fields that
`Modify` may change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, TypeVar

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import NotFound
from holdfast.hooks.verdicts import Modify, VerdictName
from holdfast.messages import Message


class HookPayload(msgspec.Struct, frozen=True, kw_only=True):
    """What a hook is told: where it happens, and what."""

    point: ClassVar[str] = ""
    accepts: ClassVar[frozenset[VerdictName]] = frozenset()
    changeable: ClassVar[frozenset[str]] = frozenset()

    session_id: str = ""
    run_id: str = ""
    agent: str = ""

    def modify(self, **changes: object) -> Modify:
        """Return the verdict: go on with these fields changed."""
        return Modify(msgspec.structs.replace(self, **changes))


H = TypeVar("H", bound=HookPayload)
_POINTS: dict[str, type[HookPayload]] = {}


def _declare_point(
    name: str, *accepts: VerdictName, changeable: Sequence[str] = ()
) -> Callable[[type[H]], type[H]]:
    def declare(cls: type[H]) -> type[H]:
        cls.point, cls.accepts, cls.changeable = name, frozenset(accepts), frozenset(changeable)
        _POINTS[name] = cls
        return cls

    return declare


def list_points() -> dict[str, type[HookPayload]]:
    """Every declared point by its name."""
    return dict(_POINTS)


def match_points(pattern: str) -> tuple[type[HookPayload], ...]:
    """Return the points that an exact name, `*` or `prefix*` means.

    Raises:
        NotFound: there is no such point.
    """
    if pattern.endswith("*"):
        found = [cls for name, cls in _POINTS.items() if name.startswith(pattern[:-1])]
    else:
        found = [_POINTS[pattern]] if pattern in _POINTS else []
    if not found:
        raise NotFound(kind="hook point", value=pattern)
    return tuple(found)


# --- agents --------------------------------------------------------------------------


@_declare_point("agent.before_init", "cancel")
class AgentBeforeInit(HookPayload, frozen=True, kw_only=True):
    """An agent is about to be used by this process for the first time."""


@_declare_point("agent.after_init")
class AgentAfterInit(HookPayload, frozen=True, kw_only=True):
    """The agent is ready; its resources are there."""

    resources: tuple[str, ...] = ()


@_declare_point("agent.before_execution", "modify", "cancel", changeable=("message",))
class AgentBeforeExecution(HookPayload, frozen=True, kw_only=True):
    """A run is about to be submitted with this message."""

    message: str


@_declare_point("agent.after_execution", "modify", changeable=("response",))
class AgentAfterExecution(HookPayload, frozen=True, kw_only=True):
    """A run rests. A changed response goes to the caller; the journal keeps the model's."""

    response: str
    status: str
    tools_used: tuple[str, ...] = ()
    cost_usd: float = 0.0
    duration: float = 0.0


@_declare_point("agent.error")
class AgentError(HookPayload, frozen=True, kw_only=True):
    """A run failed, or could not begin; `error` is an error's `to_dict`."""

    error: JsonObject


@_declare_point("agent.state_changed")
class AgentStateChanged(HookPayload, frozen=True, kw_only=True):
    """The agent went from one state of its lifecycle to another."""

    old: str
    new: str


@_declare_point("agent.resource_acquired")
class AgentResourceAcquired(HookPayload, frozen=True, kw_only=True):
    """A resource of the agent was opened."""

    resource: str


@_declare_point("agent.resource_released")
class AgentResourceReleased(HookPayload, frozen=True, kw_only=True):
    """A resource of the agent was given back; `error` says if that failed."""

    resource: str
    error: str = ""


@_declare_point("agent.before_shutdown")
class AgentBeforeShutdown(HookPayload, frozen=True, kw_only=True):
    """The agent is about to give its resources back."""


@_declare_point("agent.after_shutdown")
class AgentAfterShutdown(HookPayload, frozen=True, kw_only=True):
    """The agent has given its resources back and cannot be used any more."""


# --- models --------------------------------------------------------------------------

_REQUEST = ("system", "messages", "temperature", "top_p")


@_declare_point("model.before_request", "modify", "cancel", "replace", changeable=_REQUEST)
class ModelBeforeRequest(HookPayload, frozen=True, kw_only=True):
    """A model is about to be asked. `replace` takes a text, or a whole `Message`."""

    provider: str
    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[str, ...] = ()
    temperature: float | None = None
    top_p: float | None = None


@_declare_point("model.after_response", "modify", "cancel", "retry", changeable=("message",))
class ModelAfterResponse(HookPayload, frozen=True, kw_only=True):
    """A model has answered; the answer is not kept yet."""

    provider: str
    model: str
    message: Message


@_declare_point("model.error", "replace", "retry")
class ModelError(HookPayload, frozen=True, kw_only=True):
    """A model call failed for good; `error` is an error's `to_dict`."""

    provider: str
    model: str
    error: JsonObject


# --- tools ---------------------------------------------------------------------------


@_declare_point("tool.before_discovery", "modify", changeable=("tools",))
class ToolBeforeDiscovery(HookPayload, frozen=True, kw_only=True):
    """All tools that there are. Names that `Modify` leaves out are not shown to the model."""

    tools: tuple[str, ...]


@_declare_point("tool.after_discovery")
class ToolAfterDiscovery(HookPayload, frozen=True, kw_only=True):
    """The tools that the model may see."""

    tools: tuple[str, ...]


@_declare_point("tool.validation", "cancel")
class ToolValidation(HookPayload, frozen=True, kw_only=True):
    """The arguments of a call fit the tool's schema; the gate decides next."""

    tool: str
    call_id: str
    arguments: JsonObject


@_declare_point("tool.before_execution", "modify", "cancel", "replace", changeable=("arguments",))
class ToolBeforeExecution(HookPayload, frozen=True, kw_only=True):
    """A model asks for a call.

    Whatever a hook says, the arguments are validated and the gate decides afterwards: a
    changed call is judged as changed, a replaced one must be allowed too. `replace` takes
    the text of the result.
    """

    tool: str
    call_id: str
    arguments: JsonObject


@_declare_point("tool.after_execution", "modify", "retry", changeable=("output",))
class ToolAfterExecution(HookPayload, frozen=True, kw_only=True):
    """A call has a result that is not kept yet; `retry` counts for harmless tools only."""

    tool: str
    call_id: str
    arguments: JsonObject
    output: str
    metadata: JsonObject = msgspec.field(default_factory=dict)


@_declare_point("tool.error", "modify", "replace", "retry", changeable=("error",))
class ToolFailure(HookPayload, frozen=True, kw_only=True):
    """A call failed or was refused; `error` is what the model will be told."""

    tool: str
    call_id: str
    arguments: JsonObject
    error: str


# --- context -------------------------------------------------------------------------


@_declare_point("context.before_build", "modify", changeable=("messages",))
class ContextBeforeBuild(HookPayload, frozen=True, kw_only=True):
    """The context of a model call is about to be built from this conversation."""

    messages: tuple[Message, ...]


@_declare_point("context.after_build", "modify", changeable=("system_prompt", "messages"))
class ContextAfterBuild(HookPayload, frozen=True, kw_only=True):
    """What the model is going to see."""

    system_prompt: str
    messages: tuple[Message, ...]
    tools: tuple[str, ...]


@_declare_point("context.before_compaction", "modify", "cancel", "replace", changeable=("focus",))
class ContextBeforeCompaction(HookPayload, frozen=True, kw_only=True):
    """Room is about to be made in a conversation; `messages` are those that the model sees.

    `replace` takes the text of the summary, so that no model is asked for one. `cancel`
    leaves the view as it is; a run whose request then does not fit fails.
    """

    reason: Literal["overflow", "refused", "requested"]
    messages: tuple[Message, ...]
    tokens: int
    focus: str = ""


@_declare_point("context.after_compaction")
class ContextAfterCompaction(HookPayload, frozen=True, kw_only=True):
    """Room was made; without a summary it was enough to leave out old tool output."""

    reason: Literal["overflow", "refused", "requested"]
    summary: str
    tokens_before: int
    tokens_after: int


# --- workflows -----------------------------------------------------------------------


@_declare_point("workflow.before_start", "modify", "cancel", changeable=("inputs",))
class WorkflowBeforeStart(HookPayload, frozen=True, kw_only=True):
    """A workflow is about to begin with these inputs; a resumed one is not asked again."""

    workflow: str
    inputs: JsonObject


@_declare_point("workflow.before_stage", "cancel")
class WorkflowBeforeStage(HookPayload, frozen=True, kw_only=True):
    """An attempt at a step is about to begin; `cancel` makes the step fail."""

    workflow: str
    stage: str
    does: str
    attempt: int = 1


@_declare_point("workflow.after_stage")
class WorkflowAfterStage(HookPayload, frozen=True, kw_only=True):
    """A step has ended or was left out, and that is kept."""

    workflow: str
    stage: str
    status: str


@_declare_point("workflow.stage_transition")
class WorkflowStageTransition(HookPayload, frozen=True, kw_only=True):
    """A step of the outermost list has ended, and others may begin.

    `following` are those that are left, in their order; empty after the last.
    """

    workflow: str
    stage: str
    status: str
    following: tuple[str, ...] = ()


@_declare_point("workflow.rollback")
class WorkflowRollback(HookPayload, frozen=True, kw_only=True):
    """A failed attempt is given up, and the workflow stands before its step again.

    What the attempt had come up with is dropped; effects in the world stay, and are known.
    """

    workflow: str
    stage: str
    attempt: int
    error: JsonObject


@_declare_point("workflow.checkpoint")
class WorkflowCheckpointReached(HookPayload, frozen=True, kw_only=True):
    """A step of the outermost list has ended; a restart begins behind it."""

    workflow: str
    after: str
    done: int
    total: int


@_declare_point("workflow.error")
class WorkflowError(HookPayload, frozen=True, kw_only=True):
    """A step failed, for good or before another attempt, or the workflow as a whole did.

    `error` is an error's `to_dict`, `then` what comes of it; an empty stage is the workflow.
    """

    workflow: str
    stage: str
    error: JsonObject
    then: str


@_declare_point("workflow.complete")
class WorkflowComplete(HookPayload, frozen=True, kw_only=True):
    """A workflow has done its work."""

    workflow: str
    steps: int


# --- sessions: facts, seen by hooks shortly after they are stored ----------------------


@_declare_point("session.start")
class SessionStart(HookPayload, frozen=True, kw_only=True):
    """A session was created."""

    title: str = ""


@_declare_point("session.end")
class SessionEnd(HookPayload, frozen=True, kw_only=True):
    """A session was archived, deleted, or brought to a state in which it takes no turns."""

    how: str
    reason: str = ""


@_declare_point("session.checkpoint")
class SessionCheckpoint(HookPayload, frozen=True, kw_only=True):
    """A run of the session has ended or was parked, and all of it is stored.

    What goes on in the session, in any process, begins behind it.
    """

    status: str


@_declare_point("session.save")
class SessionSave(HookPayload, frozen=True, kw_only=True):
    """A session's own fields (title, metadata, summary, …) were stored."""

    changed: tuple[str, ...] = ()


@_declare_point("session.restore")
class SessionRestore(HookPayload, frozen=True, kw_only=True):
    """A session is active again."""

    reason: str = ""


# --- state ---------------------------------------------------------------------------


@_declare_point("state.before_read", "cancel")
class StateBeforeRead(HookPayload, frozen=True, kw_only=True):
    """A value is about to be read; `address` is `scope:id/key`."""

    address: str


@_declare_point("state.after_read", "modify", changeable=("value",))
class StateAfterRead(HookPayload, frozen=True, kw_only=True):
    """A value was read; a changed one goes to the caller, the stored one and its labels stay."""

    address: str
    value: Any
    version: int
    labels: tuple[str, ...] = ()


@_declare_point("state.before_write", "modify", "cancel", changeable=("value",))
class StateBeforeWrite(HookPayload, frozen=True, kw_only=True):
    """A value is about to be set, or with `is_deleted` removed; rights were checked before."""

    address: str
    value: Any
    is_deleted: bool = False


@_declare_point("state.after_write")
class StateAfterWrite(HookPayload, frozen=True, kw_only=True):
    """A value was set or removed, and that is kept."""

    address: str
    value: Any
    version: int
    is_deleted: bool = False
    labels: tuple[str, ...] = ()


@_declare_point("state.conflict", "replace", "cancel")
class StateConflictMet(HookPayload, frozen=True, kw_only=True):
    """Somebody else changed a value first; `value` is what was to be written.

    `replace` takes the value to write instead, whatever the strategy says; of an `update`, which
    asks its function again, it is only told.
    """

    address: str
    expected: int
    found: int
    strategy: str
    value: Any = None


@_declare_point("state.migration")
class StateMigrated(HookPayload, frozen=True, kw_only=True):
    """A value of an older schema was read through its migrations; it is stored as it was."""

    address: str
    schema: str
    from_version: int
    to_version: int


# --- events --------------------------------------------------------------------------


@_declare_point("event.before_emit", "modify", "cancel", changeable=("data",))
class EventBeforeEmit(HookPayload, frozen=True, kw_only=True):
    """An application is about to publish an event. Facts have happened and are not asked."""

    event: str
    data: JsonObject


@_declare_point("event.after_emit")
class EventAfterEmit(HookPayload, frozen=True, kw_only=True):
    """An application's event is in the queues of its subscribers."""

    event: str
    data: JsonObject
    subscribers: int


@_declare_point("event.handler_error")
class EventHandlerError(HookPayload, frozen=True, kw_only=True):
    """A subscriber's handler raised or took too long."""

    event: str
    subscriber: str
    error: str


# --- the system ----------------------------------------------------------------------


@_declare_point("system.startup")
class SystemStartup(HookPayload, frozen=True, kw_only=True):
    """A client opened its journal."""


@_declare_point("system.shutdown")
class SystemShutdown(HookPayload, frozen=True, kw_only=True):
    """A client is about to close."""


@_declare_point("system.configuration_change")
class SystemConfigurationChange(HookPayload, frozen=True, kw_only=True):
    """An agent was registered or removed."""

    what: Literal["agent"]
    name: str
    change: Literal["registered", "removed"]


@_declare_point("system.resource_limit")
class SystemResourceLimit(HookPayload, frozen=True, kw_only=True):
    """A budget or a rate is used up; `limit` is an error code or an event's name."""

    limit: str
    detail: str


@_declare_point("system.security_violation")
class SystemSecurityViolation(HookPayload, frozen=True, kw_only=True):
    """A call was refused by a rule or a person."""

    tool: str
    permission: str
    targets: tuple[str, ...]
    because: str


__all__ = [
    "AgentAfterExecution",
    "AgentAfterInit",
    "AgentAfterShutdown",
    "AgentBeforeExecution",
    "AgentBeforeInit",
    "AgentBeforeShutdown",
    "AgentError",
    "AgentResourceAcquired",
    "AgentResourceReleased",
    "AgentStateChanged",
    "ContextAfterBuild",
    "ContextAfterCompaction",
    "ContextBeforeBuild",
    "ContextBeforeCompaction",
    "EventAfterEmit",
    "EventBeforeEmit",
    "EventHandlerError",
    "HookPayload",
    "ModelAfterResponse",
    "ModelBeforeRequest",
    "ModelError",
    "SessionEnd",
    "SessionRestore",
    "SessionStart",
    "StateAfterRead",
    "StateAfterWrite",
    "StateBeforeRead",
    "StateBeforeWrite",
    "StateConflictMet",
    "StateMigrated",
    "SystemConfigurationChange",
    "SystemResourceLimit",
    "SystemSecurityViolation",
    "SystemShutdown",
    "SystemStartup",
    "ToolAfterDiscovery",
    "ToolAfterExecution",
    "ToolBeforeDiscovery",
    "ToolBeforeExecution",
    "ToolFailure",
    "ToolValidation",
    "WorkflowAfterStage",
    "WorkflowBeforeStage",
    "WorkflowBeforeStart",
    "WorkflowCheckpointReached",
    "WorkflowComplete",
    "WorkflowError",
    "list_points",
    "match_points",
]
