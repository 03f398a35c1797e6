"""Say what changed between two texts, in bounded time and space."""

from __future__ import annotations

import difflib

import msgspec

_CONTEXT = 3
_MAX_COMPARED = 4_000
_MAX_SHOWN = 400


class Diff(msgspec.Struct, frozen=True, kw_only=True):
    """A unified diff, cut if it is long, and how many lines came and went."""

    text: str
    added: int
    removed: int


def make_unified_diff(before: str, after: str, path: str) -> Diff:
    """Compare two texts; a new file has an empty `before`."""
    old, new = before.splitlines(), after.splitlines()
    start = _find_common(old, new)
    end = _find_common(old[start:][::-1], new[start:][::-1])
    old_middle, new_middle = old[start : len(old) - end], new[start : len(new) - end]
    if len(old_middle) + len(new_middle) > _MAX_COMPARED:
        summary = f"({len(old_middle)} lines replaced by {len(new_middle)} from line {start + 1})"
        return Diff(text=summary, added=len(new_middle), removed=len(old_middle))
    first, last = max(0, start - _CONTEXT), max(0, end - _CONTEXT)
    lines = list(
        difflib.unified_diff(
            old[first : len(old) - last],
            new[first : len(new) - last],
            f"a/{path}",
            f"b/{path}",
            lineterm="",
            n=_CONTEXT,
        )
    )
    added = sum(line.startswith("+") for line in lines[2:])
    removed = sum(line.startswith("-") for line in lines[2:])
    shown = [_shift(line, first) for line in lines]
    if len(shown) > _MAX_SHOWN:
        shown = [*shown[:_MAX_SHOWN], f"(diff cut; {len(shown) - _MAX_SHOWN} lines more)"]
    return Diff(text="\n".join(shown), added=added, removed=removed)


def _find_common(one: list[str], two: list[str]) -> int:
    """How many lines agree from the beginning."""
    count = 0
    for left, right in zip(one, two, strict=False):
        if left != right:
            break
        count += 1
    return count


def _shift(line: str, by: int) -> str:
    """Correct the line numbers of a hunk, because only the middle was compared."""
    if not line.startswith("@@ ") or by == 0:
        return line
    _, old, new, _ = line.split(" ", 3)
    return f"@@ {_move(old, by)} {_move(new, by)} @@"


def _move(span: str, by: int) -> str:
    start, comma, length = span[1:].partition(",")
    return f"{span[0]}{int(start) + by}{comma}{length}"
