"""Compare a program and its arguments with a list of allowed beginnings."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterable

from holdfast.policy.commands.classify import SEVERITY, Classification, classify_argv


def is_allowed_by(argv: tuple[str, ...], allowlist: Iterable[str]) -> bool:
    """Say whether one entry of the list allows this program with these arguments.

    An entry is a beginning, word by word: `git status` allows `git status -s`, but neither
    `git push` nor `git statusx`. It does not allow an option that makes the program do
    something worse than the entry alone would: `find` allows `find . -name x`, not
    `find . -exec rm {} +`; `git` allows `git commit`, not `git -c core.pager=x log`. Where
    the table knows nothing about the options of a program, the entry allows them all:
    whoever writes `pytest` means that.
    """
    if not argv:
        return False
    return any(_allows(entry, argv) for entry in allowlist)


def _allows(entry: str, argv: tuple[str, ...]) -> bool:
    words = _words(entry)
    if not words or argv[: len(words)] != words:
        return False
    alone, asked = _entry_alone(words), classify_argv(argv)
    is_no_worse = SEVERITY[asked.kind] <= SEVERITY[alone.kind]
    if asked.is_by_option:
        return is_no_worse and alone.is_by_option
    return is_no_worse or SEVERITY[alone.kind] >= SEVERITY["runs-programs"]


@functools.lru_cache(maxsize=1024)
def _words(entry: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(entry))
    except ValueError:
        return ()


@functools.lru_cache(maxsize=1024)
def _entry_alone(words: tuple[str, ...]) -> Classification:
    return classify_argv(words)


__all__ = ["is_allowed_by"]
