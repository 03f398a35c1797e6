"""Workflows: steps in an order, durable; from Python or YAML.

Build one with `Workflow` or read it with `parse_workflow`, run it with
`client.workflows.run`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.orchestration.workflows import events as events
    from holdfast.orchestration.workflows.definition import Definition as Definition
    from holdfast.orchestration.workflows.definition import Loop as Loop
    from holdfast.orchestration.workflows.definition import StepRetry as StepRetry
    from holdfast.orchestration.workflows.definition import WorkflowStep as WorkflowStep
    from holdfast.orchestration.workflows.files import FOLDER as FOLDER
    from holdfast.orchestration.workflows.files import SUFFIXES as SUFFIXES
    from holdfast.orchestration.workflows.files import WorkflowFiles as WorkflowFiles
    from holdfast.orchestration.workflows.files import WorkflowInfo as WorkflowInfo
    from holdfast.orchestration.workflows.files import parse_workflow as parse_workflow
    from holdfast.orchestration.workflows.files import read_definition as read_definition
    from holdfast.orchestration.workflows.files import read_workflow as read_workflow
    from holdfast.orchestration.workflows.files import resolve as resolve
    from holdfast.orchestration.workflows.graph import to_json as to_json
    from holdfast.orchestration.workflows.graph import to_mermaid as to_mermaid
    from holdfast.orchestration.workflows.graph import to_svg as to_svg
    from holdfast.orchestration.workflows.record import WorkflowStepState as WorkflowStepState
    from holdfast.orchestration.workflows.request import WorkflowRequest as WorkflowRequest
    from holdfast.orchestration.workflows.request import fit_inputs as fit_inputs
    from holdfast.orchestration.workflows.result import WorkflowResult as WorkflowResult
    from holdfast.orchestration.workflows.runner import WorkflowRunner as WorkflowRunner
    from holdfast.orchestration.workflows.runner import hear_nothing as hear_nothing
    from holdfast.orchestration.workflows.step_executor import WorkflowCode as WorkflowCode
    from holdfast.orchestration.workflows.workflow import Workflow as Workflow
    from holdfast.orchestration.workflows.workflow import loop as loop
    from holdfast.orchestration.workflows.workflow import parallel as parallel
    from holdfast.orchestration.workflows.workflow import step as step
    from holdfast.orchestration.workflows.workflow import when as when
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "graph": "to_json to_mermaid to_svg",
            "step_executor": "WorkflowCode",
            "definition": "Definition Loop StepRetry WorkflowStep",
            "files": "FOLDER SUFFIXES "
            "WorkflowFiles WorkflowInfo parse_workflow read_definition read_workflow resolve",
            "record": "WorkflowStepState",
            "request": "WorkflowRequest fit_inputs",
            "result": "WorkflowResult",
            "runner": "hear_nothing WorkflowRunner",
            "workflow": "Workflow loop parallel step when",
        },
        rooms=("events",),
    )
