"""A plan: steps that build on each other, each with the checks that prove it.

What a planner sends is foreign data and comes in as pydantic models; once it is found sound it
goes on as frozen structs, which are what the journal keeps.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, TypeAlias, get_args

import msgspec
from pydantic import BaseModel, ConfigDict, Field

CheckKind: TypeAlias = Literal[
    "command",
    "test",
    "file_exists",
    "file_hash",
    "file_contains",
    "json_schema",
    "function",
    "answer_contains",
]
CHECK_KINDS: tuple[str, ...] = get_args(CheckKind)
MOST_STEPS = 1_000
MOST_CHECKS = 20
_STEP_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_MOST_PROBLEMS = 20

_NEEDS: Mapping[str, tuple[str, ...]] = {
    "command": ("command",),
    "test": ("command",),
    "file_exists": ("path",),
    "file_hash": ("path", "sha256"),
    "file_contains": ("path", "text"),
    "json_schema": ("path", "json_schema"),
    "function": ("function",),
    "answer_contains": (),
}


class DraftCheck(BaseModel):
    """A check as a planner writes it."""

    model_config = ConfigDict(extra="forbid", title="Check")

    kind: str = Field(
        description="One of: " + ", ".join(CHECK_KINDS),
        json_schema_extra={"enum": list(CHECK_KINDS)},
    )
    command: str = Field("", description="command, test: the line to run in the sandbox")
    exit_code: int = Field(0, ge=0, le=255, description="command: the exit code that passes")
    path: str = Field("", description="file_*, json_schema: the file, relative to the workspace")
    text: str = Field("", description="file_contains, answer_contains: what must be there")
    sha256: str = Field("", description="file_hash: the SHA-256 of the whole file")
    json_schema: str = Field("", description="json_schema: the JSON Schema, as JSON text")
    function: str = Field("", description="function: the name of one that the application offers")
    timeout_s: float = Field(120, gt=0, le=600)


class DraftStep(BaseModel):
    """A step as a planner writes it."""

    model_config = ConfigDict(extra="forbid", title="Step")

    id: str = Field(description="Short and unique, such as step-1")
    title: str = Field(description="What it achieves, in a few words")
    instruction: str = Field(description="Everything the executor must know to do it")
    depends_on: list[str] = Field(default=[], description="Ids of steps that come before it")
    checks: list[DraftCheck] = Field(description="What must hold before the step can be accepted")


class DraftPlan(BaseModel):
    """A plan as a planner writes it."""

    model_config = ConfigDict(extra="forbid", title="Plan")

    steps: list[DraftStep]


class Check(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that must hold after a step; which fields count depends on `kind`."""

    kind: CheckKind
    command: str = ""
    exit_code: int = 0
    path: str = ""
    text: str = ""
    sha256: str = ""
    json_schema: str = ""
    function: str = ""
    timeout_s: float = 120.0

    @property
    def label(self) -> str:
        """Say in one line what is checked."""
        match self.kind:
            case "command" | "test":
                wanted = f" ends with {self.exit_code}" if self.exit_code else ""
                return f"{self.kind}: {self.command}{wanted}"
            case "file_contains":
                return f"{self.path} contains {self.text!r}"
            case "file_hash":
                return f"{self.path} has the hash {self.sha256[:12]}…"
            case "json_schema":
                return f"{self.path} fits its JSON schema"
            case "file_exists":
                return f"{self.path} exists"
            case "function":
                return f"function {self.function}"
        return f"the answer contains {self.text!r}" if self.text else "there is an answer"


class PlannedStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of a sound plan."""

    id: str
    title: str
    instruction: str
    depends_on: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A sound plan: ids are unique, dependencies exist, and nothing waits for itself."""

    steps: tuple[PlannedStep, ...]

    def step(self, step_id: str) -> PlannedStep:
        """Return a step by its id."""
        return next(step for step in self.steps if step.id == step_id)

    def ready(self, done: Collection[str], begun: Collection[str] = ()) -> list[PlannedStep]:
        """Return the steps whose dependencies are done, in the order of the plan.

        Those in `done` or `begun` are left out.
        """
        return [
            step
            for step in self.steps
            if step.id not in done
            and step.id not in begun
            and all(before in done for before in step.depends_on)
        ]

    def list_last_steps(self) -> list[PlannedStep]:
        """Return the steps on which no other one depends: their answers are the result."""
        needed = {before for step in self.steps for before in step.depends_on}
        return [step for step in self.steps if step.id not in needed]


def find_problems(
    draft: DraftPlan,
    *,
    most_steps: int = MOST_STEPS,
    functions: Collection[str] = (),
    known_ids: Collection[str] = (),
) -> list[str]:
    """List what is wrong with a plan, in words for the planner; empty means it is sound.

    `known_ids` are steps that are done already and may be depended on.
    """
    if not draft.steps:
        return ["The plan has no steps."]
    if len(draft.steps) > most_steps:
        return [f"The plan has {len(draft.steps)} steps; at most {most_steps} are allowed."]
    found: list[str] = []
    ids = {step.id for step in draft.steps}
    seen: set[str] = set()
    for step in draft.steps:
        if not _STEP_ID.fullmatch(step.id):
            found.append(f"{step.id!r} is no id: use up to 64 letters, digits, '-', '_' or '.'.")
        if step.id in seen:
            found.append(f"The id {step.id!r} is used twice.")
        seen.add(step.id)
        if not step.instruction.strip():
            found.append(f"Step {step.id!r} has no instruction.")
        for before in step.depends_on:
            if before == step.id:
                found.append(f"Step {step.id!r} depends on itself.")
            elif before not in ids and before not in known_ids:
                found.append(f"Step {step.id!r} depends on {before!r}, which does not exist.")
        found += [f"Step {step.id!r}: {fault}" for fault in _check_faults(step.checks, functions)]
    if not found:
        found += _cycle(draft.steps)
    return found[:_MOST_PROBLEMS]


def to_plan(draft: DraftPlan, kept: Sequence[PlannedStep] = ()) -> Plan:
    """Make a plan of a sound draft; steps that are done already stand first, as they were."""
    known = {step.id for step in kept}
    fresh = [
        PlannedStep(
            id=step.id,
            title=step.title.strip() or step.id,
            instruction=step.instruction,
            depends_on=tuple(dict.fromkeys(step.depends_on)),
            checks=tuple(msgspec.convert(check.model_dump(), Check) for check in step.checks),
        )
        for step in draft.steps
        if step.id not in known
    ]
    return Plan(steps=(*kept, *fresh))


def _check_faults(checks: Sequence[DraftCheck], functions: Collection[str]) -> list[str]:
    if not checks:
        return ["it has no check; say how it can be seen that it is done."]
    if len(checks) > MOST_CHECKS:
        return [f"it has {len(checks)} checks; at most {MOST_CHECKS} are allowed."]
    found = []
    for check in checks:
        needs = _NEEDS.get(check.kind)
        if needs is None:
            found.append(f"{check.kind!r} is no kind of check; use {', '.join(CHECK_KINDS)}.")
            continue
        missing = [name for name in needs if not getattr(check, name).strip()]
        if missing:
            found.append(f"a check of kind {check.kind!r} needs {' and '.join(missing)}.")
        elif check.kind == "file_hash" and not _SHA256.fullmatch(check.sha256):
            found.append(f"{check.sha256!r} is no SHA-256.")
        elif check.kind == "json_schema" and not _is_json_object(check.json_schema):
            found.append("its json_schema is no JSON object.")
        elif check.kind == "function" and check.function not in functions:
            offered = ", ".join(sorted(functions)) or "none"
            found.append(f"there is no function {check.function!r}; offered: {offered}.")
    return found


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, RecursionError):
        return False


def _cycle(steps: Sequence[DraftStep]) -> list[str]:
    """Say which steps wait for each other, by taking away whatever waits for nothing."""
    ids = {step.id for step in steps}
    waits = {step.id: {name for name in step.depends_on if name in ids} for step in steps}
    follows: dict[str, list[str]] = {name: [] for name in waits}
    for name, before in waits.items():
        for other in before:
            follows[other].append(name)
    free = deque(name for name, before in waits.items() if not before)
    while free:
        name = free.popleft()
        del waits[name]
        for other in follows[name]:
            waits[other].discard(name)
            if not waits[other]:
                free.append(other)
    if not waits:
        return []
    return [f"These steps wait for each other in a circle: {', '.join(sorted(waits)[:10])}."]
