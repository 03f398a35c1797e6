"""Build a value that fits a JSON Schema from facts that are really known.

A plan may be filled generously: its texts say what to do, not what is so. Everything
else is filled only from known facts; where a required field asks for something that
no caller has told, `CannotFill` names it, and the model declines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from holdfast.canonical import JsonObject
from holdfast.providers.json_schema import fits, list_types, resolve

_MAX_DEPTH = 12
NOTE = "Made by the built-in offline model, which follows fixed rules and is no language model."

_POSITIVE = ("pass", "passed", "accept", "accepted", "approve", "approved", "ok", "success", "done")
_NEGATIVE = ("retry", "revise", "fail", "failed", "reject", "rejected", "no")
_VERDICT_FIELDS = ("verdict", "decision", "outcome", "status", "result", "judgement", "judgment")
_FLAGS = ("passed", "accepted", "approved", "ok", "success", "is_complete", "complete", "done")
_ANSWERS = (
    "answer", "summary", "response", "text", "content", "result", "output", "report", "message",
    "description", "final_answer", "markdown",
)  # fmt: skip
_REASONS = (
    "reason", "reasoning", "feedback", "explanation", "rationale", "comment", "comments", "notes",
    "note", "justification", "why", "because",
)  # fmt: skip
_LAST = "Report the result"
_STEP_LISTS = ("steps", "tasks", "plan", "items", "nodes", "actions", "stages", "todos")


class PlanStep(NamedTuple):
    """One step of the plan that the offline model would follow."""

    title: str
    detail: str
    tool: str = ""
    shows: tuple[str, ...] = ()
    """What the answer of the step must contain; each is known to be there."""
    makes: str = ""
    """What the step produces, in words."""
    check: str = ""
    """How it is seen that the step is done, in words."""
    evidence: tuple[JsonObject, ...] = ()
    """Checks that a machine can make, in the form of the plans of the autonomous loop."""


class KnownFacts(NamedTuple):
    """The facts that fields may be filled from."""

    goal: str
    answer: str = ""
    number: int | float | None = None
    steps: tuple[PlanStep, ...] = ()
    is_positive: bool = True
    """For a verdict: no check and no tool has failed as far as the conversation shows."""
    is_plan: bool = False
    reason: str = NOTE


class CannotFill(Exception):
    """A required field asks for something that is not known."""

    def __init__(self, path: str) -> None:
        """Keep the place."""
        super().__init__(path)
        self.path = path


def is_plan_schema(schema: object) -> bool:
    """Say whether a schema describes a plan: an object with a list of steps."""
    root = resolve(schema, schema)
    named = root.get("properties")
    if not isinstance(named, dict):
        return False
    title = str(root.get("title", "")).lower()
    for name, part in named.items():
        if name in _STEP_LISTS and "array" in _list_types(resolve(part, schema), schema):
            return name in {"steps", "tasks", "plan", "stages", "todos"} or "plan" in title
    return False


def has_evidence(schema: object) -> bool:
    """Say whether the steps of a plan carry checks of what their answers contain."""
    part: object = schema
    for name in ("steps", "checks", "kind"):
        part = resolve(part, schema)
        part = resolve(part.get("items", part), schema).get("properties", {}).get(name)
    return isinstance(part, dict) and "answer_contains" in (part.get("enum") or [])


def is_verdict_schema(schema: object) -> bool:
    """Say whether a schema asks for a judgement: pass or retry, yes or no."""
    root = resolve(schema, schema)
    named = root.get("properties")
    for name, part in (named if isinstance(named, dict) else {}).items():
        branch = resolve(part, schema)
        choices = {str(choice).lower() for choice in branch.get("enum") or []}
        if choices & set(_POSITIVE) and choices & set(_NEGATIVE):
            return True
        if name.lower() in _FLAGS and "boolean" in list_types(branch):
            return True
    return False


def build(schema: JsonObject, known: KnownFacts) -> Any:  # noqa: ANN401 - JSON of any shape
    """Return a value that fits the schema.

    Raises:
        CannotFill: a required field asks for something unknown, or nothing would fit.
    """
    value = _Builder(schema, known).value(schema, "", 0, None)
    if not fits(value, schema):
        raise CannotFill("the whole answer")
    return value


def _list_types(schema: JsonObject, root: object) -> set[str]:
    found = set(list_types(schema))
    for keyword in ("anyOf", "oneOf", "allOf"):
        for branch in schema.get(keyword) or []:
            found |= _list_types(resolve(branch, root), root) if isinstance(branch, dict) else set()
    return found


class _Builder:
    """Walks a schema once; `step` is the plan step that the walk is inside of."""

    def __init__(self, root: JsonObject, known: KnownFacts) -> None:
        self.root = root
        self.known = known

    def value(self, schema: object, name: str, depth: int, step: int | None) -> Any:  # noqa: ANN401
        if depth > _MAX_DEPTH:
            raise CannotFill(name)
        part = resolve(schema, self.root)
        if "const" in part:
            return part["const"]
        choices = part.get("enum")
        if isinstance(choices, list) and choices:
            return self.choice(choices, name, part)
        for keyword in ("anyOf", "oneOf"):
            branches = part.get(keyword)
            if isinstance(branches, list) and branches:
                return self.branch(branches, name, depth, step)
        merged = part.get("allOf")
        if isinstance(merged, list):
            for other in merged:
                part = {**part, **resolve(other, self.root)}
        makers: dict[str, Callable[[], Any]] = {
            "object": lambda: self.object(part, name, depth, step),
            "array": lambda: self.array(part, name, depth, step),
            "string": lambda: self.text(part, name, step),
            "integer": lambda: self.number(part, name, step, whole=True),
            "number": lambda: self.number(part, name, step, whole=False),
            "boolean": lambda: self.flag(part, name),
            "null": lambda: None,
        }
        named = list_types(part) or (("object",) if "properties" in part else ("string",))
        return self.first([makers[kind] for kind in named if kind in makers], name)

    def first(self, makers: Sequence[Callable[[], Any]], name: str) -> Any:  # noqa: ANN401
        for maker in makers:
            try:
                return maker()
            except CannotFill as error:
                missing = error
        raise missing if makers else CannotFill(name)

    def branch(self, branches: list[Any], name: str, depth: int, step: int | None) -> Any:  # noqa: ANN401
        # Null last: it fits an optional field, but says least.
        ordered = sorted(branches, key=lambda b: resolve(b, self.root).get("type") == "null")
        makers = [partial(self.value, branch, name, depth + 1, step) for branch in ordered]
        return self.first(makers, name)

    def object(self, part: JsonObject, name: str, depth: int, step: int | None) -> JsonObject:
        named = part.get("properties")
        named = named if isinstance(named, dict) else {}
        required = part.get("required")
        needed = set(required) if isinstance(required, list) else set()
        built: JsonObject = {}
        for field, schema in named.items():
            try:
                built[field] = self.value(schema, field, depth + 1, step)
            except CannotFill as error:
                if field in needed:
                    raise CannotFill(f"{name}.{error.path}" if name else error.path) from error
        if not needed <= set(built):
            raise CannotFill(", ".join(sorted(needed - set(built))))
        return built

    def array(self, part: JsonObject, name: str, depth: int, step: int | None) -> list[Any]:
        low, high = part.get("minItems", 0), part.get("maxItems", 1_000)
        if name == "checks" and step is not None:
            return self.checks(part, step)
        is_steps = name in _STEP_LISTS and self.known.is_plan and step is None
        if is_steps:
            wanted = list(range(max(len(self.known.steps), low)))[:high]
            return [self.value(part.get("items", {}), "step", depth + 1, at) for at in wanted]
        if step is not None and re.search(r"depend|needs|requires|after|previous", name):
            if step == 0 or low > 1:
                return []
            return [self.value(part.get("items", {}), "depends_on", depth + 1, step)]
        count = low if isinstance(low, int) else 0
        return [self.value(part.get("items", {}), name, depth + 1, step) for _ in range(count)]

    def checks(self, part: JsonObject, step: int) -> list[Any]:
        """Say what must hold after a step, in the form that the schema knows."""
        plan = self.known.steps[step] if step < len(self.known.steps) else PlanStep("", "")
        shown = [{"kind": "answer_contains", "text": text} for text in plan.shows]
        wanted: list[Any] = [*shown, *plan.evidence]
        whole = {**part, "$defs": self.root.get("$defs", {})}
        for made in (wanted or [{"kind": "answer_contains"}], [plan.check] if plan.check else []):
            if fits(made, whole):
                return made
        return []

    def text(self, part: JsonObject, name: str, step: int | None) -> str:
        found = self.find_known_text(name, step)
        if found is None and isinstance(part.get("default"), str):
            found = str(part["default"])
        if found is None and self.known.is_plan:
            found = "" if fits("", part) else NOTE
        if found is None:
            raise CannotFill(name or "text")
        limit = part.get("maxLength")
        if isinstance(limit, int) and len(found) > limit:
            found = found[: max(0, limit)]
        if not fits(found, part):
            raise CannotFill(name or "text")
        return found

    def find_known_text(self, name: str, step: int | None) -> str | None:
        key = name.lower()
        if step is not None:
            return self.find_step_text(key, step)
        if key in _REASONS:
            return self.known.reason
        if key in {"goal", "objective", "task", "query", "question", "input", "prompt"}:
            return self.known.goal
        if self.known.is_plan and key in {"title", "name", "summary", "description", "overview"}:
            return self.known.goal[:200]
        if self.known.answer and (key in _ANSWERS or not key):
            return self.known.answer
        return None

    def find_step_text(self, key: str, step: int) -> str | None:
        is_given = step < len(self.known.steps)
        plan = (
            self.known.steps[step]
            if is_given
            else PlanStep(_LAST, f"{_LAST} of: {self.known.goal}")
        )
        if key in {"id", "step_id", "key", "identifier"}:
            return f"step-{step + 1}"
        if key == "depends_on":
            return f"step-{step}"
        if key in {"title", "name", "label", "step", "task", "summary", "content"}:
            return plan.title
        if key in {"tool", "tool_name"}:
            return plan.tool or None
        if re.search(r"descr|detail|instruct|action|goal|prompt|objective|what|activeform", key):
            return plan.detail
        if re.search(r"expect|accept|criteri|success|done|evidence|outcome|verif|check", key):
            return plan.check or f"{plan.title}: the step gave a result."
        if plan.makes and re.search(r"produc|make|deliver|result|output", key):
            return plan.makes
        if key in _REASONS:
            return NOTE
        return None

    def choice(self, choices: list[Any], name: str, part: JsonObject) -> Any:  # noqa: ANN401
        if len(choices) == 1 or "default" in part:
            return part.get("default", choices[0])
        lowered = {str(choice).lower(): choice for choice in choices}
        wanted = _POSITIVE if self.known.is_positive else _NEGATIVE
        is_verdict = name.lower() in _VERDICT_FIELDS or set(lowered) & {"pass", "retry", "fail"}
        if is_verdict and not self.known.is_plan:
            for word in wanted:
                if word in lowered:
                    return lowered[word]
        if self.known.is_plan:
            for word in ("pending", "todo", "planned", "medium", "normal"):
                if word in lowered:
                    return lowered[word]
            return choices[0]
        raise CannotFill(name)

    def number(self, part: JsonObject, name: str, step: int | None, *, whole: bool) -> int | float:
        key = name.lower()
        options: list[int | float] = []
        if step is not None:
            if key == "depends_on":
                options.append(step)
            elif re.search(r"id|index|number|order|position|step|seq", key):
                options.append(step + 1)
        if self.known.number is not None and key in {*_ANSWERS, "value", "number", "total", ""}:
            options.append(self.known.number)
        if isinstance(part.get("default"), int | float):
            options.append(part["default"])
        if self.known.is_plan:
            options += [value for value in (part.get("minimum"), 1, 0) if value is not None]
        for option in options:
            value = int(option) if whole and float(option).is_integer() else option
            if fits(value, part):
                return value
        raise CannotFill(name or "number")

    def flag(self, part: JsonObject, name: str) -> bool:
        if isinstance(part.get("default"), bool):
            return bool(part["default"])
        if name.lower() in _FLAGS:
            return self.known.is_positive and not self.known.is_plan
        if self.known.is_plan:
            return False
        raise CannotFill(name or "flag")
