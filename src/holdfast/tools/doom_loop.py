"""The doom loop: the same tool with the same input, again and again."""

from __future__ import annotations

from holdfast.canonical import JsonObject, canonical_json

THRESHOLD = 3


class DoomLoop:
    """Notices the third equal call in a row."""

    def __init__(self) -> None:
        """Start with no call seen."""
        self._tool = ""
        self._arguments: JsonObject = {}
        self._count = 0

    def count_and_check(self, tool: str, arguments: JsonObject) -> bool:
        """Count a call and say whether it is at least the third equal one in a row."""
        is_equal = (
            tool == self._tool
            # For Python, 1 is equal to true and to 1.0; for a tool it is not.
            and arguments == self._arguments
            and canonical_json(arguments) == canonical_json(self._arguments)
        )
        self._count = self._count + 1 if is_equal else 1
        self._tool, self._arguments = tool, arguments
        return self._count >= THRESHOLD

    def forgive(self) -> None:
        """Start counting anew, after somebody consented."""
        self._count = 0
