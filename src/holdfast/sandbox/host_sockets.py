"""Unix sockets of the machine that lie where commands can reach: daemons behind them are outside.

A socket in the workspace (of a development server, a database, an agent with keys) leads out of
every network namespace, because it is found by its path. No filter of system calls can see which
path a program connects to, so the sockets that are there are covered before a command starts.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

_LISTED = "/proc/net/unix"
_PATH_COLUMN = 7
_MOST_ENTRIES = 20_000


def list_host_sockets(tops: Sequence[str]) -> list[str]:
    """Return the sockets below these directories to which something is bound right now.

    The kernel lists them by the name they were bound with. Where a name is relative, nothing says
    relative to what, so the directories are looked through, up to a bound.
    """
    found: list[str] = []
    is_relative = False
    try:
        with open(_LISTED, encoding="utf-8", errors="surrogateescape") as listed:
            lines = listed.readlines()[1:]
    except OSError:
        return _walk_sockets(tops)
    for line in lines:
        fields = line.split(maxsplit=_PATH_COLUMN)
        if len(fields) <= _PATH_COLUMN or fields[_PATH_COLUMN].startswith("@"):
            continue
        name = fields[_PATH_COLUMN].rstrip("\n")
        if not name.startswith("/"):
            is_relative = True
            continue
        real = os.path.realpath(name)
        if any(real.startswith(f"{top}/") for top in tops) and _is_socket(real):
            found.append(real)
    return sorted({*found, *(_walk_sockets(tops) if is_relative else ())})


def _walk_sockets(tops: Sequence[str]) -> list[str]:
    found: list[str] = []
    left = _MOST_ENTRIES
    waiting = list(tops)
    while waiting and left > 0:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    left -= 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif not entry.is_file(follow_symlinks=False) and _is_socket(entry.path):
                        found.append(entry.path)
        except OSError:
            continue
    return found


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


__all__ = ["list_host_sockets"]
