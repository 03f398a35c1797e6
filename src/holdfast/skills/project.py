"""Where a project begins, and which of its directories speak for a place in it."""

from __future__ import annotations

import functools
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


def level_names(directory: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the same as texts."""
    place = os.fspath(directory)
    above, marks = _upwards(place if place.startswith(os.sep) else os.path.abspath(place))
    for count, mark in enumerate(marks, 1):
        if os.path.lexists(mark):
            return above[:count]
    return above[:1]


@functools.lru_cache(maxsize=1_024)
def _upwards(place: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A directory and all above it, and what marks each of them as the root of a repository."""
    found = [os.path.abspath(place)]
    while (above := os.path.dirname(found[-1])) != found[-1]:
        found.append(above)
    return tuple(found), tuple([os.path.join(name, ".git") for name in found])
