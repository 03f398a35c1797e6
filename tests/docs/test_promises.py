"""What the pages of promises call their proof is there: every row names one, and each exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("guarantees", "threat-model")
PROOFS = ("proof", "shown by", "the test that shows it")
NAMED = re.compile(r"`([^`]+)`")


def list_rows(page: str) -> list[tuple[str, str]]:
    """Return the first and the last cell of every row of a page's tables, with their headings."""
    text = (ROOT / "docs" / "concepts" / f"{page}.md").read_text("utf-8")
    rows: list[tuple[str, str]] = []
    heading: list[str] = []
    for line in text.splitlines():
        if not line.startswith("|"):
            heading = []
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not heading:
            heading = cells
            assert cells[-1] in PROOFS, f"{page}: a table whose last column is no proof: {line}"
        elif not set(line) <= set("|-: "):
            assert len(cells) == len(heading), line
            rows.append((cells[0], cells[-1]))
    return rows


def exists(reference: str) -> bool:
    path = reference.split()[0].removeprefix("./")
    if "/" in path:
        return (ROOT / path).exists()
    if path.endswith(".py"):
        return any((ROOT / "tests").rglob(path))
    return path in FUNCTIONS


FUNCTIONS = frozenset(
    name
    for file in (ROOT / "tests").rglob("*.py")
    for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text("utf-8"), re.MULTILINE)
)


@pytest.mark.parametrize("page", PAGES)
def test_every_promise_names_a_proof_that_exists(page: str) -> None:
    rows = list_rows(page)
    assert len(rows) > 15
    before: list[str] = []
    for promise, proof in rows:
        named = NAMED.findall(proof)
        if proof.startswith("the same"):
            assert before, promise
        else:
            assert named, f"nothing shows: {promise}"
        assert [one for one in named if not exists(one)] == [], promise
        before = named or before


def test_a_reference_to_nothing_is_noticed() -> None:
    assert exists("tests/docs/test_promises.py")
    assert exists("test_promises.py")
    assert exists("./scripts/soak turns")
    assert exists("test_a_reference_to_nothing_is_noticed")
    assert not exists("test_that_there_is_none_of")
    assert not exists("tests/docs/test_nothing.py")
