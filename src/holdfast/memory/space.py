"""A vector space: which model made its vectors, and where that model can be asked again."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import msgspec


class VectorSpace(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept beside vectors, so that their embedder can be made again; never a key."""

    model_id: str
    dimension: int = 0
    provider: str = ""
    base_url: str = ""
    """Where the model is asked, without credentials; empty if that is not known."""
    model: str = ""
    """As the server calls it."""


@runtime_checkable
class Addressed(Protocol):
    """An embedder that can say how it is made again."""

    @property
    def space(self) -> VectorSpace:
        """Where its vectors belong; must not hold a key."""
        ...


def find_space(embedder: object) -> VectorSpace | None:
    """Return what to keep beside an embedder's vectors; None if there is nothing to know."""
    if isinstance(embedder, Addressed) and embedder.space.base_url:
        return embedder.space
    return None


__all__ = ["Addressed", "VectorSpace", "find_space"]
