"""The narrow waist: what a model is asked, what it answers, and how it is called.

Vendor-neutral. Everything above speaks to `Model`; everything vendor-specific lives
below it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

from holdfast.canonical import JsonObject
from holdfast.messages import Message, ToolSpec

ToolChoice: TypeAlias = Literal["auto", "none", "required"]
ToolMode: TypeAlias = Literal["native", "json_schema", "prompted"]


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Everything one model call needs; `None` leaves a choice to the provider."""

    messages: Sequence[Message]
    system: str = ""
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
