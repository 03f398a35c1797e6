"""A channel on which everything travels as JSON, as it would over a network."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeVar

import msgspec

from holdfast.errors import HoldfastError, UsageError
from holdfast.operations import (
    Caller,
    LocalFunction,
    LocalMember,
    Operation,
    Problem,
    StreamOperation,
    decode_answer,
    encode_answer,
)
from holdfast.runtime import Runtime

T = TypeVar("T")


class JsonChannel:
    """Asks a runtime; nothing but bytes passes between the two sides."""

    def __init__(self, runtime: Runtime, caller: Caller) -> None:
        self.runtime = runtime
        self.caller = caller
        self.performed: set[str] = set()
        self.refused: list[HoldfastError] = []

    async def call(self, operation: Operation[..., T], /, *args: Any, **kwargs: Any) -> T:
        asked = _sent(operation, operation.make_request(*args, **kwargs))
        try:
            answer = await operation.perform(self.runtime, self.caller, **asked)
        except HoldfastError as error:
            raise self._received(error) from error
        self.performed.add(operation.name)
        return _received(operation, answer)

    async def stream(
        self, operation: StreamOperation[..., T], /, *args: Any, **kwargs: Any
    ) -> AsyncGenerator[T, None]:
        asked = _sent(operation, operation.make_request(*args, **kwargs))
        items = operation.perform(self.runtime, self.caller, **asked)
        try:
            async for item in items:
                self.performed.add(operation.name)
                yield _received(operation, item)
        except HoldfastError as error:
            raise self._received(error) from error
        finally:
            await items.aclose()

    async def start(
        self, operation: Operation[..., Any], handle: Callable[..., T], /, *args: Any, **kwargs: Any
    ) -> T:
        return handle(self, await self.call(operation, *args, **kwargs))

    async def local(self, function: LocalFunction[..., T], /, *args: Any, **kwargs: Any) -> T:
        raise UsageError(detail=function.instead)

    def member(self, member: LocalMember[T]) -> T:
        raise UsageError(detail=member.instead)

    def _received(self, error: HoldfastError) -> HoldfastError:
        """Return an error as it arrives on the other side: of the same class."""
        sent = msgspec.json.encode(Problem.of(error))
        arrived = msgspec.json.decode(sent, type=Problem).to_error()
        assert type(arrived) is type(error)
        assert (str(arrived), arrived.hint) == (str(error), error.hint)
        self.refused.append(arrived)
        return arrived


def _sent(operation: Any, request: msgspec.Struct) -> dict[str, Any]:
    arrived = msgspec.json.decode(msgspec.json.encode(request), type=operation.request)
    assert arrived == request
    return msgspec.structs.asdict(arrived)


def _received(operation: Any, answer: Any) -> Any:
    arrived = decode_answer(operation, encode_answer(answer))
    assert arrived == answer, operation.name
    return arrived
