"""A workflow as data: what YAML says and what the builder makes, field by field.

The models are strict: an unknown key, a number written as text, two kinds of step in one are
refused. What several steps have to do with one another is checked in `checks`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from holdfast.agents import Sandbox
from holdfast.canonical import JsonObject, digest
from holdfast.orchestration.workflows.schema import check_schema

MOST_STEPS: Final = 2_000
"""Steps that one definition may hold, inner ones included."""
MOST_ROUNDS: Final = 10_000
"""Rounds that one loop may be allowed."""
DEFAULT_ROUNDS: Final = 100
DEFAULT_TIMEOUT_S: Final = 3_600.0
LONGEST_TIMEOUT_S: Final = 7 * 86_400.0
KINDS: Final = ("tool", "agent", "workflow", "state", "value", "parallel", "if", "loop")

StepKind: TypeAlias = Literal[
    "tool", "agent", "workflow", "state", "value", "parallel", "if", "loop"
]
OnError: TypeAlias = Literal["fail", "continue"]

StepId: TypeAlias = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,39}$", strict=True)
]
WorkflowName: TypeAlias = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,47}$", strict=True)
]
Expression: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=2_010)]
Seconds: TypeAlias = Annotated[float, Field(gt=0, le=LONGEST_TIMEOUT_S)]


def _build_schema(value: JsonObject) -> JsonObject:
    wrong = check_schema(value)
    if wrong:
        raise ValueError("; ".join(wrong))
    return value


Schema: TypeAlias = Annotated[JsonObject, AfterValidator(_build_schema)]


class _Strict(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, populate_by_name=True, allow_inf_nan=False
    )


class StepRetry(_Strict):
    """How often a step is tried, and how long to wait in between.

    The wait grows by `factor` with each attempt, up to `most_wait` seconds.
    """

    attempts: int = Field(3, ge=1, le=100)
    wait: float = Field(1.0, ge=0, le=3_600)
    factor: float = Field(2.0, ge=1, le=10)
    most_wait: float = Field(60.0, ge=0, le=86_400)

    def wait_after(self, attempt: int) -> float:
        """Return the seconds to wait after a failed attempt, counted from 1."""
        # The exponent is bounded before the power, which would overflow a float.
        return min(self.most_wait, self.wait * self.factor ** min(attempt - 1, 200))


class Loop(_Strict):
    """What a loop goes through: a collection, a range, or as long as a condition holds."""

    over: Any = None
    """A list, or an expression that gives one."""
    times: Any = None
    """How many rounds: a whole number, or an expression that gives one."""
    while_: Expression | None = Field(None, alias="while")
    most: int = Field(DEFAULT_ROUNDS, ge=1, le=MOST_ROUNDS)
    parallel: int = Field(1, ge=1, le=64)

    @model_validator(mode="after")
    def _check_one_kind(self) -> Loop:
        given = [self.over is not None, self.times is not None, self.while_ is not None]
        if sum(given) != 1:
            raise ValueError("a loop has one of `over`, `times` and `while`")
        if self.while_ is not None and self.parallel > 1:
            raise ValueError("rounds of a `while` cannot run in parallel")
        return self


class WorkflowStep(_Strict):
    """One step: exactly one of tool, agent, workflow, state, value, parallel, if and loop."""

    id: StepId
    description: str = Field("", max_length=1_000)

    tool: str | None = Field(None, min_length=1, max_length=100)
    agent: str | None = Field(None, min_length=1, max_length=64)
    workflow: WorkflowName | None = None
    state: str | None = Field(None, min_length=1, max_length=1_000)
    """The address of a value that is read, or with `set` written."""
    value: Any = None
    parallel: tuple[WorkflowStep, ...] | None = Field(None, min_length=1, strict=False)
    if_: Expression | None = Field(None, alias="if")
    loop: Loop | None = None

    with_: JsonObject = Field(default_factory=dict, alias="with")
    """Arguments of a tool, inputs of a workflow."""
    set: Any = None
    """What a step with `state` writes; without it, it reads."""
    message: str | None = Field(None, min_length=1, max_length=100_000)
    """What an agent is told."""
    tools: tuple[str, ...] | None = Field(None, strict=False)
    """The only tools that an agent may call in this step."""
    then: tuple[WorkflowStep, ...] | None = Field(None, min_length=1, strict=False)
    else_: tuple[WorkflowStep, ...] | None = Field(None, alias="else", min_length=1, strict=False)
    steps: tuple[WorkflowStep, ...] | None = Field(None, min_length=1, strict=False)
    """The body of a loop."""
    most: int | None = Field(None, ge=1, le=64)
    """How many steps of a parallel block run at once."""

    when: Expression | None = None
    needs: tuple[StepId, ...] | None = Field(None, strict=False)
    on_error: OnError = "fail"
    retry: StepRetry | None = None
    timeout: Seconds | None = None
    output: Schema | None = None

    @model_validator(mode="before")
    @classmethod
    def _note_value(cls, given: object) -> object:
        # `value: null` is a value too; pydantic alone could not tell it from nothing.
        if isinstance(given, dict):
            empty = {key: "${null}" for key in ("value", "set") if given.get(key, ...) is None}
            return {**given, **empty} if empty else given
        return given

    @model_validator(mode="after")
    def _check_fits_together(self) -> WorkflowStep:
        kinds = [kind for kind in KINDS if getattr(self, _ATTRIBUTES.get(kind, kind)) is not None]
        if len(kinds) != 1:
            found = " and ".join(kinds) or "none"
            raise ValueError(f"a step has one of {', '.join(KINDS)}; this one has {found}")
        for field, owners in _BELONGS_TO.items():
            if getattr(self, field) not in (None, {}) and kinds[0] not in owners:
                raise ValueError(f"`{field.rstrip('_')}` belongs to {' or '.join(owners)} steps")
        for field, owner in (("message", "agent"), ("then", "if"), ("steps", "loop")):
            if kinds[0] == owner and getattr(self, field) is None:
                raise ValueError(f"a step with `{owner}` needs `{field}`")
        return self

    @property
    def kind(self) -> StepKind:
        """What the step does."""
        for kind in KINDS:
            if getattr(self, _ATTRIBUTES.get(kind, kind)) is not None:
                return kind
        raise AssertionError("a step has a kind")

    @property
    def is_block(self) -> bool:
        """Whether it holds other steps."""
        return self.kind in ("parallel", "if", "loop")

    @property
    def blocks(self) -> tuple[tuple[str, tuple[WorkflowStep, ...]], ...]:
        """The lists of steps inside, by the key under which they stand."""
        found = (
            ("parallel", self.parallel),
            ("then", self.then),
            ("else", self.else_),
            ("steps", self.steps),
        )
        return tuple((key, steps) for key, steps in found if steps is not None)

    @property
    def does(self) -> str:
        """What it does, in a few words."""
        match self.kind:
            case "tool" | "agent" | "workflow" | "state":
                return f"{self.kind} {getattr(self, self.kind)}"
            case "if":
                return f"if {self.if_}"
            case "loop" if self.loop is not None:
                if self.loop.while_ is not None:
                    return f"while {self.loop.while_}"
                kind = "over" if self.loop.over is not None else "times"
                return f"loop {kind} {getattr(self.loop, kind)}"
        return self.kind


_ATTRIBUTES = {"if": "if_"}
_BELONGS_TO: Final[dict[str, tuple[str, ...]]] = {
    "with_": ("tool", "workflow"),
    "set": ("state",),
    "message": ("agent",),
    "tools": ("agent",),
    "then": ("if",),
    "else_": ("if",),
    "steps": ("loop",),
    "most": ("parallel",),
    "retry": ("tool", "agent", "workflow"),
    "output": ("tool", "agent", "workflow", "state", "value"),
}


class Definition(_Strict):
    """A whole workflow."""

    name: WorkflowName
    description: str = Field("", max_length=2_000)
    inputs: dict[StepId, Schema] = Field(default_factory=dict)
    steps: tuple[WorkflowStep, ...] = Field(min_length=1, strict=False)
    result: Any = None
    """What the workflow gives back; the last step's output if nothing is said."""
    most_parallel: int = Field(8, ge=1, le=64)
    """How many tools, agents and workflows it runs at once."""
    timeout: Seconds = 86_400.0
    sandbox: Sandbox = "workspace-write"

    @property
    def digest(self) -> str:
        """The same for the same workflow."""
        return digest(self.to_json())

    def to_json(self) -> JsonObject:
        """Return it as JSON, from which `model_validate` makes it again."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)

    def iterate_steps(self) -> Iterator[WorkflowStep]:
        """Yield every step, inner ones included, in the order in which they are written."""
        waiting = list(reversed(self.steps))
        while waiting:
            step = waiting.pop()
            yield step
            for _, steps in reversed(step.blocks):
                waiting += reversed(steps)

    @property
    def calls(self) -> tuple[str, ...]:
        """The names of the workflows that it starts."""
        return tuple(dict.fromkeys(s.workflow for s in self.iterate_steps() if s.workflow))


def list_required_inputs(definition: Definition) -> tuple[str, ...]:
    """Return the inputs that have no default."""
    return tuple(name for name, schema in definition.inputs.items() if "default" not in schema)


def is_name(text: str) -> bool:
    """Say whether a text can be the name of a workflow."""
    return re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,47}", text) is not None


__all__ = [
    "DEFAULT_ROUNDS",
    "DEFAULT_TIMEOUT_S",
    "KINDS",
    "MOST_ROUNDS",
    "MOST_STEPS",
    "Definition",
    "Loop",
    "OnError",
    "Schema",
    "StepKind",
    "StepRetry",
    "WorkflowStep",
    "is_name",
    "list_required_inputs",
]
