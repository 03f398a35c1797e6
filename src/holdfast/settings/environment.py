"""The process environment, read here and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from holdfast.errors import ConfigError


def process_environment() -> Mapping[str, str]:
    """A copy of this process's environment."""
    return dict(os.environ)


def is_color_unwanted(environ: Mapping[str, str] | None = None) -> bool:
    """Whether NO_COLOR is set (to anything but nothing) or the terminal is dumb."""
    given = os.environ if environ is None else environ
    return bool(given.get("NO_COLOR")) or given.get("TERM") == "dumb"


def find_working_directory() -> Path:
    """The working directory of this process.

    Raises:
        ConfigError: it was deleted while we stand in it.
    """
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise ConfigError(
            detail="  - working directory: it no longer exists; change to another one",
            mistakes=["working directory: it no longer exists; change to another one"],
        ) from None
