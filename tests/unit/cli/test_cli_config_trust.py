"""`holdfast config trust`: a person vouches for settings that a command could have made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.app import root
from holdfast.cli.exits import ExitCode
from holdfast.settings.unvouched import UnvouchedSettings


def holdfast(*words: str) -> Result:
    return CliRunner().invoke(root, words)


def test_settings_in_doubt_are_refused_until_they_are_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path))
    state = ("--state-dir", str(tmp_path / "state"))
    made = tmp_path / "work" / ".env"
    gap = UnvouchedSettings(tmp_path / "state", files=[made]).begin([str(tmp_path / "work")])
    assert gap is not None
    made.write_text("ALLOW_NET=true\n")
    gap.end()
    refused = holdfast("config", "validate", *state)
    assert refused.exit_code == ExitCode.CONFIGURATION
    assert f"holdfast config trust {made}" in refused.stderr
    assert "Trusted" in holdfast("config", "trust", ".env", *state).output
    assert holdfast("config", "validate", *state).exit_code == 0
    again = holdfast("config", "trust", ".env", "--json", *state)
    assert json.loads(again.output) == {"path": str(made), "was_in_doubt": False}
    assert "Nothing to do" in holdfast("config", "trust", ".env", *state).output
