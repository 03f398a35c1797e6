"""Compare a program and its arguments with a list of allowed beginnings."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterable

from holdfast.policy.commands.classify import NOWHERE, SEVERITY, classify_argv


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
    return bool(words) and argv[: len(words)] == words and is_no_worse(words, argv)


def is_no_worse(words: tuple[str, ...], argv: tuple[str, ...]) -> bool:
    """Say whether a command does nothing worse than its first words, which somebody allowed.

    What those words say is covered by them; an option that makes a program worse and stands
    behind them is not. No words at all cover any program, but none of its risky options.
    """
    if not argv:
        return False  # a line of spaces is no command
    asked = classify_argv(argv)
    alone = classify_argv(words) if words else None
    told = {one.because for one in alone.objections} if alone is not None else set()
    for one in asked.objections:
        if one.place == NOWHERE and one.because not in told:
            return False
        if one.place >= max(1, len(words)):
            return False
    if alone is None or asked.objections:
        return True
    is_worse = SEVERITY[asked.kind] > SEVERITY[alone.kind]
    return not is_worse or SEVERITY[alone.kind] >= SEVERITY["runs-programs"]


@functools.lru_cache(maxsize=1024)
def _words(entry: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(entry))
    except ValueError:
        return ()


__all__ = ["is_allowed_by", "is_no_worse"]
