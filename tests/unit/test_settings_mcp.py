"""What may be said about an MCP server, and who may say it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.settings import LoadedSettings, load_settings

HTTP = {"transport": "http", "url": "https://a.example/mcp"}
STDIO = {"transport": "stdio", "command": "server"}


def load(folder: Path, **environ: str) -> LoadedSettings:
    return load_settings(cwd=folder, environ={"HOME": str(folder / "home"), **environ})


def given(endpoints: Any) -> str:
    return json.dumps(endpoints)


def test_files_add_up_and_say_who_named_a_server(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    own = tmp_path / "home" / ".config" / "holdfast"
    own.mkdir(parents=True)
    text = '[mcp_endpoints.{name}]\ntransport = "stdio"\ncommand = "{command}"\n'
    mine = text.format(name="one", command="mine") + text.format(name="two", command="mine")
    (own / "config.toml").write_text(mine)
    (tmp_path / "holdfast.toml").write_text(text.format(name="two", command="theirs"))
    variable = given({"three": HTTP})
    found = load(tmp_path, HOLDFAST_MCP_ENDPOINTS=variable).settings.mcp_endpoints
    assert {name: (one.command, one.is_of_project) for name, one in found.items()} == {
        "one": ("mine", False),
        "two": ("theirs", True),
        "three": (None, False),
    }
    assert found["two"].source == "holdfast.toml"


def test_view_shows_what_was_said(tmp_path: Path) -> None:
    rows = load(tmp_path, HOLDFAST_MCP_ENDPOINTS=given({"far": HTTP})).rows()
    (row,) = [row for row in rows if row["key"] == "mcp_endpoints"]
    assert row["value"] == {"far": HTTP}


def test_dotenv_speaks_for_the_project(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"HOLDFAST_MCP_ENDPOINTS='{given({'far': STDIO})}'\n")
    assert load(tmp_path).settings.mcp_endpoints["far"].is_of_project


@pytest.mark.parametrize(
    "endpoint",
    [
        {},
        {"transport": "carrier pigeon", "command": "x"},
        {"transport": "stdio"},
        {"transport": "http"},
        {**STDIO, "url": "https://a.example/"},
        {**HTTP, "command": "x"},
        {**HTTP, "args": ["x"]},
        {**HTTP, "sandbox": "network"},
        {**HTTP, "url": "http://a.example/mcp"},
        {**HTTP, "url": "https://user:password@a.example/mcp"},
        {**HTTP, "url": "https://a.example/mcp?token=x"},
        {**HTTP, "auth_token_env": "sk-a-key-itself"},
        {**STDIO, "command": ""},
        {**STDIO, "command": "a\nb"},
        {**STDIO, "readable": ["relative"]},
        {**STDIO, "readable": ["/"]},
        {**STDIO, "readable": ["/a/../b"]},
        {**STDIO, "rate_limit_per_minute": 0},
        {**STDIO, "timeout_s": -1},
        {**STDIO, "_is_of_project": False},
        {**STDIO, "is_of_project": False},
    ],
)
def test_wrong_endpoints_are_refused_with_their_place(tmp_path: Path, endpoint: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, HOLDFAST_MCP_ENDPOINTS=given({"far": endpoint}))
    assert "mcp_endpoints: far" in str(raised.value)


@pytest.mark.parametrize(
    "endpoints",
    [
        "no json",
        [],
        {"Upper": HTTP},
        {"under_score": HTTP},
        {"": HTTP},
        {"a" * 25: HTTP},
        {"a-b": HTTP, "ab": HTTP},
        {f"n{number:02}": HTTP for number in range(65)},
    ],
)
def test_names_that_cannot_be_told_apart_are_refused(tmp_path: Path, endpoints: Any) -> None:
    text = endpoints if isinstance(endpoints, str) else given(endpoints)
    with pytest.raises(ConfigError):
        load(tmp_path, HOLDFAST_MCP_ENDPOINTS=text)


def test_project_cannot_leave_the_sandbox_away(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text(
        '[mcp_endpoints.far]\ntransport = "stdio"\ncommand = "x"\nsandbox = "full"\n'
    )
    with pytest.raises(ConfigError):
        load(tmp_path)


def test_projects_server_cannot_take_a_name_beside_mine(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text(
        '[mcp_endpoints.git-hub]\ntransport = "stdio"\ncommand = "x"\n'
    )
    with pytest.raises(ConfigError):
        load(tmp_path, HOLDFAST_MCP_ENDPOINTS=given({"github": HTTP}))


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://localhost:1/", "http://[::1]:1/"])
def test_this_machine_may_be_spoken_to_in_the_clear(tmp_path: Path, url: str) -> None:
    endpoints = given({"far": {"transport": "http", "url": url}})
    found = load(tmp_path, HOLDFAST_MCP_ENDPOINTS=endpoints).settings.mcp_endpoints
    assert found["far"].is_local


def test_others_may_if_it_is_said(tmp_path: Path) -> None:
    endpoint = {"transport": "http", "url": "http://a.example/", "allow_plain_http": True}
    found = load(tmp_path, HOLDFAST_MCP_ENDPOINTS=given({"far": endpoint})).settings.mcp_endpoints
    assert not found["far"].is_local
