"""The arguments by which bubblewrap builds the view of a profile."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from holdfast.sandbox.reach import Reach

FILTER_FD = 9
# The launcher puts the scratch directory here, which is elsewhere in a view of its own.
SCRATCH = "@scratch"


class View(msgspec.Struct, frozen=True, kw_only=True):
    """Which directories commands see, and how; paths that do not exist are left out."""

    system: Sequence[str]
    reach: Reach
    scratch_target: str
    has_network: bool


def build_bubblewrap_arguments(program: str, view: View) -> list[str]:
    """Wrap whatever follows in namespaces of its own, without any capability."""
    arguments = [program, "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    arguments += ["--unshare-cgroup-try", *([] if view.has_network else ["--unshare-net"])]
    arguments += ["--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    for path in view.system:
        arguments += ["--ro-bind-try", path, path]
    arguments += ["--proc", "/proc", "--dev", "/dev", "--bind", SCRATCH, view.scratch_target]
    for path, can_write in view.reach.trees:
        arguments += ["--bind" if can_write else "--ro-bind", path, path]
    arguments += _list_mounts(view.reach)
    return [*arguments, "--seccomp", str(FILTER_FD)]


def _list_mounts(reach: Reach) -> list[str]:
    arguments: list[str] = []
    for path, can_write in reach.pinned:
        # As writable as the tree around it, but no process can move it away.
        arguments += ["--bind" if can_write else "--ro-bind", path, path]
    for path in [*reach.git_code, *reach.read_only]:
        arguments += ["--ro-bind-try", path, path]
    for path in reach.hidden:
        if os.path.isdir(path):
            arguments += ["--tmpfs", path]
            for inner, can_write in reach.trees:
                if inner.startswith(f"{path.rstrip('/')}/"):
                    # What was given on purpose is seen, although it lies in a hidden place.
                    arguments += ["--bind" if can_write else "--ro-bind", inner, inner]
            arguments += ["--remount-ro", path]
        elif os.path.exists(path):
            arguments += ["--ro-bind", "/dev/null", path]
    return arguments


__all__ = ["FILTER_FD", "SCRATCH", "View", "build_bubblewrap_arguments"]
