"""The commands for MCP servers, as a person or a script calls them."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from mcp_kit import program

from holdfast.cli.app import root


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("AGENT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*words: str) -> Result:
    return CliRunner().invoke(root, ["mcp", *words])


def own_file(home: Path) -> Path:
    return home / "config" / "holdfast" / "config.toml"


def add_rude(*words: str) -> Result:
    said = program("mcp_rude.py")
    folders = [word for folder in said["readable"] for word in ("--readable", folder)]
    return call("add", "rude", *folders, *words, "--", said["command"], *said["args"])


def test_server_is_added_called_and_removed(home: Path) -> None:
    assert add_rude("--rate-limit", "60").exit_code == 0
    (listed,) = json.loads(call("list", "--json").stdout)
    assert (listed["name"], listed["trusted"], listed["sandbox"]) == ("rude", True, "read-only")
    (health,) = json.loads(call("health", "--json").stdout)
    assert (health["status"], health["authenticated"], health["throttled"]) == ("ok", False, False)
    shown = {row["tool"]: row for row in json.loads(call("tools", "rude", "--json").stdout)}
    assert shown["echo"]["verdict"] == "accepted"
    assert shown["echo"]["effect"] == "unsafe"
    payload = json.dumps({"text": "hello"})
    refused = call("invoke", "rude", "echo", "--payload", payload)
    assert refused.exit_code == 6
    done = call("invoke", "rude", "echo", "--payload", payload, "--auto-confirm")
    assert (done.exit_code, done.stdout) == (0, "hello\n")
    assert json.loads(call("health", "rude", "--json").stdout)[0]["invocations"] == 1
    assert call("remove", "rude").exit_code == 0
    assert json.loads(call("list", "--json").stdout) == []
    assert tomllib.loads(own_file(home).read_text()) == {}


def test_projects_server_waits_for_trust(home: Path) -> None:
    assert add_rude("--project").exit_code == 0
    assert "mcp_endpoints" in (home / "holdfast.toml").read_text()
    refused = call("tools", "rude")
    assert refused.exit_code == 6
    assert json.loads(call("health", "--json").stdout)[0]["status"] == "untrusted"
    assert json.loads(call("trust", "rude", "--json").stdout)["trusted"] is True
    assert json.loads(call("trust", "rude", "--revoke", "--json").stdout)["trusted"] is False


def test_changed_tools_are_shown_and_accepted(home: Path) -> None:
    add_rude()
    call("tools", "rude")
    file = own_file(home)
    file.write_text(file.read_text().replace('mcp_rude.py"]', 'mcp_rude.py", "changed"]'))
    rows = {
        row["tool"]: row["verdict"] for row in json.loads(call("tools", "rude", "--json").stdout)
    }
    assert (rows["echo"], rows["extra"], rows["hang"]) == ("changed", "new", "accepted")
    assert call("accept", "rude", "nothing").exit_code == 2
    rows = {
        row["tool"]: row["verdict"]
        for row in json.loads(call("accept", "rude", "echo", "--json").stdout)
    }
    assert (rows["echo"], rows["extra"]) == ("accepted", "new")


def test_server_that_does_not_answer_ends_with_one(home: Path) -> None:
    call("add", "gone", "--url", "http://127.0.0.1:9/mcp")
    ended = call("health", "--json")
    assert ended.exit_code == 1
    assert json.loads(ended.stdout)[0]["last_error"]


@pytest.mark.parametrize(
    "words",
    [
        ("add", "x"),
        ("add", "x", "--url", "https://a.example/mcp", "--", "program"),
        ("add", "Not-A-Name", "--url", "https://a.example/mcp"),
        ("add", "x", "--url", "http://a.example/mcp"),
        ("add", "x", "--project", "--sandbox", "full", "--", "program"),
        ("add", "x", "--auth-token-env", "not a name", "--", "program"),
        ("remove", "x"),
        ("tools", "x"),
        ("invoke", "x", "y", "--payload", "[]"),
        ("health", "x"),
    ],
)
def test_mistakes_are_told_before_anything_is_written(home: Path, words: tuple[str, ...]) -> None:
    assert call(*words).exit_code == 2
    assert not own_file(home).exists()
    assert not (home / "holdfast.toml").exists()


def test_name_that_a_rule_could_confuse_is_refused(home: Path) -> None:
    assert call("add", "git", "--url", "https://a.example/mcp").exit_code == 0
    assert call("add", "github", "--url", "https://b.example/mcp").exit_code == 0
    assert call("add", "git-hub", "--url", "https://b.example/mcp").exit_code == 2


def test_files_keep_their_comments(home: Path) -> None:
    file = own_file(home)
    file.parent.mkdir(parents=True)
    file.write_text('# mine\n[log]\nlevel = "info" # loud\n')
    call("add", "far", "--url", "https://a.example/mcp", "--auth-token-env", "FAR_TOKEN")
    assert file.read_text().startswith('# mine\n[log]\nlevel = "info" # loud\n')
    call("remove", "far")
    assert file.read_text() == '# mine\n[log]\nlevel = "info" # loud\n\n'
    file.write_text('mcp_endpoints = {far = {transport = "http", url = "https://a.example/"}}\n')
    assert call("remove", "far").exit_code == 2
