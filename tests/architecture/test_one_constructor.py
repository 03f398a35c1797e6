"""The surroundings of a call are put together in one place.

Where four places did it, each forgot something: labels, state, hooks. A second construction is
how the next hole would begin.
"""

from __future__ import annotations

import ast
import functools
from collections import Counter, defaultdict
from pathlib import Path

import msgspec
import pytest

from holdfast.tools import ToolContext

SOURCE = Path(__file__).parents[2] / "src" / "holdfast"

ONLY_IN = {
    "ToolContext": "runtime/calls.py",
    "ToolExecutionManager": "runtime/calls.py",
    "CallEnvironment": "runtime/runtime.py",
    "ProcessEnvironment": "runtime/runtime.py",
}

RUNNERS = {
    "runtime/processes.py": 1,
    "sandbox/report.py": 1,  # asks the sandbox what it can do
    "sandbox/runner.py": 1,  # itself, for another directory
}
"""Where a `SandboxRunner` is made, and how often."""


@functools.cache
def list_constructions() -> dict[str, Counter[str]]:
    """Return what is called in the source: in which files, and how often."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for file in SOURCE.rglob("*.py"):
        path = file.relative_to(SOURCE).as_posix()
        if path.startswith("testing/"):
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                found[_called(node.func)][path] += 1
    return found


def _called(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


@pytest.mark.parametrize(("name", "home"), ONLY_IN.items(), ids=ONLY_IN)
def test_what_surrounds_a_call_is_constructed_once(name: str, home: str) -> None:
    assert list_constructions()[name] == {home: 1}


def test_processes_are_started_by_runners_from_one_place() -> None:
    assert list_constructions()["SandboxRunner"] == RUNNERS


def test_a_context_of_calls_has_no_defaults() -> None:
    given = [field.name for field in msgspec.structs.fields(ToolContext) if not field.required]
    assert given == [], "what is forgotten would be missing in silence"
