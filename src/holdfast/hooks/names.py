"""The names under which people subscribe: facts are stored once, names are views.

Every fact appears under its kind. Some appear under more names, by what they say:

====================== ========================================= =======================
stored as              when                                      appears also as
====================== ========================================= =======================
message.created        a run's answer of a model                 model.completed
message.created        that answer asks for calls                tool.requested
message.part.updated   always                                    message.updated
message.part.updated   a call has its result                     tool.completed
message.part.updated   a call failed or was refused              tool.error
approval.requested     always                                    permission.asked
approval.answered      a person consented                        permission.granted
run.failed             nothing was left to spend                 budget.exhausted
step.ended             a step of a plan is done                  step.completed
====================== ========================================= =======================

Ephemeral events are never stored; what did not subscribe has missed them:
model.requested, model.failed, model.text_delta, model.reasoning_delta, tool.executing,
tool.progress, hook.executed, agent.initialized, agent.ready, agent.executing, agent.paused,
agent.error, agent.cleanup, task.started, task.completed, task.failed, task.cancelled,
system.started, system.stopping, and whatever an application publishes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from holdfast.canonical import JsonObject
from holdfast.journal import Event, list_known_kinds
from holdfast.messages import Message, Part, ToolPart

VIEWS: dict[str, tuple[str, ...]] = {
    "message.created": ("model.completed", "tool.requested"),
    "message.part.updated": ("message.updated", "tool.completed", "tool.error"),
    "approval.requested": ("permission.asked",),
    "approval.answered": ("permission.granted",),
    "run.failed": ("budget.exhausted",),
    "step.ended": ("step.completed",),
}
"""Which other names the facts of a kind may appear under."""

EPHEMERAL: tuple[str, ...] = (
    "model.requested",
    "model.failed",
    "model.text_delta",
    "model.reasoning_delta",
    "tool.executing",
    "tool.progress",
    "hook.executed",
    "agent.initialized",
    "agent.ready",
    "agent.executing",
    "agent.paused",
    "agent.error",
    "agent.cleanup",
    "task.started",
    "task.completed",
    "task.failed",
    "task.cancelled",
    "system.started",
    "system.stopping",
)
"""What is told to each subscriber and kept nowhere."""

_VIEW_NAMES = frozenset(name for names in VIEWS.values() for name in names)


class BusEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What a subscriber gets: a fact under the name it asked for, or an ephemeral event.

    `seq` is the fact's place in the journal, 0 for an ephemeral event. `content` belongs to
    ephemeral events; use `data`, which is there for both.
    """

    name: str
    time: float
    session_id: str = ""
    run_id: str = ""
    agent_path: str = ""
    correlation_id: str = ""
    seq: int = 0
    fact: Event | None = None
    content: bytes = b"{}"

    @property
    def is_ephemeral(self) -> bool:
        """Whether it is stored nowhere."""
        return self.fact is None

    @property
    def data(self) -> JsonObject:
        """What it says, as plain JSON; a fresh copy each time."""
        source = self.content if self.fact is None else self.fact.payload
        return msgspec.json.decode(source, type=JsonObject)


class _Created(msgspec.Struct):
    message: Message


class _Updated(msgspec.Struct):
    part: Part | None = None


_created = msgspec.json.Decoder(_Created)
_updated = msgspec.json.Decoder(_Updated)


def list_names(event: Event) -> tuple[str, ...]:
    """Return every name under which a fact appears, its kind first."""
    if event.kind not in VIEWS:
        return (event.kind,)
    try:
        views = _READERS[event.kind](event)
    except msgspec.MsgspecError:
        # A newer version of the kind may look different; its kind is still its name.
        views = []
    return (event.kind, *views)


def find_matching_name(event: Event, patterns: Sequence[str]) -> str:
    """Return the first name of a fact that a pattern means, or nothing."""
    if matches(event.kind, patterns):
        return event.kind
    if event.kind in VIEWS and any(matches(name, patterns) for name in VIEWS[event.kind]):
        return next((name for name in list_names(event) if matches(name, patterns)), "")
    return ""


def make_view(event: Event, name: str) -> BusEvent:
    """Return a fact as subscribers see it."""
    return BusEvent(
        name=name,
        time=event.time,
        session_id=event.session_id,
        run_id=event.run_id,
        agent_path=event.agent_path,
        correlation_id=event.correlation_id,
        seq=event.seq,
        fact=event,
    )


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Say whether a name is meant by a pattern: exact, `*`, or `prefix*`."""
    return any(
        name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1]))
        for pattern in patterns
    )


def is_name_of_facts(name: str) -> bool:
    """Say whether a name belongs to facts, so that no application may publish under it."""
    return name in _VIEW_NAMES or name in list_known_kinds()


def _list_names_of_message(event: Event) -> list[str]:
    message = _created.decode(event.payload).message
    names = []
    if message.role == "assistant" and event.run_id:
        names.append("model.completed")
        if message.tool_calls:
            names.append("tool.requested")
    return names


class _Answered(msgspec.Struct):
    verdict: str = ""


class _FailedRun(msgspec.Struct):
    error: JsonObject = msgspec.field(default_factory=dict)


class _EndedStep(msgspec.Struct):
    status: str = ""


def _list_names_of_answer(event: Event) -> list[str]:
    answer = msgspec.json.decode(event.payload, type=_Answered)
    return ["permission.granted"] if answer.verdict == "allow" else []


def _list_names_of_failure(event: Event) -> list[str]:
    failed = msgspec.json.decode(event.payload, type=_FailedRun)
    is_spent = str(failed.error.get("code", "")).startswith("budget.")
    return ["budget.exhausted"] if is_spent else []


def _list_names_of_step(event: Event) -> list[str]:
    ended = msgspec.json.decode(event.payload, type=_EndedStep)
    return ["step.completed"] if ended.status == "done" else []


def _list_names_of_part(event: Event) -> list[str]:
    part = _updated.decode(event.payload).part
    names = ["message.updated"]
    if isinstance(part, ToolPart) and part.state in ("completed", "error"):
        names.append("tool.completed" if part.state == "completed" else "tool.error")
    return names


_READERS: dict[str, Callable[[Event], list[str]]] = {
    "message.created": _list_names_of_message,
    "message.part.updated": _list_names_of_part,
    "approval.requested": lambda event: ["permission.asked"],
    "approval.answered": _list_names_of_answer,
    "run.failed": _list_names_of_failure,
    "step.ended": _list_names_of_step,
}
