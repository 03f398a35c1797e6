"""The files that agents must not get at are named, whether they exist or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.settings import Settings, load_settings
from holdfast.settings.guarded import list_governing_places, list_secret_places

OVERLAYS = {"holdfast.dev.toml", "holdfast.staging.toml", "holdfast.prod.toml"}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.chdir("/")


def names(tmp_path: Path, settings: Settings) -> set[str]:
    places = [path for path in list_governing_places(settings) if path.is_relative_to(tmp_path)]
    return {path.relative_to(tmp_path).as_posix() for path in places}


def test_settings_and_policies_of_the_workspace_govern(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load_settings(overrides={"workspace": str(tmp_path)}, cwd=tmp_path).settings
    assert names(tmp_path, settings) == {
        "policies",
        ".holdfast/hooks",
        "holdfast.toml",
        ".env",
        *OVERLAYS,
    }
    assert list_secret_places(settings) == (tmp_path / ".holdfast" / "secrets.env",)


def test_a_virtual_environment_called_env_is_none_of_ours(tmp_path: Path) -> None:
    (tmp_path / ".env").mkdir()
    settings = load_settings(overrides={"workspace": str(tmp_path)}, cwd=tmp_path).settings
    assert tmp_path / ".env" not in list_governing_places(settings)


def test_a_secrets_file_elsewhere_is_kept_as_well(tmp_path: Path) -> None:
    elsewhere = tmp_path / "keys.env"
    elsewhere.write_text("A_KEY=one\n")
    elsewhere.chmod(0o600)
    overrides = {"workspace": str(tmp_path), "secrets.file": str(elsewhere)}
    settings = load_settings(overrides=overrides, cwd=tmp_path).settings
    usual = tmp_path / ".holdfast" / "secrets.env"
    assert list_secret_places(settings)[:2] == (elsewhere, usual)


def test_a_start_from_below_the_workspace_is_governed_by_what_is_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    settings = load_settings(overrides={"workspace": str(tmp_path)}).settings
    assert {"holdfast.toml", "a/holdfast.toml", "a/b/.env", "a/.env"} <= names(tmp_path, settings)
    assert tmp_path / "a" / ".holdfast" / "secrets.env" in list_secret_places(settings)


def test_a_file_that_is_named_by_the_environment_governs_with_its_overlays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ours.toml").write_text("")
    monkeypatch.setenv("HOLDFAST_CONFIG", str(tmp_path / "ours.toml"))
    settings = load_settings(overrides={"workspace": str(tmp_path)}).settings
    assert {"ours.toml", "ours.prod.toml"} <= names(tmp_path, settings)


def test_what_the_user_keeps_for_all_projects_governs_a_workspace_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HOLDFAST_USER_DIR", str(tmp_path / "mine"))
    monkeypatch.setenv("AGENT_TOOLS_DIR", str(tmp_path / "installed"))
    settings = load_settings(overrides={"workspace": str(tmp_path)}).settings
    assert {".config/holdfast", "mine", "installed"} <= names(tmp_path, settings)


def test_a_working_directory_that_is_gone_is_nobodys_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings(overrides={"workspace": str(tmp_path)}, cwd=tmp_path).settings
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert "holdfast.toml" in names(tmp_path, settings)
