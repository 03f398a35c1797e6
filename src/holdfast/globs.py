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
_FLAGS = re.DOTALL | (re.IGNORECASE if sys.platform == "darwin" else 0)


@functools.lru_cache(maxsize=1_024)
def compile_glob(pattern: str) -> re.Pattern[str]:
    """Return a regular expression that matches whole relative paths.

    Raises:
        UsageError: the pattern is empty, too long, or one of its brackets stays open.
    """
    trimmed = pattern.removeprefix("./").strip("/")
    if not trimmed or len(pattern) > _MAX_LENGTH:
        raise UsageError(detail=f"The glob {pattern[:80]!r} is empty or too long.")
    alternatives = [_translate(one, pattern) for one in _expand(trimmed, pattern)]
    return re.compile("|".join(f"(?:{one})" for one in alternatives), _FLAGS)


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
    # `**/**` says no more than `**`.
    parts = re.sub(r"(?<![^/])\*\*(/\*\*)+(?![^/])", "**", pattern).split("/")
    out = ""
    for index, part in enumerate(parts):
        is_last = index == len(parts) - 1
        if part == "**":
            if is_last:
                # `a/**` is `a` and everything below it; a lone `**` is everything.
                out = out.removesuffix("/") + ("(?:/.*)?" if out else ".*")
            else:
                out += "(?:[^/]+/)*"
        else:
            out += _component(part, whole) + ("" if is_last else "/")
    return out


def _component(part: str, whole: str) -> str:
    out, index = "", 0
    while index < len(part):
        char = part[index]
        index += 1
        if char == "*":
            out += "" if out.endswith("[^/]*") else "[^/]*"
        elif char == "?":
            out += "[^/]"
        elif char == "[":
            end = part.find("]", index + (2 if part[index : index + 1] in ("!", "^") else 1))
            if end < 0:
                raise UsageError(detail=f"The glob {whole!r} has a `[` without a `]`.")
            out += _char_class(part[index:end])
            index = end + 1
        else:
            out += re.escape(char)
    return out


def _char_class(body: str) -> str:
    negated = body[:1] in ("!", "^")
    inner = body[1:] if negated else body
    escaped = re.sub(r"([\\\[\]^&~|])", r"\\\1", inner)
    return f"(?!/)[{'^' if negated else ''}{escaped}]"
