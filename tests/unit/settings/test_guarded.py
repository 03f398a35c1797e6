"""The files that agents must not get at are named, whether they exist or not."""

from __future__ import annotations

from pathlib import Path

from holdfast.settings import load_settings
from holdfast.settings.guarded import governing_places, secret_places


def test_settings_and_policies_of_the_workspace_govern(tmp_path: Path) -> None:
    settings = load_settings(overrides={"workspace": str(tmp_path)}, cwd=tmp_path).settings
    names = {path.relative_to(tmp_path).as_posix() for path in governing_places(settings)}
    overlays = {"holdfast.dev.toml", "holdfast.staging.toml", "holdfast.prod.toml"}
    assert names == {"policies", "holdfast.toml", ".env"} | overlays
    assert secret_places(settings) == (tmp_path / ".holdfast" / "secrets.env",)


def test_a_virtual_environment_called_env_is_none_of_ours(tmp_path: Path) -> None:
    (tmp_path / ".env").mkdir()
    settings = load_settings(overrides={"workspace": str(tmp_path)}, cwd=tmp_path).settings
    assert tmp_path / ".env" not in governing_places(settings)


def test_a_secrets_file_elsewhere_is_kept_as_well(tmp_path: Path) -> None:
    elsewhere = tmp_path / "keys.env"
    elsewhere.write_text("A_KEY=one\n")
    elsewhere.chmod(0o600)
    overrides = {"workspace": str(tmp_path), "secrets.file": str(elsewhere)}
    settings = load_settings(overrides=overrides, cwd=tmp_path).settings
    assert secret_places(settings) == (elsewhere, tmp_path / ".holdfast" / "secrets.env")
