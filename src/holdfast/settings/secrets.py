"""The secrets that this process knows, for what has to keep them out of sight."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from pydantic import SecretStr

from holdfast.settings.definition import Settings
from holdfast.settings.environment import find_working_directory, process_environment
from holdfast.settings.files import UnreadableFile, parse_variables, read_text
from holdfast.settings.keys import list_keys
from holdfast.settings.secret_files import list_secret_files, read_secret_file
from holdfast.settings.sources import Collector


def list_secret_values(settings: Settings) -> dict[str, str]:
    """Every key of the settings, and everything in the secrets file, by variable.

    A secrets file that can no longer be read adds nothing.
    """
    found: dict[str, str] = {}
    if settings.secrets.file is not None:
        found |= _read_variables(settings.secrets.file, is_private=True)
    for name, key in list_keys().items():
        section, _, last = name.rpartition(".")
        value = getattr(getattr(settings, section), last) if key.is_secret else None
        if isinstance(value, SecretStr):
            found[key.variable] = value.get_secret_value()
    return found


def find_variables_around(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment, what `.env` would add to it, and what stands in files of secrets."""
    given = process_environment() if environ is None else environ
    dotenv = Collector(given, find_working_directory()).search_upwards(".env")
    mounted = {}
    for name, path in list_secret_files(given).items():
        with contextlib.suppress(UnreadableFile):
            mounted[name] = read_secret_file(path)
    return {**mounted, **(_read_variables(dotenv) if dotenv else {}), **given}


def _read_variables(path: Path, *, is_private: bool = False) -> dict[str, str]:
    try:
        text = read_text(path, is_private=is_private)
    except UnreadableFile:
        return {}
    return {item.name: item.value for item in parse_variables(text or "")[0]}
