"""What all models that wrap another model share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TypeAlias

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


@asynccontextmanager
async def opened(
    model: Model, request: ModelRequest, deltas: bool
) -> AsyncGenerator[AsyncIterator[Delta], None]:
    """Ask a model, and close its stream for certain, however the reading ends."""
    stream = model.stream(request, deltas=deltas)
    try:
        yield stream
    finally:
        # An async generator left half-read is closed some time later by the loop;
        # the connection must be given back now.
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()


def layers(model: Model) -> Iterator[Model]:
    """Yield a model and every model inside it, outermost first."""
    yield model
    inner = getattr(model, "inner", None)
    if inner is not None:
        yield from layers(inner)
    for other in getattr(model, "models", ()):
        yield from layers(other)
