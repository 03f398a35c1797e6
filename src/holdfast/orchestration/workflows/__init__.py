"""Workflows: steps in an order, durable; from Python or YAML.

Build one with `Workflow` or read it with `parse_workflow`, run it with
`client.workflows.run`.
"""

from holdfast.orchestration.workflows.definition import Definition, Loop, StepRetry, WorkflowStep
from holdfast.orchestration.workflows.files import (
    WorkflowFile,
    WorkflowFiles,
    parse_workflow,
    read_workflow,
    resolve,
)
from holdfast.orchestration.workflows.record import WorkflowStepState
from holdfast.orchestration.workflows.request import WorkflowRequest, fitting_inputs
from holdfast.orchestration.workflows.result import WorkflowResult
from holdfast.orchestration.workflows.runner import AGENT_PREFIX, WorkflowRunner
from holdfast.orchestration.workflows.workflow import Workflow, loop, parallel, step, when

__all__ = [
    "AGENT_PREFIX",
    "Definition",
    "Loop",
    "WorkflowRequest",
    "StepRetry",
    "WorkflowStep",
    "WorkflowStepState",
    "Workflow",
    "WorkflowFile",
    "WorkflowFiles",
    "WorkflowResult",
    "WorkflowRunner",
    "fitting_inputs",
    "loop",
    "parallel",
    "parse_workflow",
    "read_workflow",
    "resolve",
    "step",
    "when",
]
