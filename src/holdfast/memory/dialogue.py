"""Dialogue in plain lines: `Name: text` without any metadata, as most people store it.

A label at the beginning of a line is taken for a speaker only where it recurs among the
lines stored around it. What stands alone stays as it is: nothing is guessed from one note.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import msgspec

WINDOW = 8
"""So many lines of a session are looked at, the new one included."""
_LEAST = 3
"""Fewer lines are no conversation."""
_LABEL = re.compile(r"\s{0,4}(?P<name>[^\W\d_][^\n:]{0,38}?)\s?[:\uff1a](?:\s+|(?<=\uff1a))(?=\S)")
_WORD = re.compile(r"[^\W\d_][\w.'\u2019-]*", re.UNICODE)
_ROLES = frozenset("user assistant system human ai bot agent customer support".split())
_NO_NAMES = frozenset(
    "note notes todo fixme error errors warning warnings info debug trace fatal hint tip tips "
    "update updates reminder reminders important summary question answer example examples "
    "see source title subject topic date time key value result results output input step steps "
    "fact facts decision decisions action actions goal goals task tasks issue bug fix caution "
    "attention ps nb http https file url path id name version status changelog default usage "
    "returns raises args".split()
)


class StoredLine(msgspec.Struct, frozen=True, array_like=True):
    """A line that was stored before, without a speaker that any caller named."""

    row: int
    content: str
    speaker: str
    """Whom it was taken to be said by so far; empty if no caller."""


class Inferred(msgspec.Struct, frozen=True):
    """What a new line makes known."""

    speaker: str
    """Who says it; empty if it is taken for no part of a conversation."""
    follows: int | None
    """The line before it in the conversation."""
    earlier: tuple[tuple[int, str, int | None], ...]
    """Earlier lines that turn out to be turns: row, speaker, and the line before each."""


NOTHING = Inferred("", None, ())


def describe_label(content: str) -> str:
    """Return the name before the first colon if a speaker could be called so; empty if not."""
    found = _LABEL.match(content)
    if found is None:
        return ""
    name = found["name"].strip()
    words = name.split()
    if not 1 <= len(words) <= 3 or name.casefold() in _NO_NAMES:
        return ""
    if name.casefold() in _ROLES:
        return name
    is_name = all(_WORD.fullmatch(word) and not word[0].islower() for word in words)
    return name if is_name and words[0].casefold() not in _NO_NAMES else ""


def drop_label(content: str) -> str:
    """Return a line without its label, if it has one."""
    if not describe_label(content):
        return content
    found = _LABEL.match(content)
    assert found is not None
    return content[found.end() :]


def infer_turn(content: str, before: Sequence[StoredLine]) -> Inferred:
    """Say who says a new line, from the lines stored before it in its session, newest first.

    The lines up to the last one without a label count as one conversation if there are at
    least three and a label occurs twice among them.
    """
    label = describe_label(content)
    if not label:
        return NOTHING
    lines: list[tuple[StoredLine, str]] = []
    for line in before[: WINDOW - 1]:
        own = line.speaker or describe_label(line.content)
        if not own:
            break
        lines.append((line, own))
    counts = Counter([label, *(own for _, own in lines)])
    if len(lines) + 1 < _LEAST or max(counts.values()) < 2:
        return NOTHING
    earlier = []
    for number, (line, own) in enumerate(lines):
        if not line.speaker:
            follows = lines[number + 1][0].row if number + 1 < len(lines) else None
            earlier.append((line.row, own, follows))
    return Inferred(label, lines[0][0].row, tuple(earlier))


__all__ = [
    "NOTHING",
    "WINDOW",
    "Inferred",
    "StoredLine",
    "describe_label",
    "infer_turn",
    "drop_label",
]
