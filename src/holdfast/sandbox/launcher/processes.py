"""End everything that a command started, however it tried to stay."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

_MOST_SWEEPS = 10_000


def end_all(*, is_init: bool) -> None:
    """Kill every process below this one and do not wait for them.

    As the first process of a namespace, the kernel does it in one step. Elsewhere all are
    stopped before any is killed, so that no process forks faster than we look.
    """
    if is_init:
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        return
    stopped: set[int] = set()
    for _ in range(_MOST_SWEEPS):
        found = _list_descendants() - stopped
        if not found:
            break
        for pid in found:
            _signal(pid, signal.SIGSTOP)
        stopped |= found
    for pid in stopped:
        _signal(pid, signal.SIGKILL)


def reap_all(*, is_init: bool) -> None:
    """Return when nothing below this process is left."""
    for _ in range(_MOST_SWEEPS):
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            end_all(is_init=is_init)
            with suppress(ChildProcessError):
                os.waitpid(-1, 0)


def _list_descendants() -> set[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            parent = _find_parent(name)
            if parent:
                children.setdefault(parent, []).append(int(name))
    found: set[int] = set()
    todo = [os.getpid()]
    while todo:
        below = children.get(todo.pop(), [])
        todo += below
        found.update(below)
    return found


def _find_parent(pid: str) -> int:
    """The parent of a process that still runs, or 0."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            state, parent = stream.read().rpartition(b")")[2].split()[:2]
    except (OSError, ValueError):
        return 0
    return 0 if state in (b"Z", b"X") else int(parent)


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


__all__ = ["end_all", "reap_all"]
