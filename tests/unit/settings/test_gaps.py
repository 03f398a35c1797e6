"""Settings that a command could have made are in doubt until a person vouches for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import ConfigError, UsageError
from holdfast.settings import load_settings
from holdfast.settings.guarded import make_unvouched_settings
from holdfast.settings.load import vouch_for
from holdfast.settings.unvouched import UnvouchedSettings

OPEN_NET = "[network]\nallow_net = true\n"
PLACES = {
    "holdfast.toml": OPEN_NET,
    ".env": "ALLOW_NET=true\n",
    ".holdfast/secrets.env": "OPENAI_API_KEY=theirs\n",
    "policies/network.yaml": "allow_net: true\n",
    ".holdfast/hooks/nearer.yaml": "",
}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AGENT_STATE_DIR", str(tmp_path / "state"))
    return folder


def watched(workspace: Path) -> UnvouchedSettings:
    return make_unvouched_settings(load_settings().settings, workspace.parent / "state")


def make(place: Path, text: str = OPEN_NET) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    place.chmod(0o600)


def notes(workspace: Path) -> list[str]:
    return os.listdir(workspace.parent / "state" / "gaps")


@pytest.mark.parametrize("name", PLACES)
def test_what_came_during_a_command_is_not_obeyed_until_it_is_trusted(
    workspace: Path, name: str
) -> None:
    gap = watched(workspace).begin([str(workspace)])
    assert gap is not None
    make(workspace / name, PLACES[name])
    with pytest.raises(ConfigError, match="holdfast config trust"):
        load_settings()
    place = workspace / name.removesuffix("/network.yaml").removesuffix("/nearer.yaml")
    with pytest.raises(UsageError, match="still running"):
        vouch_for(place)
    assert gap.end() == [str(place)]
    with pytest.raises(ConfigError, match="holdfast config trust"):
        load_settings()
    assert vouch_for(place)
    load_settings()
    assert not vouch_for(place)
    assert notes(workspace) == []


def test_what_a_person_makes_between_commands_is_obeyed(workspace: Path) -> None:
    gap = watched(workspace).begin([str(workspace)])
    assert gap is not None
    assert gap.end() == []
    make(workspace / "holdfast.toml")
    assert load_settings().settings.network.allow_net
    assert notes(workspace) == []


def test_a_file_that_names_another_state_directory_is_still_in_doubt(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AGENT_STATE_DIR")
    usual = load_settings().settings
    gap = make_unvouched_settings(usual, usual.storage_path).begin([str(workspace)])
    assert gap is not None
    make(workspace / ".env", "AGENT_STATE_DIR=elsewhere\n")
    gap.end()
    with pytest.raises(ConfigError, match="holdfast config trust"):
        load_settings()


def test_a_repository_inside_does_not_hide_the_settings_above_it(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / ".git").mkdir()
    (workspace / "sub").mkdir()
    make(workspace / "holdfast.toml")
    monkeypatch.chdir(workspace / "sub")
    assert load_settings().settings.network.allow_net
    gap = watched(workspace).begin([str(workspace / "sub")])
    assert gap is not None
    (workspace / "sub" / ".git").mkdir()
    assert gap.end() == [str(workspace / "sub" / ".git")]
    with pytest.raises(ConfigError, match="holdfast config trust"):
        load_settings()
    assert vouch_for(workspace / "sub" / ".git")
    assert not load_settings().settings.network.allow_net


def test_a_repository_where_there_was_none_hides_nothing(workspace: Path) -> None:
    gap = watched(workspace).begin([str(workspace)])
    assert gap is not None
    (workspace / ".git").mkdir()
    assert gap.end() == []


def test_what_was_there_before_a_command_stays_in_force(workspace: Path) -> None:
    make(workspace / "holdfast.toml")
    gap = watched(workspace).begin([str(workspace)])
    assert gap is not None
    make(workspace / "holdfast.toml", "[network]\nallow_net = false\n")
    assert gap.end() == []
    load_settings()


@pytest.mark.parametrize("target", ["shared.toml", "../shared.toml", "missing.toml"])
def test_a_link_that_is_replaced_is_in_doubt(workspace: Path, target: str) -> None:
    if target != "missing.toml":
        (workspace / target).write_text("")
    link = workspace / "holdfast.toml"
    link.symlink_to(target)
    gap = watched(workspace).begin([str(workspace)])
    assert gap is not None
    link.unlink()
    make(link)
    assert gap.end() == [str(link)]


@pytest.mark.parametrize("name", ["holdfast.toml", ".env", "policies"])
def test_a_link_that_is_removed_is_missed(workspace: Path, name: str) -> None:
    elsewhere = workspace.parent / "elsewhere"
    if name == "policies":
        elsewhere.mkdir()
    else:
        elsewhere.write_text("")
    (workspace / name).symlink_to(elsewhere)
    gap = watched(workspace).begin([str(workspace)])
    assert gap is not None
    (workspace / name).unlink()
    assert gap.end() == [str(workspace / name)]
    with pytest.raises(ConfigError, match="was removed while"):
        load_settings()
    assert vouch_for(workspace / name)
    load_settings()


def test_a_folder_on_the_way_that_is_a_link_can_be_replaced_too(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "real" / "policies").mkdir(parents=True)
    (workspace / "conf").symlink_to("real")
    monkeypatch.setenv("HOLDFAST_POLICIES__DIR", "conf/policies")
    gap = watched(workspace).begin([str(workspace)])
    assert gap is not None
    (workspace / "conf").unlink()
    (workspace / "conf" / "policies").mkdir(parents=True)
    assert gap.end() == [str(workspace / "conf" / "policies")]


def test_a_virtual_environment_called_env_can_be_replaced_by_a_file(workspace: Path) -> None:
    (workspace / ".env").mkdir()
    gap = watched(workspace).begin([str(workspace)])
    assert gap is not None
    (workspace / ".env").rmdir()
    make(workspace / ".env", "ALLOW_NET=true\n")
    assert gap.end() == [str(workspace / ".env")]


def test_two_commands_cannot_cover_for_each_other(workspace: Path) -> None:
    gaps, place = watched(workspace), workspace / "holdfast.toml"
    first = gaps.begin([str(workspace)])
    make(place)
    # For the second one it is there, and read-only; but the first one can take it away.
    second = gaps.begin([str(workspace)])
    assert first is not None
    assert second is not None
    place.unlink()
    assert first.end() == []
    make(place)
    second.end()
    assert gaps.filled() == [str(place)]
    with pytest.raises(ConfigError):
        load_settings()


def test_what_came_is_noted_and_told_once(workspace: Path) -> None:
    gaps = watched(workspace)
    told = []
    for _ in range(3):
        gap = gaps.begin([str(workspace)])
        assert gap is not None
        make(workspace / ".env", "ALLOW_NET=true\n")
        told.append(gap.end())
    assert told == [[str(workspace / ".env")], [], []]
    assert len(notes(workspace)) == 1


KILLED = """
import os, signal, sys
from pathlib import Path
from holdfast.settings import load_settings
from holdfast.settings.guarded import make_unvouched_settings

settings = load_settings().settings
assert make_unvouched_settings(settings, settings.storage_path).begin([str(settings.workspace)])
if sys.argv[1]:
    Path(sys.argv[1]).write_text("ALLOW_NET=true\\n")
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(made: str) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, made], check=False)
    assert ended.returncode == -signal.SIGKILL


def test_a_killed_process_leaves_what_its_command_made_in_doubt(workspace: Path) -> None:
    killed(".env")
    with pytest.raises(ConfigError, match="holdfast config trust"):
        load_settings()
    assert vouch_for(workspace / ".env")
    load_settings()


def test_the_next_command_forgets_a_killed_one_that_made_nothing(workspace: Path) -> None:
    killed("")
    gap = watched(workspace).begin([str(workspace)])
    assert gap is not None
    gap.end()
    assert notes(workspace) == []


def test_nothing_is_noted_for_what_cannot_be_written(workspace: Path, tmp_path: Path) -> None:
    assert watched(workspace).begin([str(tmp_path / "elsewhere")]) is None
    assert not (tmp_path / "state").exists()
