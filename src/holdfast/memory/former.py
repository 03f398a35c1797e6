"""Embedders of older vectors: asked as long as vectors of theirs are left, and no longer.

Which models those are stands in the storage, so that another process, or this one after a
restart, knows them too. One that cannot be asked costs its part of the score, not the search.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import EmbeddingFailed, HoldfastError, LLMCircuitOpen
from holdfast.memory.embedder import MemoryEmbedder, pack_vector
from holdfast.memory.space import VectorSpace
from holdfast.memory.storage import MemoryStorage
from holdfast.observability import Logger
from holdfast.providers import BreakerPolicy, CircuitBreaker, Outcome

if TYPE_CHECKING:
    from holdfast.memory.vector_index import Floats

Again: TypeAlias = Callable[[VectorSpace], Awaitable[MemoryEmbedder | None]]
"""Makes the embedder of a space again; None if no caller can."""

PATIENCE_S = 2.0
"""A search does not wait longer for an old embedder."""
READY = "ready"
UNKNOWN = "unknown"
_POLICY = BreakerPolicy(failures_in_row=2, open_s=30.0)
_log = Logger("holdfast.memory")


@runtime_checkable
class _Closes(Protocol):
    async def close(self) -> None: ...


async def make_unit_vector(embedder: MemoryEmbedder, text: str) -> Floats:
    """Return the direction of a text.

    Raises:
        EmbeddingFailed: or whatever else an embedder raises.
    """
    (vector,) = await embedder.embed([text])
    return check_unit_vector(vector, embedder)


def check_unit_vector(vector: Sequence[float], embedder: MemoryEmbedder) -> Floats:
    """Return the direction of a vector as it would be stored; raises EmbeddingFailed."""
    import numpy as np  # noqa: PLC0415 - loaded when used

    data = pack_vector(vector, embedder.dimension, embedder.model_id)
    return np.frombuffer(data, "<f2").astype(np.float32)


def find_code(error: BaseException) -> str:
    """Return a short name of what went wrong, without anything from outside in it."""
    return error.code if isinstance(error, HoldfastError) else type(error).__name__


@dataclass
class Former:
    """One embedder of older vectors, and how it is."""

    space: VectorSpace
    embedder: MemoryEmbedder
    breaker: CircuitBreaker
    is_ours: bool
    state: str = READY

    async def ask(self, text: str, patience_s: float) -> Any:  # noqa: ANN401 - an array, or None
        """Return the direction of a text, or None if that takes too long or does not work."""
        try:
            ticket = self.breaker.enter(self.space.model_id)
        except LLMCircuitOpen:
            return None  # left alone for a while; the state says why
        outcome: Outcome = "unknown"
        try:
            async with asyncio.timeout(patience_s):
                vector = await make_unit_vector(self.embedder, text)
            outcome, self.state = "success", READY
        except Exception as error:  # noqa: BLE001 - a foreign embedder may raise anything
            outcome, self.state = "failure", find_code(error)
            _log.warning("memory.old_embedder", model=self.space.model_id, error=self.state)
            return None
        finally:
            self.breaker.leave(ticket, outcome)
        return vector


class FormerEmbedders:
    """The embedders of all vectors that are not the current one's."""

    def __init__(
        self,
        storage: MemoryStorage,
        current: str,
        given: Sequence[MemoryEmbedder],
        again: Again,
        *,
        patience_s: float = PATIENCE_S,
        clock: Clock = SYSTEM,
    ) -> None:
        """Use those that are given; make the others again."""
        self._storage = storage
        self._current = current
        self._given = {one.model_id: one for one in given if one.model_id}
        self._again = again
        self._clock = clock
        self.patience_s = patience_s
        self._made: dict[str, Former] = {}
        self._unknown: dict[VectorSpace, str] = {}

    @property
    def is_any(self) -> bool:
        """Whether an older embedder is held."""
        return bool(self._made)

    async def list_left(self) -> list[Former]:
        """Return those whose vectors are left and that can be asked; drop all others."""
        if not self._current:
            return []  # no embedder is wanted, so nothing will ever be replaced
        spaces = [one for one in await self._storage.list_spaces() if one.model_id != self._current]
        for model, held in list(self._made.items()):
            if held.space not in spaces:
                del self._made[model]
                await _close(held)
        for space in spaces:
            if space.model_id not in self._made and space not in self._unknown:
                await self._make(space)
        return list(self._made.values())

    async def list_states(self) -> dict[str, str]:
        """Return how the older embedders are, by model: `ready`, or why they are not asked."""
        found = {one.space.model_id: one.state for one in await self.list_left()}
        known = await self._storage.list_spaces()
        unknown = {one.model_id: why for one, why in self._unknown.items() if one in known}
        return {**unknown, **found}

    async def close(self) -> None:
        """Give back what was made here."""
        while self._made:
            await _close(self._made.popitem()[1])

    async def _make(self, space: VectorSpace) -> None:
        given = self._given.get(space.model_id)
        try:
            embedder = given if given is not None else await self._again(space)
        except HoldfastError as error:
            self._unknown[space] = error.code
            return
        if embedder is None:
            self._unknown[space] = UNKNOWN
        elif embedder.model_id != space.model_id:
            self._unknown[space] = EmbeddingFailed.code  # another model than it was then
        elif space.model_id not in self._made:
            breaker = CircuitBreaker(space.model_id, policy=_POLICY, clock=self._clock)
            self._made[space.model_id] = Former(space, embedder, breaker, given is None)


async def _close(former: Former) -> None:
    if former.is_ours and isinstance(former.embedder, _Closes):
        await former.embedder.close()


__all__ = [
    "PATIENCE_S",
    "READY",
    "UNKNOWN",
    "Again",
    "Former",
    "FormerEmbedders",
    "check_unit_vector",
    "make_unit_vector",
]
