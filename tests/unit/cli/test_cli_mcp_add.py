"""`holdfast mcp add` writes down what a program needs, if a person grants it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.app import root


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in (
        ("HOME", tmp_path / "home"),
        ("XDG_CONFIG_HOME", tmp_path / "config"),
        ("AGENT_STATE_DIR", tmp_path / "state"),
    ):
        monkeypatch.setenv(name, str(value))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "server").write_text("#!/bin/sh\n")
    (tools / "npx").write_text("#!/bin/sh\n")
    (tools / "npm").write_text("#!/bin/sh\necho https://packages.example/\n")
    for one in tools.iterdir():
        one.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(root, ["--json", "mcp", *words])


def written(home: Path) -> dict[str, dict[str, object]]:
    (file,) = home.glob("config/**/config.toml")
    endpoints: dict[str, dict[str, object]] = tomllib.loads(file.read_text())["mcp_endpoints"]
    return endpoints


def test_needs_of_a_program_on_the_path_are_granted_on_demand(home: Path):
    ended = run("add", "one", "--yes", "--env", "A=b", "--timeout", "5", "--", "server", "x")
    assert ended.exit_code == 0, ended.output
    said = written(home)["one"]
    assert said["readable"] == [str(home / "tools")]
    assert said["env"] == {"A": "b"}
    assert said["timeout_s"] == 5
    assert "hosts" not in said


def test_nothing_is_granted_where_nobody_answers(home: Path):
    assert run("add", "one", "--", "server").exit_code == 0
    assert "readable" not in written(home)["one"]


def test_npx_is_added_filtered_with_its_registry(home: Path):
    ended = run("add", "git", "--yes", "--", "npx", "server-git")
    assert ended.exit_code == 0, ended.output
    said = written(home)["git"]
    assert said["sandbox"] == "read-only-filtered"
    assert said["hosts"] == ["packages.example"]
    assert said["writable"] == [str(home / "state" / "mcp_cache" / "git")]
    assert Path(str(said["writable"][0])).is_dir()  # type: ignore[index]
    assert (
        run("add", "github", "--url", "https://git.example/mcp", "--header", "X-A=b").exit_code == 0
    )
    (listed, _) = json.loads(run("list").output)
    assert listed["hosts"] == ["packages.example"]
    assert json.loads(run("revoke", "git").output)["hosts"] == []
    assert json.loads(run("grant", "git", "a.test:8443").output)["hosts"] == ["a.test:8443"]
    assert run("grant", "github", "a.test").exit_code != 0


@pytest.mark.parametrize(
    "words",
    [
        ["add", "one", "--yes", "--", "no-such-program-anywhere"],
        ["add", "one", "--env", "novalue", "--", "server"],
        ["add", "one", "--host", "http://x", "--", "server"],
        ["add", "one", "--header", "A=b", "--", "server"],
    ],
)
def test_what_cannot_work_is_refused_when_it_is_added(home: Path, words: list[str]):
    assert run(*words).exit_code != 0
    assert not list(home.glob("config/**/config.toml"))
