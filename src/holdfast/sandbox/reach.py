"""What commands may reach of the file system, and what of that is kept from them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast.sandbox.git_code import list_git_code
from holdfast.sandbox.host_sockets import list_host_sockets
from holdfast.sandbox.unreadable import report_unreadable
from holdfast.sandbox.workspace import Workspace


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """Trees with whether they may be written, and paths in them that are kept from commands.

    `git_code` is what git runs, which commands must not write where that can be had. `pinned`
    are the directories on the way to all of those, which cannot be moved: a path that was moved
    would no longer be kept.
    """

    trees: list[tuple[str, bool]]
    git_code: list[str]
    read_only: list[str]
    hidden: list[str]
    pinned: list[tuple[str, bool]]


def compute_reach(
    workspace: Workspace,
    further: Sequence[tuple[str, bool]],
    *,
    can_write: bool,
    hidden: Iterable[str],
    read_only: Iterable[str],
) -> Reach:
    """Return what commands of a workspace reach right now; may take a walk through it.

    Raises:
        SandboxFailed: the rules of the workspace keep more from them than can be hidden.
    """
    trees = [(path, is_writable and can_write) for path, is_writable in workspace.trees]
    trees += [(path, is_writable) for path, is_writable in further if os.path.exists(path)]
    tops = [os.path.realpath(path) for path, _ in trees]
    concealed = [path for path in map(os.path.realpath, hidden) if _is_there(path, tops)]
    for path, _ in workspace.trees:
        concealed += report_unreadable(path, workspace.rules)
    concealed += list_host_sockets(tops)
    concealed = _keep_outermost(concealed)
    git = list_git_code(workspace.root)
    kept = [path for path in map(os.path.realpath, read_only) if _is_there(path, tops)]
    return Reach(
        trees=trees,
        git_code=git,
        read_only=[path for path in kept if _keep_outermost([*concealed, path]) != concealed],
        hidden=concealed,
        pinned=_list_ways([*git, *concealed, *kept], dict(zip(tops, trees, strict=True))),
    )


def _is_there(path: str, tops: Sequence[str]) -> bool:
    return (path in tops or bool(_find_top(path, tops))) and os.path.exists(path)


def _find_top(path: str, tops: Iterable[str]) -> str:
    """The tree that a path lies in, the innermost one; nothing if it is in none, or one itself."""
    found = [top for top in tops if path.startswith(f"{top.rstrip('/')}/")]
    return max(found, key=len, default="")


def _keep_outermost(paths: Iterable[str]) -> list[str]:
    """Leave out what lies in another one of them."""
    found: list[str] = []
    for path in sorted(set(paths)):
        if not any(path.startswith(f"{one}/") for one in found):
            found.append(path)
    return found


def _list_ways(
    paths: Iterable[str], trees: Mapping[str, tuple[str, bool]]
) -> list[tuple[str, bool]]:
    """The directories between trees and paths in them, outer ones first; with who may write."""
    found: dict[str, bool] = {}
    for path in paths:
        top, above = _find_top(path, trees), os.path.dirname(path)
        while top and len(above) > len(top) and above not in found:
            found[above] = trees[top][1]
            above = os.path.dirname(above)
    return sorted(found.items())


__all__ = ["Reach", "compute_reach"]
