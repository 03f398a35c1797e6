"""What the program of a server needs of the machine: places to read, hosts, a cache.

Found out before a server is added, so that a person can be asked once and the answer kept. It is
a guess from what the program is: where it is installed, what interprets it, and, for `npx`,
`uvx` and their like, from which registry they fetch. Nothing of it is granted here.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec

from holdfast.errors import UsageError
from holdfast.settings import McpSandbox
from holdfast.tools import PATH, find_server_program

_ASK_S: Final = 20.0
_NODE: Final = frozenset({"npx", "npm", "pnpx", "pnpm"})
_PYTHON: Final = frozenset({"uvx", "uv", "pipx"})


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """How a program is started, and what it has to be granted beyond the default for that."""

    command: str
    args: tuple[str, ...]
    sandbox: McpSandbox = "read-only"
    readable: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    env: dict[str, str] = msgspec.field(default_factory=dict)
    cache: str = ""
    """A directory of its own, which it may write; it has to be made."""
    unknown: str = ""
    """What could not be found out, for the person to say."""

    @property
    def is_more(self) -> bool:
        """Whether it needs anything that has to be granted."""
        return bool(self.readable or self.hosts or self.cache)


Ask = Callable[[Sequence[str]], str]
"""Runs a program of the user and returns what it prints; empty if it fails."""


def find_needs(
    name: str, program: Sequence[str], *, cache_dir: str, ask: Ask | None = None
) -> Needs:
    """Return what a program needs to be a server; may start `npm` to learn its registry.

    Raises:
        UsageError: the program is not installed.
    """
    first, *rest = program
    path = shutil.which(first)
    if path is None:
        raise UsageError(
            detail=f"{first} is not installed here: neither the search path nor that path has it."
        )
    path = os.path.abspath(path)
    found = find_server_program(path, tuple(rest))
    is_known = "/" not in first and shutil.which(first, path=PATH) is not None
    command, args = (first, tuple(rest)) if is_known else (found.argv[0], found.argv[1:])
    kind = os.path.basename(first)
    if kind not in _NODE | _PYTHON:
        return Needs(command=command, args=args, readable=found.readable)
    cache = os.path.join(cache_dir, "mcp_cache", name)
    hosts = _find_npm_hosts(ask or run_quietly) if kind in _NODE else _find_pip_hosts()
    return Needs(
        command=command,
        args=_find_answered(kind, args),
        sandbox="read-only-filtered",
        readable=found.readable,
        hosts=hosts,
        env=_make_cache_variables(kind, cache),
        cache=cache,
        unknown="" if hosts else f"from which hosts {kind} fetches packages: say it with --host",
    )


def _find_answered(kind: str, args: tuple[str, ...]) -> tuple[str, ...]:
    """Let npx not ask whether it may install: nobody is there to answer."""
    is_asking = kind == "npx" and not {"-y", "--yes"} & set(args)
    return ("--yes", *args) if is_asking else args


def _make_cache_variables(kind: str, cache: str) -> dict[str, str]:
    if kind in _NODE:
        return {"npm_config_cache": cache, "npm_config_update_notifier": "false"}
    if kind == "pipx":
        return {"PIPX_HOME": cache, "PIPX_BIN_DIR": f"{cache}/bin"}
    return {
        "UV_CACHE_DIR": f"{cache}/cache",
        "UV_TOOL_DIR": f"{cache}/tools",
        "UV_PYTHON_INSTALL_DIR": f"{cache}/python",
    }


def _find_npm_hosts(ask: Ask) -> tuple[str, ...]:
    return _find_host(ask(("npm", "config", "get", "registry")).strip())


def _find_pip_hosts() -> tuple[str, ...]:
    """The hosts of the public index as pip knows them; none if it is not installed."""
    try:
        known = importlib.import_module("pip._internal.models.index").PyPI
        return (*_find_host(str(known.simple_url)), str(known.file_storage_domain))
    except (ImportError, AttributeError):
        return ()


def _find_host(url: str) -> tuple[str, ...]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return ()
    if not host:
        return ()
    return (f"{host}:{port}" if port else host,)


def run_quietly(argv: Sequence[str]) -> str:
    """Run a program of the user for what it prints; empty if it fails or takes long."""
    program = shutil.which(argv[0])
    if program is None:
        return ""
    try:
        ended = subprocess.run(
            [program, *argv[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ASK_S,
            check=False,
            text=True,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stdout if ended.returncode == 0 else ""


__all__ = ["Needs", "find_needs", "run_quietly"]
