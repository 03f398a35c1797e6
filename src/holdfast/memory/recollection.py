"""Memories that fit a budget, as a model may see them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.memory.entry import MemoryEntry
from holdfast.providers import estimate_tokens


class Recollection(msgspec.Struct, frozen=True, kw_only=True):
    """Memories that fit a budget, best first."""

    memories: tuple[MemoryEntry, ...]
    tokens: int
    """Estimate of what they take."""
    left_out: int
    """How many more were found but did not fit."""

    @property
    def text(self) -> str:
        """The memories as lines for a model, marked as material."""
        if not self.memories:
            return ""
        lines = [f"- [{entry.id}] {render_memory(entry)}" for entry in self.memories]
        return "<memories>\n" + "\n".join(lines) + "\n</memories>"


def recollect(found: Sequence[MemoryEntry], budget_tokens: int) -> Recollection:
    """Take the best of some memories, best first, as long as they fit."""
    taken: list[MemoryEntry] = []
    used = 0
    for entry in found:
        cost = estimate_tokens(f"- [{entry.id}] {render_memory(entry)}\n")
        if used + cost <= budget_tokens:
            taken.append(entry)
            used += cost
    return Recollection(memories=tuple(taken), tokens=used, left_out=len(found) - len(taken))


def render_memory(entry: MemoryEntry) -> str:
    """Return the content, after the name of who said it."""
    return f"{entry.speaker}: {entry.content}" if entry.speaker else entry.content


__all__ = ["Recollection", "recollect", "render_memory"]
