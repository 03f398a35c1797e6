"""What the journal knows about a workflow's run: folded from its facts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal, TypeAlias

import msgspec

from holdfast.canonical import JsonObject
from holdfast.journal import Event, Journal, Payload
from holdfast.orchestration.workflows import events as facts

_PAGE = 500

StepStatus: TypeAlias = Literal["running", "completed", "failed", "skipped", "cancelled"]
"""Cancelled is what was under way when its run was."""


class WorkflowStepState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one execution of a step stands."""

    path: str
    status: StepStatus
    does: str = ""
    attempts: int = 0
    output: Any = None
    error: JsonObject = msgspec.field(default_factory=dict)
    child_session: str = ""
    child_run: str = ""
    retry_at: float = 0.0
    time_started: float = 0.0
    time_ended: float = 0.0

    @property
    def has_ended(self) -> bool:
        """Whether it is never executed again."""
        return self.status != "running"

    @property
    def shown(self) -> JsonObject:
        """What expressions see of it."""
        error = str(self.error.get("message", "")) if self.status == "failed" else ""
        return {"output": self.output, "status": self.status, "error": error}


class Record:
    """The state of a run of a workflow, kept up to date with its facts."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.started: facts.WorkflowStarted | None = None
        self.ended: facts.WorkflowCompleted | facts.WorkflowFailed | None = None
        self.states: dict[str, WorkflowStepState] = {}
        self.ends: dict[str, facts.WorkflowStepFailed] = {}
        """Blocks that a failure inside has ended, by path; "" is the workflow."""
        self.done = 0
        """How many steps of the outermost list have ended."""

    def note(self, fact: Payload, time: float) -> None:
        """Fold one fact."""
        match fact:
            case facts.WorkflowStarted():
                self.started = fact
            case facts.WorkflowCompleted() | facts.WorkflowFailed():
                self.ended = fact
            case facts.WorkflowCheckpoint(done=done):
                self.done = done
            case facts.WorkflowStepStarted(path=path):
                self._begin(path, fact, time)
            case facts.StepCompleted(path=path, output=output):
                self._end(path, time, status="completed", output=output)
            case facts.StepSkipped(path=path):
                self.states[path] = WorkflowStepState(path=path, status="skipped", time_ended=time)
            case facts.WorkflowStepFailed():
                self._fail(fact, time)

    def _begin(self, path: str, fact: facts.WorkflowStepStarted, time: float) -> None:
        known = self.states.get(path)
        self.states[path] = WorkflowStepState(
            path=path,
            status="running",
            does=fact.does,
            attempts=fact.attempt,
            child_session=fact.child_session,
            child_run=fact.child_run,
            time_started=known.time_started if known is not None else time,
        )

    def _fail(self, fact: facts.WorkflowStepFailed, time: float) -> None:
        if fact.then == "retry":
            known = self.states.get(fact.path) or WorkflowStepState(
                path=fact.path, status="running"
            )
            self.states[fact.path] = msgspec.structs.replace(
                known, attempts=fact.attempt, error=fact.error, retry_at=fact.retry_at
            )
            return
        self._end(fact.path, time, status="failed", error=fact.error, attempts=fact.attempt)
        if fact.then == "fail":
            self.ends.setdefault(fact.ends, fact)

    def _end(self, path: str, time: float, **changes: Any) -> None:  # noqa: ANN401 - fields
        known = self.states.get(path) or WorkflowStepState(
            path=path, status="running", time_started=time
        )
        self.states[path] = msgspec.structs.replace(known, time_ended=time, **changes)


async def read_record(journal: Journal, session_id: str, run_id: str, after: int) -> Record:
    """Fold what a run has written so far; `after` is where it was queued."""
    record = Record()
    async for event in _iterate_events(journal, session_id, after):
        if event.run_id == run_id:
            record.note(event.decode(), event.time)
    return record


async def _iterate_events(journal: Journal, session_id: str, after: int) -> AsyncIterator[Event]:
    while True:
        page: list[Event] = await journal.read(
            session_id, after=after, limit=_PAGE, kinds=facts.WORKFLOW_KINDS
        )
        for event in page:
            yield event
        if len(page) < _PAGE:
            return
        after = page[-1].session_seq


__all__ = ["Record", "StepStatus", "WorkflowStepState", "read_record"]
