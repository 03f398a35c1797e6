"""Files that hold our keys, or say what agents may do: no agent may get at them."""

from __future__ import annotations

from pathlib import Path
from typing import Final, get_args

from holdfast.settings.definition import Environment, Settings
from holdfast.settings.load import SECRETS_FILE

_PROJECT_FILE: Final = "holdfast.toml"


def secret_places(settings: Settings) -> tuple[Path, ...]:
    """Return where keys are kept that agents must not see, whether or not it exists yet."""
    usual = settings.workspace / SECRETS_FILE
    return (usual,) if settings.secrets.file is None else (settings.secrets.file, usual)


def governing_places(settings: Settings) -> tuple[Path, ...]:
    """Return what the next start goes by, and agents must not change: policies and settings.

    Some of it may not exist. A directory of the name `.env` is no file of ours.
    """
    workspace = settings.workspace
    stem, ending = _PROJECT_FILE.split(".")
    overlays = [f"{stem}.{name}.{ending}" for name in get_args(get_args(Environment)[0])]
    found = [settings.policies.dir, workspace / _PROJECT_FILE]
    found += [workspace / name for name in overlays]
    if not (workspace / ".env").is_dir():
        found.append(workspace / ".env")
    return tuple(found)
