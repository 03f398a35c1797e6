"""Which embedder: by its name, and which others made the vectors that are there."""

from __future__ import annotations

from collections.abc import Callable, Collection

from holdfast.errors import MissingExtra, UsageError
from holdfast.memory.embedder import MemoryEmbedder, NoEmbedder
from holdfast.memory.minilm import MiniLmEmbedder
from holdfast.memory.static_vectors import StaticEmbedder, default_embedder

_LOCAL: dict[str, Callable[[], MemoryEmbedder]] = {
    "static": default_embedder,
    "minilm": MiniLmEmbedder,
    "none": lambda: NoEmbedder("The settings want none."),
}


def local_embedder(name: str) -> MemoryEmbedder:
    """Return an embedder that runs in this process: `static`, `minilm` or `none`.

    Raises:
        UsageError: there is no such embedder.
        MissingExtra: it needs a package that is not installed.
    """
    if name not in _LOCAL:
        known = ", ".join(_LOCAL)
        detail = f"There is no embedder {name!r}; use {known} or PROVIDER:MODEL."
        raise UsageError(detail=detail)
    return _LOCAL[name]()


def former_embedders(current: MemoryEmbedder, models: Collection[str]) -> list[MemoryEmbedder]:
    """Return local embedders, other than the current one, whose vectors are in a storage.

    With them searches go on by meaning while memories are embedded anew.
    """
    found: list[MemoryEmbedder] = []
    for kind in (StaticEmbedder, MiniLmEmbedder):
        if kind.model_id in models and kind.model_id != current.model_id:
            try:
                found.append(kind())
            except MissingExtra:
                continue  # its vectors wait, unused, to be made anew
    return found


__all__ = ["former_embedders", "local_embedder"]
