"""Where a project begins, and which of its directories speak for a place in it."""

from __future__ import annotations

import os
from pathlib import Path


def project_root(directory: str | os.PathLike[str]) -> Path:
    """Return the nearest directory upwards that holds `.git`, else the directory itself.

    Outside a repository only the directory counts: a file that somebody left in /tmp or
    in / must not instruct anybody.
    """
    return levels(directory)[-1]


def levels(directory: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Return the directories from a place up to the root of its project, nearest first."""
    return tuple([Path(place) for place in level_names(directory)])


def level_names(directory: str | os.PathLike[str]) -> list[str]:
    """Return the same as texts."""
    found = [os.path.abspath(directory)]
    while not os.path.lexists(os.path.join(found[-1], ".git")):
        above = os.path.dirname(found[-1])
        if above == found[-1]:
            del found[1:]
            break
        found.append(above)
    return found
