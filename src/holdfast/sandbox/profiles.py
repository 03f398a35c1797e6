"""What commands may do: profiles, limits, and the environment that they see."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from holdfast.errors import UsageError

Profile: TypeAlias = Literal[
    "read-only",
    "read-only-filtered",
    "read-only-network",
    "workspace-write",
    "filtered",
    "network",
    "full",
]
Level: TypeAlias = Literal["bubblewrap", "landlock", "none"]

MIB = 1024 * 1024

# What every command may read besides the workspace: programs, libraries, settings of the
# system. Home directories, /var, /run, /root and other people's files are not here.
SYSTEM_PATHS = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
)
# Where the resolver's settings really are on machines with systemd.
NETWORK_PATHS = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager")

# In a network namespace of its own every port is free, so the proxy is always at the same one.
PROXY_PORT = 3128
_PROXY = f"http://127.0.0.1:{PROXY_PORT}"
_INSIDE = "localhost,127.0.0.1,::1"

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@functools.cache
def _compile_passed() -> re.Pattern[str]:
    return re.compile(
        r"LANG|LANGUAGE|LC_[A-Z]+|TZ|TERM|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|CLICOLOR|CI|PY_COLORS"
        r"|CARGO_TERM_COLOR|RUST_BACKTRACE|NODE_ENV|SOURCE_DATE_EPOCH|DEBIAN_FRONTEND"
    )


# Variables that make programs load or run something; no process may set them by accident.
@functools.cache
def _compile_loaders() -> re.Pattern[str]:
    return re.compile(
        r"LD_.*|DYLD_.*|GCONV_PATH|GLIBC_TUNABLES|MALLOC_.*|PYTHON.*|PERL.*|RUBY.*|GEM_.*|NODE_OPTIONS"
        r"|NODE_PATH|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|JDK_JAVA_OPTIONS|CLASSPATH|GIT_.*|BASH_.*|ENV"
        r"|SHELLOPTS|IFS|PATH|CDPATH|PS[0-4]|PROMPT_COMMAND|EDITOR|VISUAL|PAGER|.*_PAGER|BROWSER"
        r"|LESS.*|MANOPT|TAR_OPTIONS|RIPGREP_CONFIG_PATH|AWKPATH|AWKLIBPATH|LUA_.*|PHPRC|PHP_INI_.*"
        r"|HOSTALIASES|LOCALDOMAIN|RES_OPTIONS|SSH_.*|.*_PROXY|.*_proxy|HOME|TMPDIR|SHELL|USER"
    )


class SandboxLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one command; 0 means that we set none.

    `memory_bytes`, `file_bytes`, `open_files` and `cpu_s` hold for each process,
    `processes` for all of them together. `total_memory_bytes` is what all of them may hold at once,
    `total_disk_bytes` what all commands of one runner may write; both are looked at several times a
    second, and a command that exceeds them is ended. Of the output, head and tail are kept; a
    command that writes more than `flood_factor` times that is ended.
    """

    timeout_s: float = 120.0
    cpu_s: int = 600
    memory_bytes: int = 1536 * MIB
    processes: int = 256
    total_memory_bytes: int = 4096 * MIB
    total_disk_bytes: int = 8192 * MIB
    file_bytes: int = 1024 * MIB
    open_files: int = 1024
    output_bytes: int = MIB
    flood_factor: int = 64


FILTERED: Final[frozenset[Profile]] = frozenset({"filtered", "read-only-filtered"})
"""Profiles that reach the egress proxy, and nothing else."""


def has_network(profile: Profile) -> bool:
    """Say whether a profile reaches the machine's own network, for which no list of hosts holds."""
    return profile in ("network", "read-only-network", "full")


def can_write_workspace(profile: Profile) -> bool:
    """Say whether a profile writes in the workspace."""
    return not profile.startswith("read-only")


def make_proxy_environment() -> dict[str, str]:
    """The variables by which programs find the egress proxy; what is inside is asked directly."""
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    found = {name: _PROXY for upper in names for name in (upper, upper.lower())}
    # Node looks at the variables only when it is told to.
    return {**found, "NO_PROXY": _INSIDE, "no_proxy": _INSIDE, "NODE_USE_ENV_PROXY": "1"}


def clean_environment(given: Mapping[str, str], *, home: str) -> dict[str, str]:
    """The environment of a command: fixed values, and those given that change no behaviour.

    Nothing is inherited. Pagers are `cat`, so that no program starts one; git asks nothing.

    Raises:
        UsageError: a given variable makes programs load or run something.
    """
    for name, value in given.items():
        if _compile_loaders().fullmatch(name) or "=" in name or "\0" in name + value or not name:
            raise UsageError(detail=f"The variable {name!r} cannot be given to commands.")
    return {
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        **given,
        "PATH": PATH,
        "HOME": home,
        "TMPDIR": home,
        "SHELL": "/bin/sh",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def select_passed_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Those variables of an environment that only say how to print."""
    return {name: value for name, value in environment.items() if _compile_passed().fullmatch(name)}


__all__ = [
    "FILTERED",
    "NETWORK_PATHS",
    "PROXY_PORT",
    "SYSTEM_PATHS",
    "Level",
    "Profile",
    "SandboxLimits",
    "can_write_workspace",
    "clean_environment",
    "has_network",
    "make_proxy_environment",
    "select_passed_variables",
]
