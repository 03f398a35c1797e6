"""Workflows: check, run, resume, list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeAlias

from holdfast.canonical import JsonObject
from holdfast.errors import UsageError
from holdfast.journal import Payload
from holdfast.operations.caller import OWNER, Caller
from holdfast.operations.local_values import Local, LocalFilePath
from holdfast.operations.operation import local, operation
from holdfast.orchestration import AGENT_PREFIX
from holdfast.orchestration.workflows import (
    SUFFIXES,
    Definition,
    Workflow,
    WorkflowInfo,
    WorkflowResult,
    hear_nothing,
)
from holdfast.policy import Budget, OnAsk
from holdfast.runtime import OnWait, Runtime
from holdfast.sessions import Run

LocalWorkflow: TypeAlias = (
    Annotated[Workflow | Definition, Local("send its `definition.to_json()`")] | LocalFilePath
)
LocalListener: TypeAlias = Annotated[Callable[[Payload], None], Local("read `events.stream`")]
LocalOnWait: TypeAlias = Annotated[OnWait, Local("read `events.stream`")]


@local("put a file for it below `.holdfast/workflows`")
async def register(runtime: Runtime, /, workflow: Workflow) -> None:
    """Make a workflow known by its name, for as long as this client lives.

    Raises:
        WorkflowInvalid: something is wrong with it.
    """
    runtime.workflows.register(workflow)


@operation("workflows:read")
async def validate(
    runtime: Runtime, caller: Caller, /, workflow: str | JsonObject | LocalWorkflow
) -> WorkflowInfo:
    """Return a workflow as checked data, with everything it starts looked up.

    A text is the name of a workflow, or for the owner the path of a YAML file; an object is
    the workflow itself, as YAML would say it.

    Raises:
        NotFound: there is no such workflow.
        WorkflowInvalid: something is wrong; all of it is named.
    """
    return await runtime.workflows.validate(_check_workflow(caller, workflow))


@operation("runs:write")
async def run(
    runtime: Runtime,
    caller: Caller,
    /,
    workflow: str | JsonObject | LocalWorkflow,
    inputs: JsonObject | None = None,
    *,
    run_id: str = "",
    parent_id: str = "",
    on_ask: OnAsk = "deny",
    budget: Budget | None = None,
    listener: LocalListener = hear_nothing,
    stay: bool | LocalOnWait = False,
) -> WorkflowResult:
    """Run a workflow in a session of its own and return how it went, failures included.

    The same `run_id` again returns the finished result, or goes on with what has not
    ended; what had been begun then is what counts, whatever the file says now. With
    `parent_id` its session stands below another one.

    Where a call asks and no approver is there to answer, `on_ask` refuses it (`deny`) or lets
    the workflow wait (`park`) until an approver has answered and `workflows.resume` is called.
    With `stay` it goes on by itself as soon as an approver has, in whichever process; given
    as a function, it is told how the workflow stands each time before it waits.
    `budget` limits what the run and everything that it starts may spend together.

    Raises:
        NotFound: there is no such workflow.
        WorkflowInvalid: it or its inputs are wrong; nothing was run.
        UsageError: the run is one of another workflow, or of none.
    """
    return await runtime.workflows.run(
        _check_workflow(caller, workflow),
        inputs,
        run_id=run_id,
        parent_id=parent_id,
        on_ask=on_ask,
        budget=budget,
        listener=listener,
        stay=stay,
    )


@operation("runs:write")
async def resume(
    runtime: Runtime,
    caller: Caller,
    /,
    run_id: str,
    *,
    listener: LocalListener = hear_nothing,
    stay: bool | LocalOnWait = False,
) -> WorkflowResult:
    """Go on with a workflow that was interrupted, or that waited for an answer.

    One that has ended is returned as it is. `stay` is as for `workflows.run`.

    Raises:
        NotFound: there is no such run.
        UsageError: it is none of a workflow.
    """
    return await runtime.workflows.resume(run_id, listener=listener, stay=stay)


@operation("runs:read")
async def get(runtime: Runtime, caller: Caller, /, run_id: str) -> WorkflowResult:
    """Return how a run of a workflow stands, step by step.

    Raises:
        NotFound: there is no such run.
        UsageError: it is none of a workflow.
    """
    return await runtime.workflows.get(run_id)


@operation("runs:read")
async def runs(runtime: Runtime, caller: Caller, /, *, limit: int = 50) -> list[Run]:
    """Return runs of workflows, newest first."""
    return await runtime.storage.runs(
        is_kind=lambda run: run.agent.startswith(AGENT_PREFIX), limit=limit
    )


@operation("workflows:read")
async def list_(runtime: Runtime, caller: Caller, /) -> list[WorkflowInfo]:
    """Return the workflows that are known by name, from files and registered ones."""
    return await runtime.workflows.find_all()


def _check_workflow(
    caller: Caller, workflow: str | JsonObject | LocalWorkflow
) -> str | JsonObject | LocalWorkflow:
    """Refuse paths from outside: they would name files of the machine of the runtime."""
    if caller is not OWNER and isinstance(workflow, str) and workflow.endswith(SUFFIXES):
        raise UsageError(detail="Name a workflow that is known there, or send it as data.")
    return workflow
