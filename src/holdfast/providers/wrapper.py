"""What all models that wrap another model share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from types import AsyncGeneratorType
from typing import TypeAlias

import msgspec

from holdfast.providers.model import Delta, Model, ModelInfo, ModelRequest

Sleep: TypeAlias = Callable[[float], Awaitable[None]]
"""How to wait; tests pass one that moves their clock instead."""


class ModelWrapper:
    """A model around another one; a subclass changes `stream` and nothing else."""

    def __init__(self, inner: Model) -> None:
        """Wrap `inner`; closing the wrapper closes it."""
        self.inner = inner

    @property
    def info(self) -> ModelInfo:
        """What is known about the wrapped model."""
        return self.inner.info

    def count_tokens(self, request: ModelRequest) -> int:
        """Count as the wrapped model counts."""
        return self.inner.count_tokens(request)

    async def close(self) -> None:
        """Close the wrapped model."""
        await self.inner.close()


class opened(msgspec.Struct, eq=False):
    """Ask a model, and close its stream for certain, however the reading ends.

    A class, because every layer of every call enters one: a generator made into a context
    manager would cost as much as the layer itself.
    """

    model: Model
    request: ModelRequest
    deltas: bool
    _stream: AsyncIterator[Delta] | None = None

    async def __aenter__(self) -> AsyncIterator[Delta]:
        """Ask, and give the stream; most models begin only when they are read."""
        self._stream = stream = self.model.stream(self.request, deltas=self.deltas)
        return stream

    def __aexit__(self, *error: object) -> Awaitable[None]:
        """Close the stream now: one left half-read is closed by the loop some time later."""
        assert self._stream is not None
        return closed(self._stream)


def closed(stream: AsyncIterator[Delta]) -> Awaitable[None]:
    """Close what a model has returned, if it is of a kind that can be."""
    if isinstance(stream, AsyncGeneratorType | AsyncGenerator):
        return stream.aclose()
    return _nothing()


async def _nothing() -> None:
    """There is nothing to close."""


def layers(model: Model) -> Iterator[Model]:
    """Yield a model and every model inside it, outermost first."""
    yield model
    inner = getattr(model, "inner", None)
    if inner is not None:
        yield from layers(inner)
    for other in getattr(model, "models", ()):
        yield from layers(other)
