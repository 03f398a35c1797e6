"""Names of functions and methods begin with a verb; people-metaphors stay out of the source.

`verbs.txt` lists the verbs that are in use; `unverbed_names.txt` the names that are exceptions,
because a seed prescribes them, because they build fluently, or because they are not renamed yet.
The exceptions only shrink.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "holdfast"
VERBS = frozenset(Path(__file__).with_name("verbs.txt").read_text(encoding="utf-8").split())
EXCEPTIONS = frozenset(
    Path(__file__).with_name("unverbed_names.txt").read_text(encoding="utf-8").split()
)
MOST_EXCEPTIONS = 250
LEAST_SHARE = 0.92
PEOPLE = re.compile(r"\b(?:somebody|nobody|whoever|someone|anybody|anyone)", re.IGNORECASE)
MOST_PEOPLE = 118


def list_functions() -> Iterator[str]:
    """Yield the name of each function of a module and each method, but for commands and tools."""
    for file in SOURCE.rglob("*.py"):
        yield from _list_named(ast.parse(file.read_text(encoding="utf-8")).body)


def _list_named(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if not node.name.startswith("__") and not _is_called_otherwise(node):
                    yield node.name.lstrip("_")
            case ast.ClassDef() | ast.If() | ast.Try():
                yield from _list_named(node.body)


def _is_called_otherwise(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Say whether a name is a value's, typed by a user, or prescribed by a class of others."""
    marks = [ast.unparse(mark).partition("(")[0] for mark in node.decorator_list]
    return any(
        "property" in mark
        or mark.endswith((".setter", "command", "group"))
        or mark in ("tool", "override")
        for mark in marks
    )


def test_functions_begin_with_a_verb() -> None:
    found = Counter(name.split("_")[0] in VERBS for name in list_functions())
    assert found[True] / found.total() >= LEAST_SHARE


def test_exceptions_are_those_that_are_listed_and_no_more() -> None:
    found = {name for name in list_functions() if name.split("_")[0] not in VERBS}
    assert found - EXCEPTIONS == set(), "begin it with a verb of verbs.txt, or add its verb there"
    assert EXCEPTIONS - found == set(), "take what is gone out of unverbed_names.txt"
    assert len(EXCEPTIONS) <= MOST_EXCEPTIONS


def test_the_source_speaks_of_callers_and_processes_and_not_of_somebody() -> None:
    found = [
        f"{file.relative_to(SOURCE)}: {line.strip()}"
        for file in sorted(SOURCE.rglob("*.py"))
        for line in file.read_text(encoding="utf-8").splitlines()
        if PEOPLE.search(line)
    ]
    assert len(found) <= MOST_PEOPLE, "\n".join(found)
