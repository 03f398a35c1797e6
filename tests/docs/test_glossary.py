"""The words of the glossary are the words of the code, in both directions."""

from __future__ import annotations

import ast
import functools
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENTRY = re.compile(r"^\*\*(?P<term>.+)\*\*\n: (?P<text>.+)$", re.MULTILINE)
ENTRIES = {
    found["term"]: found["text"]
    for found in ENTRY.finditer((ROOT / "docs/glossary.md").read_text(encoding="utf-8"))
}
NAMES = [
    (term, name)
    for term, text in ENTRIES.items()
    for name in re.findall(r"`(holdfast(?:\.\w+)+)`", text.partition(" In code: ")[2])
]


def look_up(name: str) -> object:
    """Return what a dotted name means; raises where it means nothing."""
    parts = name.split(".")
    for number in range(len(parts), 0, -1):
        module = ".".join(parts[:number])
        try:
            found: object = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not module.startswith(error.name):
                raise
            continue
        for part in parts[number:]:
            # A field of a struct without a default is in its annotations alone.
            is_field = part in getattr(found, "__annotations__", {})
            found = None if is_field and not hasattr(found, part) else getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


@functools.cache
def docstrings() -> str:
    """Return all docstrings of the package, one after the other."""
    found: list[str] = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found.append(ast.get_docstring(node) or "")
    return "\n\n".join(found)


def test_the_glossary_has_the_terms_of_the_field() -> None:
    assert len(ENTRIES) >= 40
    assert list(ENTRIES) == list(dict.fromkeys(ENTRIES)), "no term twice"
    assert {"Lease", "Fencing epoch", "Idempotency key", "Taint label", "SSRF"} <= set(ENTRIES)
    bare = [term for term in ENTRIES if term not in dict(NAMES)]
    assert bare == [], "every term says where it is in the code"


@pytest.mark.parametrize(("term", "name"), NAMES, ids=[name for _, name in NAMES])
def test_a_code_name_of_the_glossary_exists(term: str, name: str) -> None:
    look_up(name)


def test_a_code_name_that_is_gone_would_be_noticed() -> None:
    with pytest.raises(AttributeError):
        look_up("holdfast.turns.TurnQueue.lend")
    with pytest.raises(AttributeError):
        look_up("holdfast.agents.errand.Errand")


@pytest.mark.parametrize("term", ENTRIES)
def test_a_term_of_the_glossary_is_said_in_a_docstring(term: str) -> None:
    for word in re.split(r", ", term):
        parts = r"[\s-]+".join(map(re.escape, re.split(r"[ -]", word)))
        said = re.compile(rf"\b{parts}(?:s|es)?\b", re.IGNORECASE)
        assert said.search(docstrings()), f"no docstring says {word!r}"
