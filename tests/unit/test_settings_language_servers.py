"""What may be said about a language server, and who may say it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.settings import LoadedSettings, load_settings

RUST = {"command": "rust-analyzer", "endings": {".rs": "rust"}}
TABLE = '[tools.language_servers.rust]\ncommand = "rust-analyzer"\nendings = {".rs" = "rust"}\n'
KEY = "tools.language_servers"


def load(folder: Path, **environ: str) -> LoadedSettings:
    return load_settings(cwd=folder, environ={"HOME": str(folder / "home"), **environ})


def given(servers: Any) -> dict[str, str]:
    return {"HOLDFAST_TOOLS__LANGUAGE_SERVERS": json.dumps(servers)}


def test_a_person_names_servers_in_a_file_or_a_variable(tmp_path: Path) -> None:
    own = tmp_path / "home" / ".config" / "holdfast"
    own.mkdir(parents=True)
    (own / "config.toml").write_text(TABLE)
    found = load(tmp_path)
    assert found.settings.tools.language_servers["rust"].endings == {".rs": "rust"}
    [row] = [row for row in found.rows() if row["key"] == KEY]
    assert row["value"] == {"rust": RUST}
    other = {**RUST, "args": ["--log"], "readable": ["/opt/rust"]}
    stronger = load(tmp_path, **given({"other": other}))
    assert stronger.rows() != found.rows()
    assert list(stronger.settings.tools.language_servers) == ["other"]


@pytest.mark.parametrize("name", ["holdfast.toml", "holdfast.dev.toml", ".env"])
def test_a_project_has_no_program_started(tmp_path: Path, name: str) -> None:
    text = TABLE if name.endswith("toml") else f"{next(iter(given(0)))}='{json.dumps({'a': RUST})}'"
    (tmp_path / ".git").mkdir()
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, HOLDFAST_ENV="dev")
    assert KEY in str(caught.value)


@pytest.mark.parametrize(
    "server",
    [
        {},
        {"command": "x"},
        {"command": "", "endings": {".rs": "rust"}},
        {"command": "./here", "endings": {".rs": "rust"}},
        {"command": "x\ny", "endings": {".rs": "rust"}},
        {"command": "x", "endings": {}},
        {"command": "x", "endings": {"rs": "rust"}},
        {"command": "x", "endings": {".rs": "Rust!"}},
        {**RUST, "readable": ["relative"]},
        {**RUST, "sandbox": "full"},
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, server: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, **given({"one": server}))
    assert caught.value.code == "config.invalid"


@pytest.mark.parametrize("text", ["[", "[]", '{"Two Words": {}}'])
def test_a_variable_holds_an_object_of_servers_by_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        load(tmp_path, HOLDFAST_TOOLS__LANGUAGE_SERVERS=text)
