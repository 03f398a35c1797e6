from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.app import root
from holdfast.settings.keys import list_keys

KEY = "sk-planted-0123456789"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "holdfast.toml").write_text('[model]\nname = "mine"\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return tmp_path


def call(*words: str) -> Result:
    result = CliRunner().invoke(root, ["config", *words])
    assert KEY not in result.output
    return result


def test_view_shows_every_setting_with_its_source(project: Path) -> None:
    rows = json.loads(call("view", "--json").stdout)
    assert [row["key"] for row in rows] == list(list_keys())
    by_key = {row["key"]: row for row in rows}
    assert by_key["model.name"] == {
        "key": "model.name",
        "value": "mine",
        "source": "holdfast.toml:2",
    }
    assert by_key["secrets.openai_api_key"]["value"] == "(hidden)"
    assert by_key["secrets.openai_api_key"]["source"] == "environment OPENAI_API_KEY"
    assert by_key["secrets.anthropic_api_key"]["value"] is None


def test_view_of_one_key_is_one_object(project: Path) -> None:
    assert json.loads(call("view", "model.name", "--json").stdout)["value"] == "mine"
    assert call("view", "model.name").stdout.splitlines()[1].split() == [
        "model.name",
        "mine",
        "holdfast.toml:2",
    ]


def test_view_of_a_section_is_its_keys(project: Path) -> None:
    rows = json.loads(call("view", "storage", "--json").stdout)
    assert {row["key"].split(".")[0] for row in rows} == {"storage"}


def test_view_of_an_unknown_key_names_the_nearest(project: Path) -> None:
    result = call("view", "model.nam")
    assert result.exit_code == 2
    assert "Did you mean 'model.name'?" in result.stderr


def test_options_of_the_call_are_shown_as_arguments(project: Path) -> None:
    row = json.loads(call("view", "storage.state_dir", "--state-dir", "st", "--json").stdout)
    assert row == {
        "key": "storage.state_dir",
        "value": str(project / "st"),
        "source": "argument",
    }


def test_validate_names_the_files_that_it_read(project: Path) -> None:
    assert json.loads(call("validate", "--json").stdout) == {
        "valid": True,
        "files": [str(project / "holdfast.toml")],
    }
    assert "valid" in call("validate").stdout


def test_validate_ends_with_3_and_names_all_mistakes(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALLOW_NET", "maybe")
    monkeypatch.setenv("HOLDFAST_LOG_LEVEL", "loud")
    result = call("validate")
    assert result.exit_code == 3
    assert "ALLOW_NET" in result.stderr
    assert "HOLDFAST_LOG_LEVEL" in result.stderr
    error = json.loads(call("validate", "--json").stderr)["error"]
    assert error["code"] == "config.invalid"
    assert len(error["context"]["mistakes"]) == 2
