"""Which other commands a command may turn out to be: for rules that hold something back.

A rule that denies `rm *` also means `/bin/rm x`, `env rm x`, `xargs rm`, `sh -c 'rm x'` and
`echo $(rm x)`. Looking inside is generous: it may find commands where there are none, which
only asks or denies more. It is no boundary; what a program does once it runs is the
sandbox's part. A rule that allows something never looks inside.
"""

from __future__ import annotations

import functools
import re
import shlex

from holdfast.policy.commands.classify import classify_argv
from holdfast.policy.commands.model import render_canonical_text

# Programs that run what stands in their arguments, as words or as one text.
WRAPPERS = frozenset(
    "ash at bash batch builtin busybox capsh chroot chrt command coproc csh dash do doas elif else "
    "entr env eval exec expect find fd fdfind fish flock if ionice ip ksh ltrace nice nohup "
    "nsenter parallel pkexec prlimit rbash runuser script setarch setpriv setsid sg sh "
    "start-stop-daemon stdbuf strace su sudo systemd-run taskset tcsh then time timeout toybox "
    "trap unshare until watch watchexec while xargs zsh".split()
)
# Where a line that is more than one simple command can begin another one.
_SEAMS = re.compile(r"\$\(|<\(|>\(|[;&|()`{}\n\r<>!]")
_SHELL = re.compile(r"[;&|<>$`\\\n\r(){}*?\[\]~!#\"']")
_VALUE = re.compile(r"-{1,2}[\w.-]*=(.+)|-[a-zA-Z](/.+|\./.+)", re.DOTALL)
_DEEPEST = 4
_MOST_WORDS = 64
_MOST_FOUND = 256


@functools.lru_cache(maxsize=2_048)
def list_inner_commands(text: str) -> tuple[str, ...]:
    """Return what else a command may be or run, each in its one spelling, without itself."""
    found: dict[str, None] = {}
    _look(text, found, 0)
    found.pop(text, None)
    return tuple(found)


def _look(text: str, found: dict[str, None], depth: int) -> None:
    pieces = [text, *_SEAMS.split(text)] if _SHELL.search(text) else [text]
    for piece in pieces:
        words = _split_words(piece)[:_MOST_WORDS]
        while words and re.fullmatch(r"\w+=.*", words[0], re.DOTALL):
            words = words[1:]
        if words and len(found) < _MOST_FOUND:
            _add(words, found, depth)


def _add(words: list[str], found: dict[str, None], depth: int) -> None:
    name = words[0].rpartition("/")[2] or words[0]
    found.setdefault(render_canonical_text((name, *words[1:])))
    if depth >= _DEEPEST or not (name in WRAPPERS or _runs_by_option(words)):
        return
    for at, word in enumerate(words[1:], 1):
        value = _VALUE.fullmatch(word)
        inner = (value[1] or value[2]) if value else word
        if _SHELL.search(inner) or " " in inner:
            _look(inner, found, depth + 1)
        elif not inner.startswith("-"):
            _add([inner, *words[at + 1 :]], found, depth + 1)


def _runs_by_option(words: list[str]) -> bool:
    seen = classify_argv(tuple(words))
    return any(one.kind == "runs-programs" for one in seen.objections)


def _split_words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return [word.strip("'\"\\") for word in text.split()]


__all__ = ["WRAPPERS", "list_inner_commands"]
