"""A run's events as people follow them: turns with their calls, and bars on a line of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from holdfast.journal import Event

_MARKS: Final = {
    "model.retried": "model asked again",
    "model.fallback": "another model asked",
    "session.compacted": "older part summarised",
    "agent.handed_off": "handed over to another agent",
    "run.steered": "said to the run",
    "hook.decided": "a hook decided",
    "policy.violation": "against a policy",
    "egress.refused": "network refused",
    "run.cancel_requested": "asked to end",
}
_KINDS_OF_TARGETS: Final = (
    ("command", "command"),
    ("file_path", "path"),
    ("path", "path"),
    ("url", "host"),
)
_LONGEST_TARGET: Final = 1_000
_TRIED: Final = frozenset({"model.retried", "model.fallback"})
"""A call of a model that failed: another one follows."""


class ShownCall(msgspec.Struct, kw_only=True):
    """One call of a tool, with all that is known of it."""

    id: str
    tool: str
    arguments: dict[str, Any]
    state: str = "pending"
    output: str = ""
    error: str = ""
    began: float = 0.0
    ended: float = 0.0
    at: int = 0
    intent: dict[str, Any] | None = None
    effect: str = ""
    targets: Sequence[str] = ()
    decision: dict[str, Any] | None = None
    asked: dict[str, Any] | None = None
    answers: list[dict[str, Any]] = []
    metadata: dict[str, Any] = {}
    files: Sequence[dict[str, Any]] = ()
    policy_version: str = ""

    @property
    def question(self) -> dict[str, str]:
        """What the page of the policies is asked to explain this call: its kind and target."""
        for name, kind in _KINDS_OF_TARGETS:
            if isinstance(self.arguments.get(name), str):
                return {"kind": kind, "target": str(self.arguments[name])[:_LONGEST_TARGET]}
        return {}


class ShownMessage(msgspec.Struct, kw_only=True):
    """A message, or a mark between messages."""

    role: str
    at: int
    time: float
    agent: str = ""
    model: str = ""
    texts: list[str] = []
    reasoning: list[str] = []
    files: list[dict[str, Any]] = []
    calls: list[ShownCall] = []
    usage: dict[str, int] = {}
    cost: float = 0.0


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """A span of time in which something happened."""

    kind: str
    label: str
    began: float
    ended: float
    at: int


class RunHistory(msgspec.Struct, kw_only=True):
    """What a window of events says."""

    said: list[ShownMessage] = []
    bars: list[Bar] = []


def read_history(events: Sequence[Event], *, now: float) -> RunHistory:
    """Return what happened in these events of one run, in order."""
    reader = _Reader()
    for event in events:
        reader.take(event)
    return reader.finish(now)


class _Reader:
    def __init__(self) -> None:
        self.said: list[ShownMessage] = []
        self.bars: list[Bar] = []
        self.calls: dict[str, ShownCall] = {}
        self.approvals: dict[str, str] = {}
        self.since = 0.0
        self.parked: tuple[float, str, int] | None = None
        self.is_over = False

    def take(self, event: Event) -> None:
        data: dict[str, Any] = msgspec.json.decode(event.payload)
        kind = event.kind
        if kind == "message.created":
            self._take_message(event, data["message"])
        elif kind in ("message.part.updated", "tool.nested_ended"):
            self._take_part(event, data.get("part") or {})
        elif kind in ("run.parked", "run.resumed", "run.started"):
            self._take_pause(event, data)
        elif kind in ("run.completed", "run.failed", "run.cancelled"):
            self._end_pause(event.time)
            self.is_over = True
            self._mark(event, kind.replace("run.", "run "), _tell_error(data))
        elif kind in _MARKS:
            told = str(data.get("reason") or data.get("summary") or data.get("error_code") or "")
            self._mark(event, _MARKS[kind], told)
            if kind in _TRIED and self.since:
                name = data.get("model") or data.get("from_model") or "model"
                self._draw_bar(
                    "failed", f"{name}, failed", self.since, event.time, event.session_seq
                )
                self.since = event.time
        else:
            self._take_of_call(event, data)

    def _take_message(self, event: Event, message: dict[str, Any]) -> None:
        parts = message.get("parts", ())
        said = ShownMessage(
            role=message["role"],
            at=event.session_seq,
            time=event.time,
            agent=message.get("agent", ""),
            model=message.get("model", ""),
            texts=[part["text"] for part in parts if part["type"] == "text"],
            reasoning=[part["text"] for part in parts if part["type"] == "reasoning"],
            files=[part for part in parts if part["type"] == "file"],
            usage=message.get("usage") or {},
            cost=message.get("cost_usd", 0.0),
        )
        for part in parts:
            if part["type"] == "tool":
                call = self.calls.setdefault(
                    part["call_id"],
                    ShownCall(id=part["call_id"], tool=part["tool"], arguments={}, answers=[]),
                )
                call.arguments = part.get("input", {})
                call.at = event.session_seq
                said.calls.append(call)
        if said.role == "assistant" and self.since:
            label = said.model or "model"
            self._draw_bar("model", label, self.since, event.time, event.session_seq)
        self.since = event.time
        self.said.append(said)

    def _take_part(self, event: Event, part: dict[str, Any]) -> None:
        if part.get("type") != "tool":
            return
        call = self.calls.setdefault(
            part["call_id"],
            ShownCall(id=part["call_id"], tool=part["tool"], arguments={}, answers=[]),
        )
        call.arguments = part.get("input", call.arguments)
        call.state = part.get("state", "pending")
        call.output, call.error = part.get("output", ""), part.get("error", "")
        call.began, call.ended = part.get("time_start") or 0.0, part.get("time_end") or 0.0
        call.metadata = part.get("metadata", {})
        call.files = part.get("attachments", ())
        if call.began and call.ended:
            kind = "failed" if call.state == "error" else "tool"
            self._draw_bar(kind, call.tool, call.began, call.ended, event.session_seq)
        self.since = event.time

    def _take_of_call(self, event: Event, data: dict[str, Any]) -> None:
        if event.kind == "approval.requested":
            self.approvals[data["approval_id"]] = data["call_id"]
        name = data.get("call_id") or self.approvals.get(data.get("approval_id", ""), "")
        if event.kind == "tool.started":
            name = data["intent"]["call_id"]
        call = self.calls.get(name)
        if call is None:
            return
        if event.kind == "tool.started":
            call.intent, call.effect = data["intent"], str(data.get("effect", ""))
            call.targets = data.get("targets", ())
            call.policy_version = str(data.get("policy_version", ""))
        elif event.kind == "approval.requested":
            call.asked, call.decision = data, data.get("decision")
        elif event.kind == "approval.answered":
            call.answers.append(data)
        elif event.kind == "permission.denied":
            call.decision, call.state = data.get("decision"), "error"

    def _take_pause(self, event: Event, data: dict[str, Any]) -> None:
        if event.kind == "run.parked":
            self.parked = (event.time, str(data.get("reason") or "waits"), event.session_seq)
        else:
            self._end_pause(event.time)
            self.since = event.time

    def _end_pause(self, time: float) -> None:
        if self.parked is not None:
            began, reason, at = self.parked
            self._draw_bar("wait", f"waits: {reason}", began, time, at)
            self.parked = None

    def _mark(self, event: Event, label: str, told: str) -> None:
        texts = [told] if told else []
        self.said.append(
            ShownMessage(
                role="mark", at=event.session_seq, time=event.time, agent=label, texts=texts
            )
        )

    def _draw_bar(self, kind: str, label: str, began: float, ended: float, at: int) -> None:
        self.bars.append(Bar(kind=kind, label=label, began=began, ended=max(began, ended), at=at))

    def finish(self, now: float) -> RunHistory:
        if not self.is_over:
            self._end_pause(now)
        return RunHistory(said=self.said, bars=self.bars)


def _tell_error(data: dict[str, Any]) -> str:
    error = data.get("error") or {}
    return str(error.get("message", "") or data.get("reason", ""))


__all__ = ["Bar", "ShownCall", "RunHistory", "ShownMessage", "read_history"]
