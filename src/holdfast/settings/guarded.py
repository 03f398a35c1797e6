"""Files that hold our keys, or say what agents may do: no agent may get at them."""

from __future__ import annotations

from pathlib import Path
from typing import Final, get_args

from holdfast.errors import ConfigError
from holdfast.settings.definition import Environment, Settings
from holdfast.settings.environment import find_working_directory, process_environment
from holdfast.settings.keys import CONFIG_VARIABLE
from holdfast.settings.load import HOOKS_FOLDER, SECRETS_FILE
from holdfast.settings.secret_files import list_secret_files
from holdfast.settings.sources import Collector
from holdfast.settings.unvouched import UnvouchedSettings

_PROJECT_FILE: Final = "holdfast.toml"
_VARIABLES_FILE: Final = ".env"


def list_secret_places(settings: Settings) -> tuple[Path, ...]:
    """Return where keys are kept that agents must not see, whether or not it exists yet."""
    usual = [place / SECRETS_FILE for place in _list_levels(settings)]
    named = [] if settings.secrets.file is None else [settings.secrets.file]
    mounted = list_secret_files(process_environment()).values()
    return tuple(dict.fromkeys([*named, *usual, *mounted]))


def list_governing_places(settings: Settings) -> tuple[Path, ...]:
    """Return what the next start goes by, and agents must not change: policies and settings.

    Some of it may not exist. A directory of the name `.env` is no file of ours.
    """
    files = _list_settings_files(settings)
    return (*_list_folders(settings), *(path for path in files if not path.is_dir()))


def make_unvouched_settings(settings: Settings, state_dir: Path) -> UnvouchedSettings:
    """Return what watches over all of these that are missing."""
    files = (*_list_settings_files(settings), *list_secret_places(settings))
    return UnvouchedSettings(state_dir, files=files, folders=_list_folders(settings))


def _list_folders(settings: Settings) -> tuple[Path, ...]:
    """The policies, the installed tools, hooks, and what the user keeps for all projects.

    Skills of the home directory are among it: they are offered without further trust.
    """
    own = Collector(process_environment(), Path("/")).find_standard_dir(
        "XDG_CONFIG_HOME", ".config"
    )
    found = [settings.policies.dir, settings.tools.dir, settings.user_dir]
    if settings.home_dir is not None:
        found += [settings.home_dir / place for place in (".agents/skills", ".claude/skills")]
    # A folder of hooks that changed, or a nearer one, would silence those that a person trusted.
    found += [place / HOOKS_FOLDER for place in _list_levels(settings)]
    # A repository inside the repository would end the search for files before its top.
    for start in _list_starts(settings):
        found += [place / ".git" for place in Collector({}, start).levels()[:-1]]
    return tuple(dict.fromkeys([*found, *([own] if own is not None else [])]))


def _list_settings_files(settings: Settings) -> list[Path]:
    named = process_environment().get(CONFIG_VARIABLE, "").strip()
    project = [place / _PROJECT_FILE for place in _list_levels(settings)]
    if named:
        project.append(Path(named).expanduser().absolute())
    found = []
    for path in project:
        overlays = [f"{path.stem}.{name}.toml" for name in get_args(get_args(Environment)[0])]
        found += [path, *(path.with_name(name) for name in overlays)]
    return [*found, *(place / _VARIABLES_FILE for place in _list_levels(settings))]


def _list_levels(settings: Settings) -> list[Path]:
    """The directories in which a start here, or in the workspace, looks for files."""
    found = [place for start in _list_starts(settings) for place in Collector({}, start).levels()]
    return list(dict.fromkeys(found))


def _list_starts(settings: Settings) -> list[Path]:
    try:
        return [settings.workspace, find_working_directory()]
    except ConfigError:
        return [settings.workspace]  # no process can start in a directory that is gone
