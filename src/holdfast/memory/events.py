"""The facts of memory, without content: what is forgotten must not live on in the journal."""

from __future__ import annotations

from holdfast.journal import Payload, payload


@payload("memory.stored", is_open=True, is_inherited=False)
class MemoryStored(Payload, frozen=True, kw_only=True):
    """A memory was stored."""

    memory_id: str
    scope: str
    memory_kind: str


@payload("memory.superseded", is_open=True, is_inherited=False)
class MemorySuperseded(Payload, frozen=True, kw_only=True):
    """A memory was replaced by a newer truth; the old one is kept."""

    memory_id: str
    superseded_by: str


@payload("memory.forgotten", is_open=True, is_inherited=False)
class MemoryForgotten(Payload, frozen=True, kw_only=True):
    """Memories were removed for good."""

    memory_ids: tuple[str, ...]
    reason: str


@payload("memory.recalled", is_open=True, is_inherited=False)
class MemoryRecalled(Payload, frozen=True, kw_only=True):
    """Memories were put before a model, with their scores."""

    memory_ids: tuple[str, ...]
    scores: tuple[float, ...]
    tokens: int


__all__ = ["MemoryForgotten", "MemoryRecalled", "MemoryStored", "MemorySuperseded"]
