"""`holdfast runs`, `sessions list`, `resume`, and the describing run, as programs call them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.behaviour.cli.terminal import SOURCE


@pytest.fixture
def call(tmp_path: Path):
    place = tmp_path / "work"
    place.mkdir()

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "holdfast", *words],
            env={
                "PATH": "/usr/bin:/bin",
                "HOME": str(tmp_path),
                "PYTHONPATH": str(SOURCE),
                "AGENT_STATE_DIR": str(tmp_path / "state"),
            },
            cwd=place,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def test_every_kind_of_run_is_listed_newest_first_and_nested_ones_are_folded(call) -> None:
    assert call("run", "What is 15 * 23?").returncode == 0
    assert call("tools", "run", "list", "path=.").returncode == 0
    assert call("Describe this workspace").returncode == 0
    rows = json.loads(call("runs", "list", "--json").stdout)
    assert [row["kind"] for row in rows] == ["loop", "call", "agent build"]
    assert rows[0]["inside"] > 0
    assert rows[2]["goal"] == "What is 15 * 23?"
    whole = json.loads(call("runs", "list", "--all", "--json").stdout)
    assert len(whole) == len(rows) + rows[0]["inside"]
    assert {row["parent"] for row in whole if "parent" in row} == {rows[0]["id"]}
    # Sessions that runs began for themselves are left out, and a list is a list.
    sessions = json.loads(call("sessions", "list", "--json").stdout)
    assert len(sessions) == 3
    paged = call("sessions", "list", "--limit", "1", "--json")
    assert len(json.loads(paged.stdout)) == 1
    assert json.loads(paged.stderr)["next_cursor"]
    # Without a name it is the last, and times are for people.
    assert "goal: Describe this workspace" in call("runs", "show").stdout
    assert call("runs", "report").stdout.startswith("# Describe this workspace")
    assert " ago" in (listed := call("runs", "list").stdout) or "just now" in listed
    agent = rows[2]["id"]
    shown = call("runs", "show", agent).stdout
    assert "✓ calculator" in shown
    assert "15 * 23 = 345" in shown
    assert call("runs", "report", agent).stdout.startswith("# What is 15 * 23?")
    assert "15 * 23 = 345" in call("runs", "watch", agent).stdout
    assert "345" in call("runs", "resume", agent).stdout
    assert call("resume").returncode == 2


def test_the_describing_run_counts_every_file(call, tmp_path: Path) -> None:
    place = tmp_path / "work"
    (place / "README.md").write_text("# Kettle\n\nKettle boils water.\n")
    for folder in ("src/kettle", "tests/unit"):
        (place / folder).mkdir(parents=True)
        for number in range(400):
            (place / folder / f"m{number}.py").write_text("")
    told = call("Describe this workspace").stdout
    assert "Kettle boils water." in told
    assert "801 files." in told
    assert "Python (800), Markdown (1)" in told
    assert "├── src/                    400 files" in told


def test_a_word_with_one_wrong_letter_finds_its_command(call) -> None:
    assert "`holdfast runs`" in call("runz").stderr


def test_a_detached_run_waits_for_its_answer_and_goes_on_by_itself(call, tmp_path: Path) -> None:
    agents = tmp_path / ".config" / "holdfast" / "agents"
    agents.mkdir(parents=True)
    (agents / "asker.md").write_text(
        "---\ndescription: asks\npermission:\n"
        "  - {permission: calculator, pattern: '*', action: ask}\n---\nCount.\n"
    )
    begun = call("run", "--detach", "--agent", "asker", "What is 15 * 23?", "--json")
    assert begun.returncode == 0, begun.stderr
    run_id = json.loads(begun.stdout)["run_id"]
    call("runs", "watch", run_id)  # until it rests
    [waiting] = json.loads(call("approvals", "list", "--json").stdout)
    assert call("approvals", "approve", waiting["id"]).returncode == 0
    # Watching executes nothing: the detached process does.
    assert "15 * 23 = 345" in call("runs", "attach", run_id).stdout
    assert (tmp_path / "state" / "detached" / f"{run_id}.log").stat().st_mode & 0o077 == 0
