"""The MemoryEmbedder protocol: texts become vectors, and no caller trusts them unseen."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from holdfast.errors import EmbeddingFailed, HoldfastError

if TYPE_CHECKING:
    from holdfast.memory.late_interaction import QueryTokens
    from holdfast.memory.vector_index import Floats


class MemoryEmbedder(Protocol):
    """Turns texts into vectors whose cosine says how near their meaning is.

    Changing the model means another `model_id`: vectors are kept with it and never mixed.
    """

    @property
    def model_id(self) -> str:
        """Name and version of the model; empty means that there are no vectors at all."""
        ...

    @property
    def dimension(self) -> int:
        """Length of every vector."""
        ...

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text, in order; must not block the loop.

        Raises:
            EmbeddingFailed: or any other error; the texts are tried again later.
        """
        ...


class EmbeddedText(NamedTuple):
    """What one pass over a text gives: its vector, and its tokens as they are stored."""

    vector: list[float]
    tokens: bytes


@runtime_checkable
class TokenEmbedder(Protocol):
    """An embedder that also compares token by token: late interaction, for reranking.

    Stored tokens belong to its `model_id`, like vectors, and are never mixed with others.
    """

    async def embed_texts(self, texts: Sequence[str]) -> list[EmbeddedText]:
        """Return vectors and tokens of texts, in order; must not block the loop."""
        ...

    async def embed_query(self, text: str) -> tuple[list[float], QueryTokens]:
        """Return the vector of a query and its token vectors, from one pass."""
        ...

    def compute_max_similarities(self, query: QueryTokens, texts: Sequence[bytes]) -> Floats:
        """Return, texts by query tokens, the similarity of the nearest token of each text.

        Raises:
            ValueError: the bytes are no tokens of this model.
        """
        ...


class NoEmbedder:
    """No vectors: memories are found by their words only."""

    model_id = ""
    dimension = 0

    def __init__(self, reason: str = "", *, missing: HoldfastError | None = None) -> None:
        """Say why there is none; `missing` is what would have to be installed for one."""
        self.reason = reason
        self.missing = missing

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Refuse."""
        raise EmbeddingFailed(model="none", detail=self.reason or "there is no embedder")


class UnreadyEmbedder:
    """Stands for an embedder that lacks something, a key or a package, until it is there.

    Memories are kept and found by their words, and by vectors of other embedders; what waits
    for a vector of this one gets it when it is ready. Nothing is asked of any server.
    """

    def __init__(self, model_id: str, dimension: int, reason: HoldfastError) -> None:
        """Say which one, and what it lacks."""
        self.model_id = model_id
        self.dimension = dimension
        self.reason = reason

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Raise the reason."""
        raise self.reason.with_traceback(None)


def pack_vector(vector: Sequence[float], dimension: int, model: str) -> bytes:
    """Return a vector as unit length, little-endian float16, after looking at it.

    Raises:
        EmbeddingFailed: wrong length, not finite, or no direction at all.
    """
    try:
        if len(vector) != dimension:
            detail = f"a vector of {len(vector)} numbers instead of {dimension}"
            raise EmbeddingFailed(model=model, detail=detail)
        numbers = list(map(float, vector))
        length = math.sqrt(math.fsum(map(operator.mul, numbers, numbers)))
    except (TypeError, ValueError, OverflowError) as error:
        raise EmbeddingFailed(model=model, detail="a vector that is no numbers") from error
    if not math.isfinite(length):
        raise EmbeddingFailed(model=model, detail="a vector with NaN or infinity in it")
    if length < 1e-12:
        raise EmbeddingFailed(model=model, detail="a vector without a direction")
    return struct.pack(f"<{dimension}e", *[number / length for number in numbers])


__all__ = [
    "EmbeddedText",
    "MemoryEmbedder",
    "NoEmbedder",
    "TokenEmbedder",
    "UnreadyEmbedder",
    "pack_vector",
]
