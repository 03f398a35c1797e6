"""The way from a client to a runtime in the same process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeVar

from holdfast.operations import (
    OWNER,
    Caller,
    LocalFunction,
    LocalMember,
    Operation,
    StreamOperation,
)
from holdfast.runtime import Runtime

T = TypeVar("T")


class LocalChannel:
    """Performs operations on a runtime that lives here, in the name of one caller."""

    def __init__(self, runtime: Runtime, caller: Caller = OWNER) -> None:
        """Ask this runtime; locally the caller is the owner, and everything is allowed."""
        self.runtime = runtime
        self.caller = caller

    async def call(self, operation: Operation[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Return the answer to one question."""
        if operation.opens:
            await self.runtime.opened()
        return await operation.perform(self.runtime, self.caller, *args, **kwargs)

    async def stream(
        self, operation: StreamOperation[..., T], /, *args: Any, **kwargs: Any
    ) -> AsyncGenerator[T, None]:
        """Yield the answers to one question; leaving early ends what gives them."""
        runtime = await self.runtime.opened()
        items = operation.perform(runtime, self.caller, *args, **kwargs)
        try:
            async for item in items:
                yield item
        finally:
            await items.aclose()

    async def start(
        self, operation: Operation[..., Any], handle: Callable[..., T], /, *args: Any, **kwargs: Any
    ) -> T:
        """Start what goes on, and return a handle to it."""
        return handle(self, await self.call(operation, *args, **kwargs))

    async def local(self, function: LocalFunction[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Call what takes Python objects."""
        if function.opens:
            await self.runtime.opened()
        return await function.function(self.runtime, *args, **kwargs)

    def member(self, member: LocalMember[T]) -> T:
        """Return a method of an object of this process."""
        return member.find(self.runtime)
