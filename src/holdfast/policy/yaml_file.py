"""A YAML file as plain data, with the line of every value.

The one reader of YAML, for policies, workflows, hooks, skills and agents of any author. Only
what such a file needs is taken: maps with string keys, lists, strings, numbers, booleans
and null. Tags, anchors and aliases, several documents, keys that occur twice, and files
that are too large or too deep are refused with their line.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

Place: TypeAlias = tuple[str | int, ...]


class YamlData(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a file, the line of each place in it, and what is wrong with it."""

    content: object
    lines: dict[Place, int]
    mistakes: tuple[tuple[int, str], ...] = ()

    def find_line(self, place: Place) -> int:
        """Return the line of a place, or of the nearest place around it."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)


def parse_yaml(text: str, *, is_text_kept: bool = False) -> YamlData:
    """Read YAML; mistakes are returned, never raised.

    With `is_text_kept` every scalar stays the text that was written (`no`, `1.0`, nothing),
    for files whose authors do not think of types.
    """
    from holdfast.policy.yaml_reader import read_yaml  # noqa: PLC0415 - yaml takes 30 ms

    return read_yaml(text, is_text_kept=is_text_kept)
