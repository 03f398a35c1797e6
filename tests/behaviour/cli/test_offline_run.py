"""The first command of the README, without a key, a server or a network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.app import root


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
