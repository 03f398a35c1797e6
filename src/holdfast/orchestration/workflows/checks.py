"""Whether the parts of a workflow fit together; everything is said before anything runs.

Ids are unique, nothing waits in a circle, every expression can be read and names only what
has certainly ended by then, workflows do not start themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from holdfast.errors import ExpressionInvalid, UsageError
from holdfast.orchestration.workflows import schema
from holdfast.orchestration.workflows.definition import MOST_STEPS, Definition, WorkflowStep
from holdfast.orchestration.workflows.expressions import (
    Value,
    list_expressions,
    list_references,
    parse,
    strip_quotes,
)
from holdfast.orchestration.workflows.order import find_cycle, list_all_before, list_needs
from holdfast.state import parse_address

Place: TypeAlias = tuple[str | int, ...]
_ABOUT_STEPS = frozenset({"output", "status", "error"})
_ABOUT_LOOPS = frozenset({"item", "index", "last"})
_DEEPEST = 12


@dataclass(frozen=True)
class WorkflowMistake:
    """One thing that is wrong, and the place where it is written."""

    place: Place
    text: str


@dataclass(frozen=True, kw_only=True)
class _Scope:
    """What an expression may name."""

    steps: frozenset[str] = frozenset()
    is_loop: bool = False
    depth: int = 0


@dataclass(kw_only=True)
class _Check:
    definition: Definition
    found: list[WorkflowMistake] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    is_known: frozenset[str] = frozenset()

    def note(self, place: Place, text: str) -> None:
        if len(self.found) < 100:
            self.found.append(WorkflowMistake(place, text))


def check(definition: Definition) -> list[WorkflowMistake]:
    """Return everything that is wrong with one workflow; [] means that it can run."""
    work = _Check(definition=definition)
    steps = list(definition.iterate_steps())
    if len(steps) > MOST_STEPS:
        return [WorkflowMistake(("steps",), f"{len(steps)} steps are more than {MOST_STEPS}")]
    work.is_known = frozenset(step.id for step in steps)
    for name, described in definition.inputs.items():
        if "default" in described:
            for text in schema.list_mistakes(described["default"], described, "the default"):
                work.note(("inputs", name), text)
    seen = _check_block(work, definition.steps, ("steps",), _Scope(), is_parallel=False)
    _check_value(work, definition.result, ("result",), _Scope(steps=seen))
    return work.found


def _check_block(
    work: _Check, steps: Sequence[WorkflowStep], place: Place, scope: _Scope, *, is_parallel: bool
) -> frozenset[str]:
    """Check a list of steps; return what may be named after it."""
    if scope.depth > _DEEPEST:
        work.note(place, "steps are nested too deep")
        return scope.steps
    for number, step in enumerate(steps):
        if step.id in work.ids:
            work.note((*place, number, "id"), f"the id {step.id!r} occurs twice")
        work.ids.add(step.id)
    needs = list_needs(steps, is_parallel=is_parallel)
    for number, step in enumerate(steps):
        for name in step.needs or ():
            if name not in needs:
                work.note((*place, number, "needs"), f"there is no step {name!r} beside this one")
    circle = find_cycle(needs)
    if circle:
        number = next(n for n, step in enumerate(steps) if step.id in circle)
        work.note((*place, number), f"steps wait for one another: {' -> '.join(circle)}")
        return scope.steps
    return _check_steps(work, steps, place, scope, list_all_before(needs))


def _check_steps(
    work: _Check,
    steps: Sequence[WorkflowStep],
    place: Place,
    scope: _Scope,
    before: Mapping[str, frozenset[str]],
) -> frozenset[str]:
    """Check each step with what it may name: what is around it, and what ended before it."""
    numbers = {step.id: number for number, step in enumerate(steps)}
    shown: dict[str, frozenset[str]] = {}
    # Those that wait for nothing first: what a parallel block shows is known when it is named.
    for name in sorted(numbers, key=lambda one: (len(before[one]), numbers[one])):
        step = steps[numbers[name]]
        visible = scope.steps.union(*(shown[other] for other in before[name]))
        inner = _Scope(steps=visible, is_loop=scope.is_loop, depth=scope.depth + 1)
        shown[name] = frozenset({name}) | _check_step(work, step, (*place, numbers[name]), inner)
    return scope.steps.union(*shown.values())


def _check_step(work: _Check, step: WorkflowStep, place: Place, scope: _Scope) -> frozenset[str]:
    """Check one step; return the inner steps that later ones may name."""
    for key in ("when", "if"):
        condition = step.when if key == "when" else step.if_
        if condition is not None:
            _check_condition(work, condition, (*place, key), scope)
    templates = {
        "with": step.with_,
        "message": step.message,
        "state": step.state,
        "set": step.set,
        "value": step.value,
    }
    for key, value in templates.items():
        _check_value(work, value, (*place, key), scope)
    if step.state is not None:
        _check_address(work, step.state, (*place, "state"))
    if step.parallel is not None:
        return _check_block(work, step.parallel, (*place, "parallel"), scope, is_parallel=True)
    for key, inner in (("then", step.then), ("else", step.else_)):
        if inner is not None:
            _check_block(work, inner, (*place, key), scope, is_parallel=False)
    if step.loop is not None and step.steps is not None:
        _check_value(work, step.loop.over, (*place, "loop", "over"), scope)
        _check_value(work, step.loop.times, (*place, "loop", "times"), scope)
        inside = _Scope(steps=scope.steps, is_loop=True, depth=scope.depth)
        if step.loop.while_ is not None:
            _check_condition(work, step.loop.while_, (*place, "loop", "while"), inside)
        if not isinstance(step.loop.over, str | list | None):
            work.note((*place, "loop", "over"), "`over` is a list, or an expression")
        if isinstance(step.loop.times, bool) or not isinstance(step.loop.times, str | int | None):
            work.note((*place, "loop", "times"), "`times` is a whole number, or an expression")
        _check_block(work, step.steps, (*place, "steps"), inside, is_parallel=False)
    return frozenset()


def _check_address(work: _Check, text: str, place: Place) -> None:
    """Refuse what is no address; one with expressions is known when the step runs."""
    if "${" in text:
        return
    try:
        parse_address(text)
    except UsageError as error:
        work.note(place, str(error))


def _check_condition(work: _Check, text: str, place: Place, scope: _Scope) -> None:
    try:
        _check_names(work, strip_quotes(text), place, scope)
    except ExpressionInvalid as error:
        work.note(place, str(error))


def _check_value(work: _Check, value: Value, place: Place, scope: _Scope) -> None:
    try:
        for text in list_expressions(value):
            _check_names(work, text, place, scope)
    except ExpressionInvalid as error:
        work.note(place, str(error))


def _check_names(work: _Check, text: str, place: Place, scope: _Scope) -> None:
    for path in list_references(parse(text)):
        wrong = _explain_wrong_name(work, path, scope)
        if wrong:
            work.note(place, f"{'.'.join(path[:3])}: {wrong}")


def _explain_wrong_name(work: _Check, path: tuple[str, ...], scope: _Scope) -> str:
    root, name = path[0], path[1] if len(path) > 1 else ""
    if root == "inputs":
        known = work.definition.inputs
        return "" if name in known or not name else f"there is no input {name!r}"
    if root == "loop":
        if not scope.is_loop:
            return "this is not inside a loop"
        return "" if name in _ABOUT_LOOPS else f"a loop has {', '.join(sorted(_ABOUT_LOOPS))}"
    if root != "steps":
        return "expressions begin with inputs, steps or loop"
    if name not in scope.steps:
        return (
            "this step may not have ended by then; a loop or an `if` is known by its own id"
            if name in work.is_known
            else f"there is no step {name!r}"
        )
    part = path[2] if len(path) > 2 else ""
    return "" if not part or part in _ABOUT_STEPS else "a step has output, status and error"


def check_calls(root: Definition, known: Mapping[str, Definition]) -> list[WorkflowMistake]:
    """Return which workflows are missing, or start themselves in the end."""
    everything = {**known, root.name: root}
    found = [
        WorkflowMistake((), f"the workflow {one.name!r} starts {name!r}, which is not known")
        for one in everything.values()
        for name in one.calls
        if name not in everything
    ]
    circle = find_cycle({name: one.calls for name, one in everything.items()})
    if circle:
        found.append(WorkflowMistake((), f"workflows start one another: {' -> '.join(circle)}"))
    for one in everything.values():
        found += _list_wrong_inputs(one, everything)
    return found


def _list_wrong_inputs(one: Definition, known: Mapping[str, Definition]) -> list[WorkflowMistake]:
    found: list[WorkflowMistake] = []
    for step in one.iterate_steps():
        called = known.get(step.workflow or "")
        if called is None:
            continue
        for name in step.with_:
            if name not in called.inputs:
                text = f"step {step.id!r}: the workflow {called.name!r} has no input {name!r}"
                found.append(WorkflowMistake((), text))
        for name, described in called.inputs.items():
            if name not in step.with_ and "default" not in described:
                text = f"step {step.id!r}: the workflow {called.name!r} needs the input {name!r}"
                found.append(WorkflowMistake((), text))
    return found


__all__ = ["Place", "WorkflowMistake", "check", "check_calls"]
