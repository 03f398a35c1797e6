"""Every Python block in the docs runs, and prints what the page says it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = [*sorted((ROOT / "docs_src").rglob("*.py")), *sorted((ROOT / "examples").glob("*.py"))]

# A python block; an `output` block right after it is what it prints.
BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\s*^```output\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Snippet:
    """A block of a page, and what it should print, if the page says so."""

    place: str
    code: str
    output: str | None


def snippets(page: Path) -> list[Snippet]:
    text = page.read_text(encoding="utf-8")
    return [
        Snippet(
            place=f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}",
            code=match["code"],
            output=match["output"],
        )
        for match in BLOCK.finditer(text)
    ]


SNIPPETS = [snippet for page in PAGES for snippet in snippets(page)]


def run_in(folder: Path, file: Path) -> str:
    """Run a program as a reader would: own process, empty home, empty directory."""
    own = ("AGENT_", "XDG_", "COV")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(own)}
    environment |= {"HOME": str(folder), "PYTHONWARNINGS": "error", "NO_COLOR": "1"}
    ended = subprocess.run(
        [sys.executable, str(file)],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_example_file_runs(example: Path, tmp_path: Path) -> None:
    run_in(tmp_path, example)


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda snippet: snippet.place)
def test_a_block_in_the_docs_runs_and_prints_what_it_says(snippet: Snippet, tmp_path: Path) -> None:
    file = tmp_path / "snippet.py"
    file.write_text(snippet.code, encoding="utf-8")
    printed = run_in(tmp_path, file)
    if snippet.output is not None:
        assert printed == snippet.output


def test_python_blocks_of_the_readme_are_example_files() -> None:
    files = {path.read_text(encoding="utf-8") for path in EXAMPLES}
    foreign = [s.place for s in snippets(ROOT / "README.md") if s.code not in files]
    assert foreign == [], "a block in the README is a file in docs_src, word for word"


def test_the_first_screen_has_the_two_commands_and_a_short_example() -> None:
    first_screen = "".join((ROOT / "README.md").read_text().splitlines(keepends=True)[:45])
    assert re.search(r"^\./scripts/run .*\n\./scripts/test\b", first_screen, re.MULTILINE)
    example = BLOCK.search(first_screen)
    assert example, "a Python block on the first screen"
    assert example["code"].count("\n") <= 15
    assert example["output"], "with what it prints"


LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    targets = [link for link in LINK.findall(prose) if "://" not in link]
    assert [link for link in targets if not (page.parent / link).exists()] == []
