"""The doom loop: the same tool with the same input, again and again."""

from __future__ import annotations

from holdfast.canonical import JsonObject, canonical_json

THRESHOLD = 3


class DoomLoop:
    """Notices the third equal call in a row."""

    def __init__(self) -> None:
        """Start with no call seen."""
        self._last: tuple[str, bytes] = ("", b"")
        self._count = 0

    def is_repeating(self, tool: str, arguments: JsonObject) -> bool:
        """Count a call and say whether it is at least the third equal one in a row."""
        seen = (tool, canonical_json(arguments))
        self._count = self._count + 1 if seen == self._last else 1
        self._last = seen
        return self._count >= THRESHOLD

    def forgive(self) -> None:
        """Start counting anew, after somebody consented."""
        self._count = 0
