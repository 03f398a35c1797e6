"""Compare a program and its arguments with a list of allowed beginnings."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Iterable
from typing import TypeAlias

from holdfast.policy.commands.classify import NOWHERE, SEVERITY, classify_argv
from holdfast.policy.commands.wrappers import started_by

Judge: TypeAlias = Callable[[tuple[str, ...]], bool]
"""Says whether a command that another one starts is allowed by itself."""


def is_allowed_by(argv: tuple[str, ...], allowlist: Iterable[str]) -> bool:
    """Say whether one entry of the list allows this program with these arguments.

    An entry is a beginning, word by word: `git status` allows `git status -s`, but neither
    `git push` nor `git statusx`. It does not allow an option that makes the program do
    something worse than the entry alone would: `find` allows `find . -name x`, not
    `find . -exec rm {} +`; `git` allows `git commit`, not `git -c core.pager=x log`. Where
    the table knows nothing about the options of a program, the entry allows them all:
    whoever writes `pytest` means that. What a program starts as its arguments (`env rm x`,
    `timeout 5 rm x`) needs an entry of its own, or stands in the entry.
    """
    entries = [words for words in map(_split_words, allowlist) if words]

    def is_allowed(wanted: tuple[str, ...]) -> bool:
        return bool(wanted) and any(
            wanted[: len(words)] == words and is_covered_by(words, wanted, is_allowed)
            for words in entries
        )

    return is_allowed(argv)


def is_covered_by(words: tuple[str, ...], argv: tuple[str, ...], is_allowed: Judge) -> bool:
    """Say whether words that somebody allowed also mean the rest of a command.

    They mean no option that makes it worse. They mean a command that it starts where they name
    it themselves (`timeout 60 pytest` means `timeout 60 pytest -x`), or where that command is
    allowed by itself; never one that cannot be read.
    """
    if not is_no_worse(words, argv):
        return False
    return words == argv or all(
        _is_started_allowed(
            words[one.place :], one.argv, _allow_nothing if one.is_foreign else is_allowed
        )
        for one in started_by(argv)
    )


def _allow_nothing(_argv: tuple[str, ...]) -> bool:
    return False


def _is_started_allowed(named: tuple[str, ...], argv: tuple[str, ...], is_allowed: Judge) -> bool:
    if not argv:
        return False
    if named and argv[: len(named)] == named:
        return is_covered_by(named, argv, is_allowed)
    return is_allowed(argv)


def is_no_worse(words: tuple[str, ...], argv: tuple[str, ...]) -> bool:
    """Say whether a command does nothing worse than its first words, which an approver allowed.

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
def _split_words(entry: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(entry))
    except ValueError:
        return ()


__all__ = ["Judge", "is_allowed_by", "is_covered_by", "is_no_worse"]
