"""Replace exact text, or say precisely why not. Pure: text in, text out."""

from __future__ import annotations

import difflib
from collections import Counter

from holdfast.errors import TellModel
from holdfast.tools.encoding import is_uniform_crlf

_MAX_NAMED = 20
_MAX_COMPARED = 5_000
_MAX_SHOWN = 40


def replace_exactly(text: str, old: str, new: str, *, replace_all: bool = False) -> str:
    """Return the text with `old` replaced by `new`.

    In a file whose lines all end in CRLF, `old` and `new` may be written with plain
    line feeds; the result has CRLF throughout.

    Raises:
        TellModel: `old` does not occur (the nearest text is shown), occurs more than
            once without `replace_all` (the lines are named), or nothing would change.
    """
    if not old:
        raise TellModel("old_string is empty. Give the exact text to replace, or use `write`.")
    if old == new:
        raise TellModel("old_string and new_string are the same; nothing would change.")
    if is_uniform_crlf(text):
        plain = _replace(
            _normalize_newlines(text),
            _normalize_newlines(old),
            _normalize_newlines(new),
            replace_all=replace_all,
        )
        return plain.replace("\n", "\r\n")
    return _replace(text, old, new, replace_all=replace_all)


def _replace(text: str, old: str, new: str, *, replace_all: bool) -> str:
    starts = _find_occurrences(text, old)
    if not starts:
        raise TellModel(_explain_not_found(text, old))
    if replace_all:
        return text.replace(old, new)
    if len(starts) > 1:
        raise TellModel(_explain_ambiguous(text, starts))
    return text[: starts[0]] + new + text[starts[0] + len(old) :]


def _normalize_newlines(text: str) -> str:
    return text.replace("\r\n", "\n")


def _find_occurrences(text: str, old: str) -> list[int]:
    """Where the text occurs, overlapping places included: each of them could be meant."""
    starts: list[int] = []
    start = text.find(old)
    while start >= 0 and len(starts) <= _MAX_NAMED:
        starts.append(start)
        start = text.find(old, start + 1)
    return starts


def _explain_ambiguous(text: str, starts: list[int]) -> str:
    numbers = [str(text.count("\n", 0, start) + 1) for start in starts[:_MAX_NAMED]]
    more = " and more" if len(starts) > _MAX_NAMED else ""
    return (
        f"old_string occurs more than once: at lines {', '.join(numbers)}{more}. "
        "Add lines around it to make it unique, or set replace_all."
    )


def _explain_not_found(text: str, old: str) -> str:
    start = _find_nearest(text.split("\n"), old.split("\n"))
    if start is None:
        return "old_string does not occur in the file, nor does anything like it. Read it again."
    lines = text.split("\n")
    count = min(max(1, len(old.strip("\n").split("\n"))), _MAX_SHOWN)
    window = lines[start : start + count]
    shown = "\n".join(f"{start + n + 1:>6}\t{line[:500]}" for n, line in enumerate(window))
    why = _describe_difference("\n".join(window), old)
    return (
        f"old_string does not occur in the file.{why} "
        f"The nearest text is at lines {start + 1}-{start + len(window)}:\n{shown}"
    )


def _describe_difference(found: str, old: str) -> str:
    if found.split() == old.split():
        return " It differs only in white space (indentation, tabs or line breaks)."
    if found.strip().lower() == old.strip().lower():
        return " It differs only in capital letters."
    return ""


def _find_nearest(lines: list[str], wanted: list[str]) -> int | None:
    """The line where the text most likely is: by lines that agree, else by likeness."""
    places: dict[str, list[int]] = {}
    for index, line in enumerate(lines):
        places.setdefault(_make_key(line), []).append(index)
    votes: Counter[int] = Counter()
    first = next((n for n, line in enumerate(wanted) if line.strip()), 0)
    for offset, line in enumerate(wanted[:200]):
        key = _make_key(line)
        for index in places.get(key, ())[:50] if len(key) > 1 else ():
            votes[max(0, index - offset + first)] += len(key)
    if votes:
        return min(votes, key=lambda start: (-votes[start], start))
    candidates = [line for line in list(places)[:_MAX_COMPARED] if line]
    close = difflib.get_close_matches(_make_key(wanted[first]), candidates, n=1, cutoff=0.5)
    return places[close[0]][0] if close else None


def _make_key(line: str) -> str:
    """A line without what people get wrong: indentation and capitals."""
    return line.strip()[:500].casefold()
