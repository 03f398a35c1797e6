"""The small projects start with one command, without a key, and do what their page says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECTS = Path(__file__).parents[2] / "examples" / "projects"
DESK = """\
waits for a person: refund {'order': 'A-17', 'euros': 40.0}
I am sorry. Your parcel counts as lost after seven days; we have refunded 40 euros.
refunds: ['A-17']
"""
REVIEW = """\
::error file=shop/pay.py,line=11::A card is logged.
::error file=shop/pay.py,line=12::SQL injection.
"""
CREW = """\
Insulate first, then buy a small heat pump.

Sources: heat-pumps, insulation.
2 researchers worked; kept as report.md, 77 bytes
"""
ANALYST = """\
query: error
query: completed
Answer(shop='south', cups=220)
"""
DIFF = str(PROJECTS / "code_reviewer" / "change.diff")


def run(place: Path, name: str, *words: str) -> tuple[int, str, str]:
    own = ("AGENT_", "OPENAI", "ANTHROPIC", "XDG_", "COV", "HOLDFAST")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(own)}
    ended = subprocess.run(
        [sys.executable, str(PROJECTS / name / "main.py"), *words],
        cwd=place,
        env=kept | {"HOME": str(place), "PYTHONWARNINGS": "error", "PYTHONIOENCODING": "utf-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize(
    ("name", "words", "code", "printed"),
    [
        ("support_desk", (), 0, DESK),
        ("code_reviewer", (DIFF,), 1, REVIEW),
        ("research_crew", (), 0, CREW),
        ("data_analyst", (), 0, ANALYST),
    ],
)
def test_a_project_prints_what_it_should(
    name: str, words: tuple[str, ...], code: int, printed: str, tmp_path: Path
) -> None:
    ended = run(tmp_path, name, *words)
    assert ended[:2] == (code, printed), ended[2]


def test_the_night_researcher_goes_on_where_it_was_the_night_before(tmp_path: Path) -> None:
    nights = [run(tmp_path, "night_researcher", "--once") for _ in range(2)]
    assert [night[1] for night in nights] == [
        "Leases without clocks is noted.\n",
        "Journals that do not lie is noted.\n",
    ], nights


def test_every_project_is_on_the_page_with_its_command() -> None:
    page = (PROJECTS / "README.md").read_text(encoding="utf-8")
    for main in PROJECTS.glob("*/main.py"):
        assert f"`python {main.parent.name}/main.py" in page
