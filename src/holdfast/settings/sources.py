"""Collect what every source says about every setting, without judging it yet.

Sources, weakest first: defaults, user file, project file, overlay, `.env`, secrets file,
environment, arguments.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

import msgspec

from holdfast.settings.files import (
    Mistake,
    TomlFile,
    UnreadableFile,
    Variable,
    parse_toml,
    parse_variables,
    read_text,
)
from holdfast.settings.keys import (
    CONFIG_VARIABLE,
    FILE_SUFFIX,
    PREFIX,
    Key,
    find_key_of_file,
    list_keys,
    list_keys_by_variable,
    list_sections,
)
from holdfast.settings.secret_files import read_secret_file


class Rank(IntEnum):
    """Strength of a source; the strongest one decides."""

    DEFAULT = 0
    USER = 1
    PROJECT = 2
    OVERLAY = 3
    DOTENV = 4
    SECRETS = 5
    ENVIRONMENT = 6
    ARGUMENT = 7


class FoundSetting(msgspec.Struct, frozen=True, kw_only=True):
    """One raw value of one setting in one source; the value may be a secret."""

    key: Key
    value: object
    source: str
    rank: Rank
    base: Path

    def __repr__(self) -> str:
        """Where it was found, without the value."""
        return f"FoundSetting(key={self.key.name!r}, source={self.source!r})"


class Collector:
    """Gathers raw values and mistakes; one per load."""

    def __init__(self, environ: Mapping[str, str], cwd: Path) -> None:
        """Start with nothing found; reads nothing yet."""
        self.environ = environ
        self.cwd = cwd
        self.found: list[FoundSetting] = []
        self.mistakes: list[Mistake] = []
        self.files: list[Path] = []

    # --- where files are -------------------------------------------------------------

    def home(self) -> Path | None:
        """The home directory, or None where there is none."""
        given = self.environ.get("HOME", "")
        if given.startswith("/"):
            return Path(given)
        try:
            return Path(pwd.getpwuid(os.getuid()).pw_dir)
        except KeyError:
            return None

    def find_standard_dir(self, variable: str, fallback: str) -> Path | None:
        """An XDG directory of ours; relative values are ignored, as XDG demands."""
        given = self.environ.get(variable, "")
        if given.startswith("/"):
            return Path(given) / "holdfast"
        home = self.home()
        return home / fallback / "holdfast" if home else None

    def search_upwards(self, name: str) -> Path | None:
        """The nearest file of that name from here up to the repository root.

        Outside a repository only the working directory counts: a file that another user
        left in /tmp or in / must not configure us.
        """
        for place in self.levels():
            # A directory is something else: some people call a virtual environment `.env`.
            if os.path.lexists(place / name) and not (place / name).is_dir():
                return place / name
        return None

    def levels(self) -> list[Path]:
        """The working directory, and in a repository those above it up to its root."""
        root = self.find_repository_root()
        above = [place for place in self.cwd.parents if root and place.is_relative_to(root)]
        return [self.cwd, *above]

    def find_repository_root(self) -> Path | None:
        """The nearest directory from here upwards that holds `.git`."""
        places = [self.cwd, *self.cwd.parents]
        return next((place for place in places if os.path.lexists(place / ".git")), None)

    def shown(self, path: Path) -> str:
        """The path as people know it: relative when it is below the working directory."""
        return str(path.relative_to(self.cwd)) if path.is_relative_to(self.cwd) else str(path)

    # --- reading ---------------------------------------------------------------------

    def note(self, source: str, text: str) -> None:
        """Add a mistake."""
        self.mistakes.append(Mistake(source=source, text=text))

    def read_text_of(self, path: Path, *, is_needed: bool, is_private: bool = False) -> str | None:
        """The text of a file; None if it is absent or cannot be read (noted)."""
        try:
            text = read_text(path, is_private=is_private)
        except UnreadableFile as error:
            where = f"{self.shown(path)}:{error.line}" if error.line else self.shown(path)
            self.note(where, error.text)
            return None
        if text is None and is_needed:
            self.note(self.shown(path), "does not exist")
        if text is not None:
            self.files.append(path)
        return text

    def add_toml(self, path: Path, rank: Rank, *, is_needed: bool = False) -> None:
        """Collect the settings of a TOML file."""
        text = self.read_text_of(path, is_needed=is_needed)
        if text is None:
            return
        try:
            parsed = parse_toml(text)
        except UnreadableFile as error:
            where = f"{self.shown(path)}:{error.line}" if error.line else self.shown(path)
            self.note(where, error.text)
            return
        for name, value in _flatten(parsed.values):
            self._add_toml_value(path, rank, parsed, name, value)

    def _add_toml_value(
        self, path: Path, rank: Rank, parsed: TomlFile, name: str, value: object
    ) -> None:
        line = parsed.lines.get(name)
        where = f"{self.shown(path)}:{line}" if line else self.shown(path)
        key = list_keys().get(name)
        if name in list_sections():
            self.note(where, f"{name} is a section; write it as [{name}]")
        elif key is None:
            self.note(where, f"unknown key {name[:200]!r}{_find_nearest_key(name)}")
        elif key.is_secret:
            self.note(
                where,
                f"{name} must not stand in a configuration file; set {key.variable} in the "
                "environment or in a secrets file",
            )
        elif not key.is_allowed_in_files:
            self.note(where, f"{name} can be set with {key.variable} only")
        else:
            self._add(key, value, where, rank, path.parent)

    def add_variables(self, path: Path, rank: Rank, *, is_needed: bool = False) -> None:
        """Collect the settings of a `.env` or secrets file."""
        is_private = rank is Rank.SECRETS
        text = self.read_text_of(path, is_needed=is_needed, is_private=is_private)
        if text is None:
            return
        variables, wrong = parse_variables(text)
        for line, problem in wrong:
            self.note(f"{self.shown(path)}:{line}", problem)
        for variable in variables:
            self._add_variable(variable, f"{self.shown(path)}:{variable.line}", rank, path.parent)

    def add_environment(self) -> None:
        """Collect the settings of the process environment."""
        for name in sorted(self.environ):
            if name != CONFIG_VARIABLE:
                variable = Variable(name=name, value=self.environ[name], line=0)
                self._add_variable(variable, f"environment {name}", Rank.ENVIRONMENT, self.cwd)

    def _add_variable(self, variable: Variable, where: str, rank: Rank, base: Path) -> None:
        name = variable.name
        key = list_keys_by_variable().get(name)
        if key is None:
            named = find_key_of_file(name)
            if named is not None:
                self._add_secret_file(named, variable, where, rank)
            elif name == CONFIG_VARIABLE:
                self.note(where, f"{name} can be set in the environment only")
            elif name.startswith(PREFIX):
                self.note(where, f"unknown variable {name[:200]}{_find_nearest_variable(name)}")
            return
        if rank is Rank.SECRETS and not key.is_secret:
            self.note(where, f"{name} is no secret; set it in .env or holdfast.toml")
        elif variable.value.strip():
            # An empty variable counts as absent: that is how compose files pass "unset".
            self._add(key, variable.value, where, rank, base)

    def _add_secret_file(self, key: Key, variable: Variable, where: str, rank: Rank) -> None:
        """Take the value of a setting from the file that `NAME_FILE` names."""
        path = variable.value.strip()
        if rank is not Rank.ENVIRONMENT:
            self.note(where, f"{variable.name} can be set in the environment only")
        elif path and self.environ.get(variable.name.removesuffix(FILE_SUFFIX), "").strip():
            self.note(where, f"{key.variable} is set too; set one of them")
        elif path:
            try:
                value = read_secret_file(Path(path))
            except UnreadableFile as error:
                self.note(where, error.text)
                return
            self._add(key, value, where, rank, self.cwd)

    def add_arguments(self, overrides: Mapping[str, object]) -> None:
        """Collect what the caller passed, by dotted key; None means not given."""
        for name, value in overrides.items():
            key = list_keys().get(name)
            if key is None:
                self.note("argument", f"unknown key {name[:200]!r}{_find_nearest_key(name)}")
            elif value is not None:
                self._add(key, value, "argument", Rank.ARGUMENT, self.cwd)

    def _add(self, key: Key, value: object, source: str, rank: Rank, base: Path) -> None:
        self.found.append(FoundSetting(key=key, value=value, source=source, rank=rank, base=base))

    def find_strongest_raw(self, name: str) -> FoundSetting | None:
        """The strongest value found so far for a key, not yet validated."""
        matching = [item for item in self.found if item.key.name == name]
        return max(matching, key=lambda item: item.rank, default=None)


def _flatten(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Dotted keys and values; descends into known sections only."""
    for name, value in values.items():
        dotted = f"{prefix}{name}"
        if isinstance(value, dict) and dotted in list_sections():
            yield from _flatten(value, f"{dotted}.")
        else:
            yield dotted, value


def _find_nearest_key(name: str) -> str:
    known = [*list_keys(), *list_sections()]
    near = _find_nearest(name, known)
    if not near:
        last = name.rpartition(".")[2]
        near = [key for key in list_keys() if key.rpartition(".")[2] == last][:1]
    return f"; did you mean {near[0]!r}?" if near else ""


def _find_nearest_variable(name: str) -> str:
    by_path = list_keys().get(name.removeprefix(PREFIX).replace("__", ".").lower())
    if by_path is not None:
        return f"; {by_path.name} is set with {by_path.variable}"
    known = [*list_keys_by_variable(), CONFIG_VARIABLE]
    near = _find_nearest(name, known)
    return f"; did you mean {near[0]}?" if near else ""


def _find_nearest(name: str, known: Sequence[str]) -> list[str]:
    import difflib  # noqa: PLC0415 - only for those who made a mistake

    return difflib.get_close_matches(name[:200], known, n=1, cutoff=0.6)
