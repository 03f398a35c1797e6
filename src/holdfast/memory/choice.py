"""Which embedder: by its name, and which others made the vectors that are there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.errors import MissingExtra, UsageError
from holdfast.memory.embedder import MemoryEmbedder, NoEmbedder, UnreadyEmbedder
from holdfast.memory.minilm import MiniLmEmbedder
from holdfast.memory.space import VectorSpace
from holdfast.memory.static_vectors import StaticEmbedder, make_default_embedder
from holdfast.providers import Endpoint, strip_address

if TYPE_CHECKING:
    from holdfast.memory.remote_vectors import RemoteEmbedder
    from holdfast.providers import RateLimiter

_LONGEST = 65_536
_LOCAL: dict[str, Callable[[], MemoryEmbedder]] = {
    "static": make_default_embedder,
    "minilm": MiniLmEmbedder,
    "none": lambda: NoEmbedder("The settings want none."),
}


def make_local_embedder(name: str) -> MemoryEmbedder:
    """Return an embedder that runs in this process: `static`, `minilm` or `none`.

    One whose package is not installed is returned too, unready.

    Raises:
        UsageError: there is no such embedder.
    """
    if name not in _LOCAL:
        known = ", ".join(_LOCAL)
        detail = f"There is no embedder {name!r}; use {known} or PROVIDER:MODEL."
        raise UsageError(detail=detail)
    try:
        return _LOCAL[name]()
    except MissingExtra as error:
        return UnreadyEmbedder(MiniLmEmbedder.model_id, MiniLmEmbedder.dimension, error)


async def reopen_local_embedder(space: VectorSpace) -> MemoryEmbedder | None:
    """Return the embedder of a space if it runs in this process; None if it does not.

    Raises:
        MissingExtra: it needs a package that is no longer installed.
    """
    for kind in (StaticEmbedder, MiniLmEmbedder):
        if kind.model_id == space.model_id:
            return kind()
    return None


async def reopen_embedder(space: VectorSpace) -> MemoryEmbedder | None:
    """Return the embedder of a space: a local one, or its server, which is sent no key."""
    local = await reopen_local_embedder(space)
    if local is not None or not space.base_url:
        return local
    address = strip_address(space.base_url)
    return reopen_remote_embedder(space, Endpoint(provider=space.provider, base_url=address))


def reopen_remote_embedder(
    space: VectorSpace, endpoint: Endpoint, limiter: RateLimiter | None = None
) -> RemoteEmbedder | None:
    """Return the embedder of a space that an endpoint serves; None if that cannot be."""
    if not 1 <= space.dimension <= _LONGEST:
        return None
    # One attempt: a search does not wait, and the next one tries again.
    from holdfast.memory.remote_vectors import RemoteEmbedder  # noqa: PLC0415 - loads aiohttp

    return RemoteEmbedder(
        endpoint, space.model, dimension=space.dimension, limiter=limiter, attempts=1
    )


__all__ = [
    "make_local_embedder",
    "reopen_embedder",
    "reopen_local_embedder",
    "reopen_remote_embedder",
]
