"""Where a project begins, and which of its directories speak for a place in it."""

from __future__ import annotations

import os
from pathlib import Path


def project_root(directory: str | os.PathLike[str]) -> Path:
    """Return the nearest directory upwards that holds `.git`, else the directory itself.

    Outside a repository only the directory counts: a file that somebody left in /tmp or
    in / must not instruct anybody.
    """
    here = Path(os.path.abspath(directory))
    for place in (here, *here.parents):
        if os.path.lexists(place / ".git"):
            return place
    return here


def levels(directory: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Return the directories from a place up to the root of its project, nearest first."""
    here = Path(os.path.abspath(directory))
    root = project_root(here)
    found = [here]
    while found[-1] != root:
        found.append(found[-1].parent)
    return tuple(found)
