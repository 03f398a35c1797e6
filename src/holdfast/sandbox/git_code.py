"""What git runs of its own accord, or is led to: commands must not write it.

Hooks and configuration name programs, which git starts outside every sandbox as soon as a process
looks at the repository. Submodules have their own below `.git/modules`, and git looks into them
too. A file `.git` or `commondir` says that all of it is elsewhere.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Iterator
from contextlib import suppress

_RUN = ("hooks", "config", "config.worktree")
_POINTER = "commondir"
_NO_REPOSITORIES = frozenset({"objects", "refs", "logs", "hooks", "info", "branches"})


def list_git_code(root: str) -> list[str]:
    """Return what there is of it in the repository at a directory."""
    git = f"{root}/.git"
    if os.path.isfile(git):
        return [git]
    found = [f"{path}/{name}" for path, _ in _iterate_repositories(git) for name in _RUN]
    for name in (_POINTER, "config.worktree"):
        found += glob.glob(f"{glob.escape(git)}/worktrees/*/{name}")
    return [path for path in found if os.path.exists(path)]


def list_pointers(root: str) -> frozenset[str]:
    """Return the files in the place of a pointer that would lead git elsewhere."""
    return frozenset(
        path for path, here in _iterate_repositories(f"{root}/.git") if _list_points(here)
    )


def remove_pointers(root: str, before: Collection[str]) -> list[str]:
    """Remove those that were not there before, and return them.

    No git makes one in a repository's own directory, and nothing keeps a command from it.
    """
    removed = []
    for path, here in _iterate_repositories(f"{root}/.git"):
        if path not in before and _list_points(here):
            with suppress(OSError):
                os.unlink(_POINTER, dir_fd=here)
                removed.append(f"{path}/{_POINTER}")
    return removed


def _list_points(here: int) -> bool:
    try:
        os.stat(_POINTER, dir_fd=here, follow_symlinks=False)
    except OSError:
        return False
    return True


def _iterate_repositories(git: str) -> Iterator[tuple[str, int]]:
    """The directory of a repository, and those of its submodules, each open.

    Through no link: another command may still be running, and must not lead us outside.
    """
    with suppress(OSError):
        top = os.open(git, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            yield git, top
            for path, names, files, here in os.fwalk("modules", dir_fd=top):
                if "HEAD" in files:
                    yield f"{git}/{path}", here
                names[:] = [name for name in names if name not in _NO_REPOSITORIES]
        finally:
            os.close(top)


__all__ = ["list_git_code", "list_pointers", "remove_pointers"]
