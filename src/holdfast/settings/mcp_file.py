"""Write MCP servers into a configuration file, and out of it again.

Files are edited as text, so that comments and order stay. Whatever the text looks like, the
result is parsed before it is written: it must say exactly what it said before, and the change.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import tomllib
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from pydantic import TypeAdapter, ValidationError

from holdfast.errors import AlreadyExists, NotFound, StorageError, UsageError
from holdfast.settings.environment import find_working_directory, process_environment
from holdfast.settings.files import UnreadableFile, read_text
from holdfast.settings.keys import CONFIG_VARIABLE
from holdfast.settings.mcp import McpEndpoint, McpEndpoints
from holdfast.settings.sources import Collector

Place: TypeAlias = Literal["user", "project"]

_TABLE: Final = "mcp_endpoints"
_HEADER: Final = re.compile(r"\s*\[")


def find_endpoint_file(place: Place) -> Path:
    """Return the user's configuration file, or the project's, whether it is there or not.

    Raises:
        UsageError: there is no home directory.
    """
    environ = process_environment()
    collector = Collector(environ, find_working_directory())
    if place == "user":
        folder = collector.find_standard_dir("XDG_CONFIG_HOME", ".config")
        if folder is None:
            raise UsageError(detail="There is no home directory, and so no file of the user's.")
        return folder / "config.toml"
    named = environ.get(CONFIG_VARIABLE, "").strip()
    if named:
        return Path(named).expanduser().absolute()
    found = collector.search_upwards("holdfast.toml")
    return found or (collector.find_repository_root() or collector.cwd) / "holdfast.toml"


def check_endpoint(name: str, said: dict[str, Any]) -> McpEndpoint:
    """Return the endpoint that was described.

    Raises:
        UsageError: the name or the description is wrong; every mistake is named.
    """
    try:
        checked: dict[str, McpEndpoint] = TypeAdapter(McpEndpoints).validate_python({name: said})
    except ValidationError as error:
        mistakes = "; ".join(
            ".".join(str(step) for step in one["loc"] if step != "[key]")
            + ": "
            + one["msg"].removeprefix("Value error, ").removeprefix("Input ")
            for one in error.errors(include_url=False, include_input=False)
        )
        raise UsageError(detail=f"The MCP server cannot be added: {mistakes}.") from error
    return checked[name]


def add_endpoint(path: Path, name: str, said: dict[str, Any]) -> None:
    """Add an endpoint to a file, which is made if it is not there.

    Raises:
        AlreadyExists: the file names one of this name.
        UsageError: the file is no TOML.
        StorageError: it cannot be written.
    """
    text = _read(path)
    before = _parse(path, text)
    endpoints = before.get(_TABLE, {})
    if name in endpoints:
        raise AlreadyExists(kind="MCP server", value=name)
    lines = [f"{key} = {_read_toml(value)}" for key, value in said.items()]
    gap = "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
    after = f"{text}{gap}[{_TABLE}.{name}]\n" + "\n".join(lines) + "\n"
    _write(path, after, {**before, _TABLE: {**endpoints, name: said}})


def remove_endpoint(path: Path, name: str) -> None:
    """Take an endpoint out of a file.

    Raises:
        NotFound: the file names none of this name.
        UsageError: the file is no TOML, or written so that only a person can change it.
        StorageError: it cannot be written.
    """
    text = _read(path)
    before = _parse(path, text)
    endpoints = before.get(_TABLE, {})
    if name not in endpoints:
        raise NotFound(kind="MCP server", value=f"{name} in {path}")
    lines = text.splitlines(keepends=True)
    header = re.compile(rf"""\s*\[\s*{_TABLE}\s*\.\s*["']?{re.escape(name)}["']?\s*\]\s*(#.*)?$""")
    kept: list[str] = []
    is_inside = False
    for line in lines:
        if _HEADER.match(line):
            is_inside = header.match(line) is not None
        if not is_inside:
            kept.append(line)
    others = {key: value for key, value in endpoints.items() if key != name}
    rest = {key: value for key, value in before.items() if key != _TABLE}
    _write(path, "".join(kept), {**rest, **({_TABLE: others} if others else {})})


def _read(path: Path) -> str:
    try:
        return read_text(path) or ""
    except UnreadableFile as error:
        raise UsageError(detail=f"{path} {error.text}.") from None


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(detail=f"{path} is no TOML: {error}") from None


def _write(path: Path, text: str, wanted: dict[str, Any]) -> None:
    try:
        is_right = tomllib.loads(text) == wanted
    except (tomllib.TOMLDecodeError, RecursionError):
        is_right = False
    if not is_right:
        raise UsageError(detail=f"{path} is written so that only you can change it; edit it.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        handle, fresh = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            os.fchmod(handle, mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path.resolve())
    except OSError as error:
        raise StorageError(path=str(path), detail=error.strerror or "it fails") from error


def _read_toml(value: object) -> str:
    """A value as TOML, which JSON's forms of texts, numbers and lists are too."""
    if isinstance(value, dict):
        inner = [f"{json.dumps(str(key))} = {_read_toml(one)}" for key, one in value.items()]
        return "{ " + ", ".join(inner) + " }"
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=True)


__all__ = ["Place", "add_endpoint", "check_endpoint", "find_endpoint_file", "remove_endpoint"]
