"""`holdfast mcp connect`: the entry works before it is written, and nothing else is lost."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast", "--json", "--state-dir", "state", "mcp", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_other_servers_in_the_file_are_kept(tmp_path: Path) -> None:
    path, key = tmp_path / ".mcp.json", "mcpServers"
    path.write_text(json.dumps({key: {"files": {"command": "x"}}, "theme": "dark"}))
    done = run(tmp_path, "connect", "claude")
    assert done.returncode == 0, done.stderr
    assert "ask_build" in json.loads(done.stdout)["tools"]
    found = json.loads(path.read_text())
    assert set(found[key]) == {"files", "holdfast"}
    assert found["theme"] == "dark"
    assert found[key]["holdfast"]["args"][-2:] == ["mcp", "serve"]


def test_a_toml_file_keeps_one_table_of_ours(tmp_path: Path) -> None:
    path = tmp_path / ".codex/config.toml"
    path.parent.mkdir()
    path.write_text(
        'model = "o3"\n\n[mcp_servers.holdfast]\nargs = []\n\n[mcp_servers.other]\ncommand = "x"\n'
    )
    done = run(tmp_path, "connect", "codex")
    assert done.returncode == 0, done.stderr
    found = tomllib.loads(path.read_text())
    assert found["model"] == "o3"
    assert set(found["mcp_servers"]) == {"other", "holdfast"}
    assert found["mcp_servers"]["holdfast"]["args"][-2:] == ["mcp", "serve"]


def test_nothing_is_written_where_the_handshake_fails(tmp_path: Path) -> None:
    words = ("connect", "claude", "--url", "http://127.0.0.1:9/mcp", "--key-env", "PATH")
    assert run(tmp_path, *words).returncode != 0
    assert not (tmp_path / ".mcp.json").exists()


def test_a_file_that_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / ".mcp.json"
    path.write_text("{ // mine\n}")
    assert run(tmp_path, "connect", "claude").returncode == 2
    assert path.read_text() == "{ // mine\n}"
