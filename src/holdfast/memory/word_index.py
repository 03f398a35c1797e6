"""What ranking by words needs of a place, in plain objects: `VectorIndex` without numpy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.memory.storage import IndexRow, MemoryPlace

_ROW_BYTES = 400
"""Roughly, of a row with what it refers to."""


class WordIndex:
    """All memories of some places by row, and which turn follows which."""

    dimension = 0
    is_whole = True
    has_vectors = False

    def __init__(self) -> None:
        """Start empty."""
        self.revisions: dict[MemoryPlace, int] = {}
        self.rows: dict[int, IndexRow] = {}
        self.substance: dict[int, float] = {}
        self.following: dict[int, int] = {}
        """By row, the turn after it, the newest if several."""
        self.speakers: dict[str, int] = {}
        self.sessions: dict[str, int] = {}

    def apply(self, changes: Sequence[IndexRow]) -> None:
        """Take over changes; of several of one memory, the last one counts."""
        is_moved = False
        for change in sorted(changes, key=lambda one: one.revision):
            before = self.rows.get(change.row)
            is_moved |= before is not None and before.previous != change.previous
            self.rows[change.row] = change
            self.substance[change.row] = measure_substance(change)
            self.speakers.setdefault(change.speaker, len(self.speakers))
            self.sessions.setdefault(change.session_id, len(self.sessions))
            self._follow(change)
        if is_moved:
            self.following.clear()
            for row in self.rows.values():
                self._follow(row)

    def _follow(self, row: IndexRow) -> None:
        if row.previous is not None:
            self.following[row.previous] = max(row.row, self.following.get(row.previous, -1))

    @property
    def nbytes(self) -> int:
        """Memory that it takes, roughly."""
        return _ROW_BYTES * len(self.rows)


def measure_substance(row: IndexRow) -> float:
    """Say how much an utterance is likely to tell: long ones more, questions less.

    Around 0 for a sentence of 60 characters; 0 for everything that no speaker said.
    """
    if not row.speaker or not row.characters:
        return 0.0
    length = math.log(row.characters / 60.0) / 2.0
    return min(max(length, -1.0), 1.0) - (0.85 if row.is_question else 0.0)


__all__ = ["WordIndex", "measure_substance"]
