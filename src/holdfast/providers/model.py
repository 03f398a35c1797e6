"""The narrow waist: what a model is asked, what it answers, how it is called or wrapped.

Vendor-neutral. Everything above speaks to `Model`; everything vendor-specific lives
below it.
"""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from contextvars import ContextVar, Token
from types import AsyncGeneratorType
from typing import Literal, Protocol, TypeAlias

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import LLMInputUnsupported
from holdfast.messages import FilePart, InputKind, Message, ToolSpec, find_input_kind
from holdfast.providers.events import ProviderEvent

ToolChoice: TypeAlias = Literal["auto", "none", "required"]
ToolMode: TypeAlias = Literal["native", "json_schema", "prompted"]


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Everything one model call needs; `None` leaves a choice to the provider."""

    messages: Sequence[Message]
    system: str = ""
    changing: int = 0
    """So many characters at the end of `system` are another with each turn, and not cached."""
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice | str = "auto"
    """`auto`, `none`, `required`, or the name of the one tool that must be called."""
    output_schema: JsonObject | None = None
    output_name: str = "answer"
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    stop: tuple[str, ...] = ()
    reasoning_effort: str = ""
    options: JsonObject = msgspec.field(default_factory=dict)
    """Provider-specific fields, sent as they are."""


class TextDelta(msgspec.Struct, frozen=True, gc=False, tag="text"):
    """A piece of the answer's text."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, gc=False, tag="reasoning"):
    """A piece of the model's reasoning."""

    text: str


class ToolCallDelta(msgspec.Struct, frozen=True, gc=False, tag="tool_call"):
    """A tool call begins (`name` set) or its arguments grow; `index` tells calls apart."""

    index: int
    call_id: str
    name: str
    arguments: str


class Restarted(msgspec.Struct, frozen=True, tag="restarted"):
    """The answer begins anew: drop every delta seen before this one.

    Sent by the layers that retry or fall back when a stream broke after its first
    delta. A wire never sends it. `reason` is the code of the error that broke the
    stream; `model` is the one that answers now.
    """

    reason: str
    provider: str = ""
    model: str = ""


class Finished(msgspec.Struct, frozen=True, gc=False, tag="finished"):
    """The whole answer, always the last delta; only this one is kept.

    `message.stop_reason` is one of stop, length, tool_calls, filtered. `request_id` is
    the provider's own id of the call.
    """

    message: Message
    request_id: str = ""


Delta: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta | Restarted | Finished


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a model."""

    provider: str
    model: str
    context_window: int = 128_000
    max_output_tokens: int = 8_192
    tool_mode: ToolMode = "native"
    is_llm: bool = True
    """False for the built-in offline model, which only follows fixed rules."""
    fallbacks: tuple[ModelInfo, ...] = ()
    """Other models that may answer in its place."""
    inputs: tuple[InputKind, ...] = ("text", "image", "audio", "file")
    """What messages to it may hold; what its provider does not say counts as taken."""

    def check_inputs(self, parts: Iterable[object]) -> None:
        """Return if the model takes the files among some parts.

        Raises:
            LLMInputUnsupported: it does not.
        """
        for part in parts:
            if isinstance(part, FilePart) and (kind := find_input_kind(part)) not in self.inputs:
                raise LLMInputUnsupported(
                    provider=self.provider, model=self.model, kind=kind, name=part.name or kind
                )


class Model(Protocol):
    """One model behind one provider."""

    @property
    def info(self) -> ModelInfo:
        """What is known about the model."""
        ...

    def stream(self, request: ModelRequest, *, deltas: bool = True) -> AsyncIterator[Delta]:
        """Ask, and yield the answer while it arrives; the last item is `Finished`.

        With `deltas=False` only `Finished` is yielded, and nothing is built per chunk.
        Closing the iterator closes the connection.

        Raises:
            LLMError: the call failed; nothing of a half answer may be used.
        """
        ...

    def count_tokens(self, request: ModelRequest) -> int:
        """Count the input tokens of a request, without asking the provider."""
        ...

    async def close(self) -> None:
        """Give back connections; the model cannot be used afterwards."""
        ...


# --- models around models ---------------------------------------------------------------

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


class OpenedStream(msgspec.Struct, eq=False):
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
        return close_stream(self._stream)


def close_stream(stream: AsyncIterator[Delta]) -> Awaitable[None]:
    """Close what a model has returned, if it is of a kind that can be."""
    if isinstance(stream, AsyncGeneratorType | AsyncGenerator):
        return stream.aclose()
    return _make_empty()


async def _make_empty() -> None:
    """There is nothing to close."""


def iterate_layers(model: Model) -> Iterator[Model]:
    """Yield a model and every model inside it, outermost first."""
    yield model
    inner = getattr(model, "inner", None)
    if inner is not None:
        yield from iterate_layers(inner)
    for other in getattr(model, "models", ()):
        yield from iterate_layers(other)


# --- who makes the call -----------------------------------------------------------------


def note_event(event: ProviderEvent) -> None:
    """The observer of shared models: hands an event to the caller that made the call."""
    caller = _caller.get()
    if caller is not None:
        caller.heard.append(event)


def find_calling_agent() -> str:
    """Return the agent that makes the call, for models that several agents share."""
    caller = _caller.get()
    return caller.agent if caller is not None else ""


class CallEvents(msgspec.Struct, eq=False):
    """Collect what happens around the model calls that an agent makes in this block."""

    agent: str = ""
    """Who makes the calls."""
    heard: list[ProviderEvent] = []
    _token: Token[CallEvents | None] | None = None

    def __enter__(self) -> list[ProviderEvent]:
        """Listen, and give what is heard while it comes."""
        self._token = _caller.set(self)
        return self.heard

    def __exit__(self, *error: object) -> None:
        """Listen no longer."""
        assert self._token is not None
        _caller.reset(self._token)


_caller: ContextVar[CallEvents | None] = ContextVar("caller_of_models", default=None)
