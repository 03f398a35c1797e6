"""Globs over paths that are relative to a root, with `**` meaning what people expect.

`*` and `?` stay inside one path component and match leading dots too. `**/` stands for
any number of directories, none included, so `**/*.py` matches `a.py`. A trailing `/**`
stands for the directory and all below it, so `**/.git/**` covers `.git` and
`.git/config`. `[a-z]`, `[!a-z]` and `{one,two}` work as in a shell.
"""

from __future__ import annotations

import functools
import re
import sys

from holdfast.errors import UsageError

_MAX_LENGTH = 1_000
_MAX_BRACES = 256
FLAGS = re.DOTALL | (re.IGNORECASE if sys.platform == "darwin" else 0)


@functools.lru_cache(maxsize=1_024)
def compile_glob(pattern: str) -> re.Pattern[str]:
    """Return a regular expression that matches whole relative paths.

    Raises:
        UsageError: the pattern is empty, too long, or one of its brackets is wrong.
    """
    return re.compile(glob_source(pattern), FLAGS)


@functools.lru_cache(maxsize=1_024)
def glob_source(pattern: str) -> str:
    """Return the text of that regular expression, without capturing groups.

    Its time grows with the length of a path, never with a power of it: stars take the
    first place where what follows fits, because no later one could do better.

    Raises:
        UsageError: the pattern is empty, too long, or one of its brackets is wrong.
    """
    trimmed = pattern.removeprefix("./").strip("/")
    if not trimmed or len(pattern) > _MAX_LENGTH:
        raise UsageError(detail=f"The glob {pattern[:80]!r} is empty or too long.")
    alternatives = [_translate(one, pattern) for one in _expand(trimmed, pattern)]
    source = "|".join(f"(?:{one})" for one in alternatives)
    try:
        re.compile(source, FLAGS)
    except re.error as error:
        raise UsageError(detail=f"The glob {pattern!r} cannot be read: {error}.") from error
    return f"(?:{source})"


def matches(path: str, pattern: str) -> bool:
    """Say whether a relative path matches a glob."""
    return compile_glob(pattern).fullmatch(path) is not None


def _expand(pattern: str, whole: str) -> list[str]:
    """Spell out `{a,b}`, innermost first, so that nesting works."""
    waiting = [pattern]
    done: list[str] = []
    while waiting:
        if len(waiting) + len(done) > _MAX_BRACES:
            raise UsageError(detail=f"The glob {whole!r} has too many alternatives.")
        one = waiting.pop()
        found = re.search(r"\{([^{}]*,[^{}]*)\}", one)
        if found is None:
            done.append(one)
        else:
            head, tail = one[: found.start()], one[found.end() :]
            waiting.extend(head + choice + tail for choice in found[1].split(","))
    return done


def _translate(pattern: str, whole: str) -> str:
    """The parts between `**` are runs of components; all but the last settle at once."""
    runs: list[list[str]] = [[]]
    for part in pattern.split("/"):
        if part == "**":
            runs.append([])
        else:
            runs[-1].append(_translate_component(part, whole))
    first, *rest = ["/".join(run) for run in runs]
    if not rest:
        return first
    middle, last = [run for run in rest[:-1] if run], rest[-1]
    head = f"{first}/" if first else ""
    if last:
        return f"{head}{_settle(middle)}(?:[^/]+/)*{last}"
    if middle:
        # `**/a/**` is `a` itself, anywhere, and everything below it.
        return f"{head}{_settle(middle[:-1])}(?:[^/]+/)*{middle[-1]}(?:/.*)?"
    # `a/**` is `a` and everything below it; a lone `**` is everything.
    return f"{first}(?:/.*)?" if first else ".*"


def _settle(runs: list[str]) -> str:
    return "".join(f"(?>(?:[^/]+/)*?{run}/)" for run in runs)


def _translate_component(part: str, whole: str) -> str:
    """One path component; its stars settle like those between components."""
    pieces: list[str] = [""]
    index = 0
    while index < len(part):
        char = part[index]
        index += 1
        if char == "*":
            if pieces[-1] or len(pieces) == 1:
                pieces.append("")
        elif char == "?":
            pieces[-1] += "[^/]"
        elif char == "[":
            end = part.find("]", index + (2 if part[index : index + 1] in ("!", "^") else 1))
            if end < 0:
                raise UsageError(detail=f"The glob {whole!r} has a `[` without a `]`.")
            pieces[-1] += _translate_char_class(part[index:end])
            index = end + 1
        else:
            pieces[-1] += re.escape(char)
    first, *rest = pieces
    if not rest:
        return first
    settled = "".join(f"(?>[^/]*?{piece})" for piece in rest[:-1])
    return f"{first}{settled}[^/]*{rest[-1]}"


def _translate_char_class(body: str) -> str:
    negated = body[:1] in ("!", "^")
    inner = body[1:] if negated else body
    escaped = re.sub(r"([\\\[\]^&~|])", r"\\\1", inner)
    return f"(?!/)[{'^' if negated else ''}{escaped}]"
