"""What a run of a workflow gives back."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from holdfast.agents import RunOutcome
from holdfast.canonical import JsonObject
from holdfast.orchestration.workflows.record import Record, WorkflowStepState
from holdfast.sessions import Run


class WorkflowResult(msgspec.Struct, frozen=True, kw_only=True):
    """The output, and how every step went.

    `status` other than `completed` comes with an `error` or a `reason`. A parked workflow
    goes on with `workflows.resume` once an approver has answered.
    """

    workflow: str
    status: RunOutcome
    output: Any = None
    error: JsonObject = msgspec.field(default_factory=dict)
    reason: str = ""
    run_id: str = ""
    session_id: str = ""
    steps: tuple[WorkflowStepState, ...] = ()
    duration: float = 0.0


def make_result(name: str, run: Run, record: Record, duration: float) -> WorkflowResult:
    """Make the result of a run that rests."""
    return WorkflowResult(
        workflow=name,
        status=cast(RunOutcome, run.status),
        output=run.result.get("output"),
        error=run.error,
        reason=run.reason if run.status in ("parked", "cancelled") else "",
        run_id=run.id,
        session_id=run.session_id,
        steps=tuple([_settle_state(state, run) for state in record.states.values()]),
        duration=duration,
    )


def _settle_state(state: WorkflowStepState, run: Run) -> WorkflowStepState:
    """Return how a step stands in a run that rests: with a cancelled one it has ended too."""
    if state.has_ended or run.status != "cancelled":
        return state
    return msgspec.structs.replace(state, status="cancelled")


__all__ = ["WorkflowResult", "make_result"]
