"""The first command of the README, without a key, a server or a network."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast import Agent, toolset
from holdfast.cli.app import root
from holdfast.orchestration.loop.plan import DraftPlan, find_problems
from holdfast.settings.environment import process_environment


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "kettle"
    folder.mkdir()
    (folder / "README.md").write_text("# Kettle\n\nKettle boils water.\n")
    (folder / "main.py").write_text("def main():\n    pass\n")
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL", "AGENT_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AGENT_STATE_DIR", str(tmp_path / "state"))
    return folder


def test_a_workspace_is_described_by_real_tools(project: Path) -> None:
    ended = CliRunner().invoke(root, ["run", "--model", "offline", "Describe this workspace"])
    assert ended.exit_code == 0, ended.output
    assert "> Kettle boils water." in ended.stdout
    assert "main.py:1: def main():" in ended.stdout
    assert "NOT a language model" in ended.stderr


def test_programs_get_the_same_as_json(project: Path) -> None:
    words = ["run", "--model", "offline", "Describe this workspace", "--json"]
    ended = CliRunner().invoke(root, words)
    assert ended.exit_code == 0, ended.output
    assert "Kettle boils water" in json.dumps(json.loads(ended.stdout))


def test_a_sum_goes_to_the_calculator_among_all_the_tools(project: Path) -> None:
    ended = CliRunner().invoke(root, ["run", "--model", "offline", "What is 15 times 23?"])
    assert ended.exit_code == 0, ended.output
    assert ended.stdout.strip() == "15 * 23 = 345"
    assert "calculator" in ended.stderr


@pytest.mark.parametrize(("closed", "shown"), [("<&-", "15 * 23 = 345\n"), (">&- 2>&-", "")])
def test_a_caller_may_close_the_standard_streams(project: Path, closed: str, shown: str) -> None:
    source = Path(__file__).resolve().parents[3] / "src"
    words = f'exec "$0" -m holdfast run --model offline "What is 15 times 23?" {closed}'
    ended = subprocess.run(
        ["/bin/sh", "-c", words, sys.executable],
        capture_output=True,
        text=True,
        env={**process_environment(), "PYTHONPATH": str(source)},
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, shown), ended.stderr


def test_a_plan_is_made_by_the_program_from_the_workspace_that_it_sees(project: Path) -> None:
    source = Path(__file__).resolve().parents[3] / "src"
    ended = subprocess.run(
        [sys.executable, "-m", "holdfast", "run", "--model", "offline", "Make a plan to test main"],
        capture_output=True,
        text=True,
        env={**process_environment(), "PYTHONPATH": str(source)},
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "# Plan: test main" in ended.stdout
    assert "(begin with `main.py`)" in ended.stdout
    assert "is no language model" in ended.stdout
    assert "NOT a language model" in ended.stderr


def test_python_gets_the_same_plan_as_a_text_and_as_a_form(project: Path) -> None:
    said = "Plan how to add a changelog"
    told = Agent("planner", model="offline").run_sync(said).response
    formed = Agent("planner", model="offline", output=DraftPlan).run_sync(said).output
    assert isinstance(formed, DraftPlan)
    assert find_problems(formed) == []
    named = re.findall(r"^\d+\. \*\*(.*?)\.\*\*", told, re.MULTILINE)
    assert [step.title for step in formed.steps] == named
    assert "Add a changelog" in named


def test_a_file_is_read_when_it_is_named(project: Path) -> None:
    result = Agent("reader", model="offline", tools=toolset("files:read")).run_sync("Read main.py")
    assert "    def main():" in result.response


def test_a_file_that_may_not_be_read_ends_like_a_denial_and_one_that_is_missing_as_failed(
    project: Path,
) -> None:
    outside = CliRunner().invoke(root, ["run", "--model", "offline", "read /etc/passwd"])
    assert outside.exit_code == 6
    assert "Nothing was done" in outside.stderr
    assert "outside the workspace" in outside.stderr
    missing = CliRunner().invoke(root, ["run", "--model", "offline", "read nosuch.txt"])
    assert missing.exit_code == 1, missing.output
    assert "Nothing was done" in missing.stderr
    there = CliRunner().invoke(root, ["run", "--model", "offline", "read main.py"])
    assert there.exit_code == 0, there.output


def test_an_error_before_the_first_answer_comes_without_the_notice(project: Path) -> None:
    ended = CliRunner().invoke(root, ["run", "--agent", "nosuch", "Describe this workspace"])
    assert ended.exit_code == 2
    assert "NOT a language model" not in ended.stderr
