"""`client.workflows`."""

from __future__ import annotations

from holdfast.operations import Mode, Surface, workflows


class WorkflowNamespace(Surface[Mode]):
    """Workflows: check, run, resume, list."""

    register = workflows.register
    validate = workflows.validate
    run = workflows.run
    resume = workflows.resume
    get = workflows.get
    runs = workflows.runs
    list = workflows.list_
