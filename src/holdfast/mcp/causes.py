"""Why a server's program does not work in its sandbox, in words that say what to do."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from typing import Final

from holdfast.errors import McpFailed
from holdfast.settings import McpEndpoint
from holdfast.tools import PATH, SYSTEM_PATHS, EgressRefusal

_NO_NETWORK: Final = re.compile(
    r"EAI_AGAIN|ENOTFOUND|ENETUNREACH|getaddrinfo|name resolution|Network is unreachable"
    r"|[Cc]ould ?n[o']t resolve|[Nn]ame or service not known|ConnectError|dns error"
    r"|Failed to fetch|request to .{1,200} failed|ECONNREFUSED|Operation not permitted.{0,40}socket"
)
_NOT_READABLE: Final = re.compile(
    r"ModuleNotFoundError|No module named|Cannot find module|ERR_MODULE_NOT_FOUND"
    r"|No such file or directory|cannot open shared object|Permission denied|EACCES|ENOENT"
    r"|Read-only file system|EROFS"
)
_SHOWN: Final = 3


def check_program(name: str, endpoint: McpEndpoint, workspace: str) -> None:
    """Return if the sandbox will find the program of an endpoint and may read it.

    Raises:
        McpFailed: it is not installed, or lies where the sandbox cannot look.
    """
    if endpoint.sandbox == "full":
        return
    command = str(endpoint.command)
    if "/" in command:
        # A relative path is one of the workspace, where the program starts.
        found: str | None = os.path.join(workspace, command)
        is_there = os.path.exists(str(found))
    else:
        if shutil.which(command, path=PATH):
            return
        found = shutil.which(command)
        is_there = found is not None
    if not is_there or found is None:
        detail = f"the program {command} is not installed here, or not executable"
        raise McpFailed(endpoint=name, detail=detail)
    if "/" not in command:
        detail = (
            f"{command} is {found}, which is not on the search path of the sandbox; name it by its "
            f"path, with the places that it needs (`holdfast mcp add {name} -- {command} …` "
            "finds them)"
        )
        raise McpFailed(endpoint=name, detail=detail)
    places = (*SYSTEM_PATHS, *endpoint.readable, *endpoint.writable, os.path.realpath(workspace))
    for path in dict.fromkeys((os.path.abspath(found), os.path.realpath(found))):
        if not any(_is_below(path, place) for place in places):
            detail = (
                f"the sandbox cannot read {path}; add its directory to `readable` "
                f"(--readable {os.path.dirname(path)})"
            )
            raise McpFailed(endpoint=name, detail=detail)


def find_cause(endpoint: McpEndpoint, said: str, refusals: Sequence[EgressRefusal]) -> str:
    """Return what a program's complaint comes from, as far as the sandbox is to blame."""
    if refusals:
        shown = [f"{one.target or 'a request'} ({one.because})" for one in refusals[-_SHOWN:]]
        return (
            f"; the proxy refused it {', '.join(dict.fromkeys(shown))}: `holdfast mcp grant` "
            "grants a host, network.yaml and ALLOW_NET have to allow it"
        )
    if endpoint.transport != "stdio" or endpoint.sandbox == "full":
        return ""
    if _NO_NETWORK.search(said) and not endpoint.has_network:
        if endpoint.is_filtered:
            return "; its network is filtered: it has to use the proxy that HTTPS_PROXY names"
        return (
            f"; its sandbox ({endpoint.sandbox}) has no network: give it one with "
            '`sandbox = "read-only-filtered"` and the hosts that it needs (`hosts`)'
        )
    if _NOT_READABLE.search(said):
        return (
            f"; its sandbox ({endpoint.sandbox}) may hide or protect what it needs: see "
            "`readable`, `writable` and `sandbox`"
        )
    return ""


def _is_below(path: str, place: str) -> bool:
    top = place.rstrip("/")
    return path == top or path.startswith(f"{top}/") or path.startswith(f"{os.path.realpath(top)}/")


__all__ = ["check_program", "find_cause"]
