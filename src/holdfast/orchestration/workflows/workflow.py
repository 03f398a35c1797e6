"""Workflow: a definition, built in Python step by step, or read from YAML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

from pydantic import ValidationError

from holdfast.agents import Agent, Sandbox
from holdfast.canonical import JsonObject
from holdfast.errors import WorkflowInvalid
from holdfast.orchestration.workflows.checks import Place, check
from holdfast.orchestration.workflows.definition import Definition, WorkflowStep
from holdfast.orchestration.workflows.expressions import Value
from holdfast.tools import Tool

Part: TypeAlias = "StepDraft"


class StepDraft:
    """A step on its way into a workflow, with the tools and agents that are code."""

    def __init__(self, fields: JsonObject, code: Mapping[str, Tool | Agent | Workflow]) -> None:
        """Made by `step`, `parallel`, `when` and `loop`."""
        self.fields = fields
        self.code = dict(code)


def step(
    id: str,
    *,
    tool: str | Tool | None = None,
    agent: str | Agent | None = None,
    workflow: str | Workflow | None = None,
    state: str | None = None,
    value: Value = None,
    args: Mapping[str, Value] | None = None,
    message: str | None = None,
    **options: Any,  # noqa: ANN401 - the other fields of a step, which are checked later
) -> StepDraft:
    """Return a step that calls a tool, runs an agent or a workflow, or works out a value.

    With `state` it reads the value at an address, or with the option `set` writes it.

    `args` are the arguments of the tool or the inputs of the workflow. `options` are the
    other fields that the reference lists: `when`, `needs`, `on_error`, `retry`, `timeout`,
    `output`, `tools`, `set`, `description`.
    """
    fields: JsonObject = {"id": id, **options}
    code: dict[str, Tool | Agent | Workflow] = {}
    for key, given in (("tool", tool), ("agent", agent), ("workflow", workflow)):
        if isinstance(given, str):
            fields[key] = given
        elif given is not None:
            fields[key] = given.name
            code[f"{key}:{given.name}"] = given
    if args is not None:
        fields["with"] = dict(args)
    if message is not None:
        fields["message"] = message
    if state is not None:
        fields["state"] = state
    elif tool is None and agent is None and workflow is None:
        fields["value"] = value
    return StepDraft(fields, code)


def parallel(id: str, *steps: StepDraft, **options: Any) -> StepDraft:  # noqa: ANN401 - as above
    """Return a step that runs others at the same time; its output is an object of theirs."""
    return _block({"id": id, **options}, {"parallel": steps})


def when(
    id: str,
    condition: str,
    *,
    then: Sequence[StepDraft],
    otherwise: Sequence[StepDraft] = (),
    **options: Any,  # noqa: ANN401 - as above
) -> StepDraft:
    """Return a step that runs one list of steps or another; its output is the last one's."""
    blocks = {"then": then, **({"else": otherwise} if otherwise else {})}
    return _block({"id": id, "if": condition, **options}, blocks)


def loop(
    id: str,
    *steps: StepDraft,
    over: Value = None,
    times: Value = None,
    while_: str | None = None,
    most: int | None = None,
    parallel: int = 1,
    **options: Any,  # noqa: ANN401 - as above
) -> StepDraft:
    """Return a step that runs others again and again; its output is a list of their outputs.

    Inside, `loop.item`, `loop.index` and `loop.last` (the output of the round before) can be
    named. More than `most` rounds (100 unless told otherwise) end the workflow.
    """
    given = {"over": over, "times": times, "while": while_, "most": most}
    rounds = {key: value for key, value in given.items() if value is not None}
    return _block({"id": id, "loop": {**rounds, "parallel": parallel}, **options}, {"steps": steps})


def _block(fields: JsonObject, blocks: Mapping[str, Sequence[StepDraft]]) -> StepDraft:
    code: dict[str, Tool | Agent | Workflow] = {}
    for key, steps in blocks.items():
        fields[key] = [one.fields for one in steps]
        for one in steps:
            code |= one.code
    return StepDraft(fields, code)


class Workflow:
    """Steps in an order, as data; immutable, each method returns a longer one.

    ::

        flow = (
            Workflow("greet", inputs={"names": {"type": "array"}})
            .loop("each", step("hi", value="Hello ${loop.item}"), over="${inputs.names}")
            .returns("${steps.each.output}")
        )
        result = await client.workflows.run(flow, {"names": ["Ada", "Alan"]})
    """

    def __init__(
        self,
        name: str,
        *,
        description: str = "",
        inputs: Mapping[str, JsonObject] | None = None,
        most_parallel: int = 8,
        timeout: float = 86_400.0,
        sandbox: Sandbox = "workspace-write",
    ) -> None:
        """Begin a workflow; `inputs` are described by JSON Schema, as in `{"type": "string"}`."""
        self._fields: JsonObject = {
            "name": name,
            "description": description,
            "inputs": dict(inputs or {}),
            "most_parallel": most_parallel,
            "timeout": timeout,
            "sandbox": sandbox,
        }
        self._steps: tuple[StepDraft, ...] = ()
        self._result: Value = None
        self._definition: Definition | None = None

    @classmethod
    def from_definition(cls, definition: Definition) -> Workflow:
        """Return the workflow that a checked definition describes."""
        flow = cls(definition.name)
        flow._fields = {**definition.to_json(), "name": definition.name}
        flow._fields.pop("steps", None)
        flow._steps = tuple(
            StepDraft(one.model_dump(mode="json", by_alias=True, exclude_defaults=True), {})
            for one in definition.steps
        )
        flow._result = definition.result
        flow._definition = definition
        return flow

    @property
    def name(self) -> str:
        """What it is called."""
        return str(self._fields["name"])

    def add(self, *steps: StepDraft) -> Workflow:
        """Return the workflow with steps at its end."""
        flow = Workflow(self.name)
        flow._fields = self._fields
        flow._steps = (*self._steps, *steps)
        flow._result = self._result
        return flow

    def step(self, id: str, **fields: Any) -> Workflow:  # noqa: ANN401 - see the function `step`
        """Add a step that calls a tool, runs an agent or a workflow, or works out a value."""
        return self.add(step(id, **fields))

    def parallel(self, id: str, *steps: StepDraft, **options: Any) -> Workflow:  # noqa: ANN401
        """Add steps that run at the same time."""
        return self.add(parallel(id, *steps, **options))

    def when(self, id: str, condition: str, **fields: Any) -> Workflow:  # noqa: ANN401
        """Add steps of which `then` or `otherwise` runs."""
        return self.add(when(id, condition, **fields))

    def loop(self, id: str, *steps: StepDraft, **fields: Any) -> Workflow:  # noqa: ANN401
        """Add steps that run again and again."""
        return self.add(loop(id, *steps, **fields))

    def returns(self, result: Value) -> Workflow:
        """Return the workflow with what it gives back."""
        flow = self.add()
        flow._result = result
        return flow

    @property
    def code(self) -> Mapping[str, Tool | Agent | Workflow]:
        """Tools, agents and workflows that were handed over as objects, by `kind:name`."""
        return {key: value for one in self._steps for key, value in one.code.items()}

    @property
    def definition(self) -> Definition:
        """The workflow as checked data.

        Raises:
            WorkflowInvalid: something is wrong; all of it is named.
        """
        if self._definition is None:
            fields = {**self._fields, "steps": [one.fields for one in self._steps]}
            if self._result is not None:
                fields["result"] = self._result
            self._definition = check_definition(fields)
        return self._definition


def check_definition(content: object) -> Definition:
    """Return a definition made of plain data.

    Raises:
        WorkflowInvalid: something is wrong; all of it is named.
    """
    try:
        definition = Definition.model_validate(content)
    except (ValidationError, RecursionError) as error:
        refuse(
            [f"{_render(place)}: {text}" for place, text in describe_mistakes(error)]
            if isinstance(error, ValidationError)
            else ["the workflow is too deep"]
        )
    found = [f"{_render(one.place)}: {one.text}" for one in check(definition)]
    if found:
        refuse(found)
    return definition


def describe_mistakes(error: ValidationError) -> list[tuple[Place, str]]:
    """Return pydantic's mistakes as places and sentences."""
    found: list[tuple[Place, str]] = []
    problems = error.errors(include_url=False, include_context=False)
    for problem in problems:
        if problem["type"] == "too_short" and len(problems) > 1:
            continue  # the steps that are wrong were taken out, and so too few are left
        place = tuple(part for part in problem["loc"] if part != "[key]")
        text = str(problem["msg"]).removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            text = f"unknown key {str(place[-1])[:80]!r}"
        found.append((place, f"{text[:1].lower()}{text[1:]}"[:300]))
    return found


def refuse(mistakes: Sequence[str]) -> NoReturn:
    """Raise WorkflowInvalid with all mistakes."""
    lines = "\n".join(f"  - {mistake}" for mistake in mistakes)
    raise WorkflowInvalid(detail=lines, mistakes=list(mistakes))


def _render(place: Place) -> str:
    return ".".join(str(part) for part in place) or "the workflow"


__all__ = [
    "StepDraft",
    "Workflow",
    "WorkflowStep",
    "check_definition",
    "loop",
    "parallel",
    "step",
    "when",
]
