"""The facts of workflows: what began, ended, failed, was left out.

`path` names one execution of a step: `each[2]/hi` is the step `hi` in the third round of the
loop `each`. A restart folds these facts and goes on with what has not ended.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from holdfast.canonical import JsonObject
from holdfast.journal import Payload, payload

Next: TypeAlias = Literal["retry", "continue", "fail"]


@payload("workflow.started", is_inherited=False, has_content=True)
class WorkflowStarted(Payload, frozen=True, kw_only=True):
    """A workflow began, with these inputs; what it consists of stands with its run."""

    name: str
    digest: str
    steps: int
    inputs: JsonObject = msgspec.field(default_factory=dict)

    def redacted(self) -> WorkflowStarted:
        """Keep which workflow; drop its inputs."""
        return msgspec.structs.replace(self, inputs={})


@payload("workflow.step_started", is_inherited=False)
class WorkflowStepStarted(Payload, frozen=True, kw_only=True):
    """An attempt at a step began; where it is a run of its own, that is named."""

    path: str
    does: str
    attempt: int = 1
    child_session: str = ""
    child_run: str = ""


@payload("workflow.step_completed", is_inherited=False, has_content=True)
class StepCompleted(Payload, frozen=True, kw_only=True):
    """A step has ended with this output and is never executed again."""

    path: str
    output: Any = None

    def redacted(self) -> StepCompleted:
        """Keep which step; drop its output."""
        return StepCompleted(path=self.path)


@payload("workflow.step_skipped", is_inherited=False)
class StepSkipped(Payload, frozen=True, kw_only=True):
    """A step was left out because its condition did not hold."""

    path: str


@payload("workflow.step_failed", is_inherited=False)
class WorkflowStepFailed(Payload, frozen=True, kw_only=True):
    """An attempt at a step failed, and what comes of it.

    With `fail` everything up to the block `ends` fails too; an empty one is the workflow.
    """

    path: str
    attempt: int
    error: JsonObject
    then: Next
    ends: str = ""
    retry_at: float = 0.0


@payload("workflow.checkpoint", is_inherited=False)
class WorkflowCheckpoint(Payload, frozen=True, kw_only=True):
    """A step of the outermost list has ended; everything before it is behind us for good."""

    after: str
    done: int
    total: int


@payload("workflow.completed", is_inherited=False)
class WorkflowCompleted(Payload, frozen=True, kw_only=True):
    """A workflow has done its work; its output stands with its run."""

    name: str
    steps: int


@payload("workflow.failed", is_inherited=False)
class WorkflowFailed(Payload, frozen=True, kw_only=True):
    """A workflow cannot go on; `error` is an error's `to_dict`."""

    name: str
    error: JsonObject


WORKFLOW_KINDS: frozenset[str] = frozenset(
    cls.kind
    for cls in (
        WorkflowStarted,
        WorkflowStepStarted,
        StepCompleted,
        StepSkipped,
        WorkflowStepFailed,
        WorkflowCheckpoint,
        WorkflowCompleted,
        WorkflowFailed,
    )
)

__all__ = [
    "WORKFLOW_KINDS",
    "Next",
    "StepCompleted",
    "StepSkipped",
    "WorkflowCheckpoint",
    "WorkflowCompleted",
    "WorkflowFailed",
    "WorkflowStarted",
    "WorkflowStepFailed",
    "WorkflowStepStarted",
]
