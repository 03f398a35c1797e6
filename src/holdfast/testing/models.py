"""Models for tests: one that follows a script, one that asks a function.

Both implement `holdfast.providers.model.Model` in full (deltas, errors half-way,
closing), need no network, and keep every request they were asked.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec

from holdfast.errors import ScriptExhausted, UsageError
from holdfast.ids import make_id
from holdfast.messages import Message, Part, ReasoningPart, TextPart, TokenUsage, ToolPart
from holdfast.providers import (
    Delta,
    Finished,
    ModelInfo,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)

_INFO = ModelInfo(provider="test", model="scripted", is_llm=False)


class ModelReply(msgspec.Struct, frozen=True, kw_only=True):
    """One answer in detail, for what a plain text or a list of calls cannot say.

    The deltas are built from text, reasoning and calls unless `deltas` gives them.
    With `error` the stream breaks after its deltas and there is no answer. With
    `hold` the answer waits, after its deltas, until the test sets the event.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolPart, ...] = ()
    deltas: tuple[Delta, ...] | None = None
    error: Exception | None = None
    hold: asyncio.Event | None = None
    usage: TokenUsage | None = None
    stop_reason: str = ""
    request_id: str = ""


Answer: TypeAlias = str | ToolPart | Sequence[ToolPart] | Message | ModelReply | Exception
"""A text, a tool call or several, a whole message, a `Reply`, or an error to raise."""


def tool_call(name: str, /, **arguments: object) -> ToolPart:
    """A tool call to put into a script; it gets its call id when it is sent."""
    return ToolPart(call_id="", tool=name, input=arguments)


class _TestModel:
    """What both test models share: requests kept, answers turned into deltas."""

    def __init__(self, info: ModelInfo) -> None:
        self._info = info
        self.requests: list[ModelRequest] = []
        self.is_closed = False
        self.open_streams = 0
        """Streams that were begun and neither ended nor closed."""

    @property
    def info(self) -> ModelInfo:
        """What the test said about the model."""
        return self._info

    def count_tokens(self, request: ModelRequest) -> int:
        """Count four characters as a token: the same for everybody, and easy to predict."""
        return max(1, len(msgspec.json.encode((request.system, tuple(request.messages)))) // 4)

    async def close(self) -> None:
        """Note that the model was closed."""
        self.is_closed = True

    async def stream(self, request: ModelRequest, *, deltas: bool = True) -> AsyncIterator[Delta]:
        """Yield the next answer as a real provider would; see `Reply` for breaking it."""
        if self.is_closed:
            raise UsageError(detail="This model was closed and cannot be asked any more.")
        self.requests.append(request)
        reply = await self._take_next(request)
        if isinstance(reply, Exception):
            raise reply
        self.open_streams += 1
        try:
            finished = Finished(self._parse_message(request, reply), _request_id(reply))
            if deltas:
                for delta in _list_deltas(reply, finished.message):
                    yield delta
            if isinstance(reply, ModelReply):
                if reply.hold is not None:
                    await reply.hold.wait()
                if reply.error is not None:
                    raise reply.error
            yield finished
        finally:
            self.open_streams -= 1

    async def _take_next(self, request: ModelRequest) -> ModelReply | Message | Exception:
        raise NotImplementedError

    def _parse_message(self, request: ModelRequest, reply: ModelReply | Message) -> Message:
        if isinstance(reply, Message):
            return reply
        number = len(self.requests)
        parts: list[Part] = []
        if reply.reasoning:
            parts.append(ReasoningPart(text=reply.reasoning))
        if reply.text:
            parts.append(TextPart(text=reply.text))
        for index, call in enumerate(reply.calls):
            given = call.call_id or f"call_{number}_{index}"
            parts.append(msgspec.structs.replace(call, call_id=given))
        output = len(reply.text) + sum(len(msgspec.json.encode(c.input)) for c in reply.calls)
        usage = reply.usage or TokenUsage(
            input=self.count_tokens(request),
            output=-(-output // 4),
            reasoning=-(-len(reply.reasoning) // 4),
        )
        return Message(
            id=make_id("msg"),
            session_id=request.messages[-1].session_id if request.messages else "",
            role="assistant",
            parts=tuple(parts),
            provider=self._info.provider,
            model=self._info.model,
            stop_reason=reply.stop_reason or ("tool_calls" if reply.calls else "stop"),
            usage=usage,
        )


class ScriptedModel(_TestModel):
    """A model that gives the answers of a script, in order, whatever it is asked.

    Every request is kept in `requests`, so that a test can look at what was asked.

    Raises:
        ScriptExhausted: (from `stream`) it was asked more often than it has answers.
    """

    def __init__(self, *answers: Answer, info: ModelInfo = _INFO) -> None:
        """Take the script; an answer that is no answer is refused here, not later."""
        super().__init__(info)
        self._answers = [_reply(answer) for answer in answers]

    @property
    def remaining(self) -> int:
        """How many answers were not asked for yet."""
        return max(0, len(self._answers) - len(self.requests))

    def assert_exhausted(self) -> None:
        """Fail the test when answers are left over."""
        if self.remaining:
            raise AssertionError(f"{self.remaining} scripted answers were never asked for")

    async def _take_next(self, request: ModelRequest) -> ModelReply | Message | Exception:
        number = len(self.requests)
        if number > len(self._answers):
            asked = request.messages[-1].text[:200] if request.messages else request.system[:200]
            raise ScriptExhausted(answers=len(self._answers), asked=asked)
        return self._answers[number - 1]


class FunctionModel(_TestModel):
    """A model whose answers come from a function of the request, plain or async."""

    def __init__(
        self,
        function: Callable[[ModelRequest], Answer | Awaitable[Answer]],
        *,
        info: ModelInfo = _INFO,
    ) -> None:
        """Ask `function` for each answer."""
        super().__init__(info)
        self._function = function

    async def _take_next(self, request: ModelRequest) -> ModelReply | Message | Exception:
        answer = self._function(request)
        if inspect.isawaitable(answer):
            answer = await answer
        return _reply(answer)


def _reply(answer: object) -> ModelReply | Message | Exception:
    if isinstance(answer, ModelReply | Message | Exception):
        return answer
    if isinstance(answer, str):
        return ModelReply(text=answer)
    if isinstance(answer, ToolPart):
        return ModelReply(calls=(answer,))
    if isinstance(answer, list | tuple) and all(isinstance(part, ToolPart) for part in answer):
        return ModelReply(calls=tuple(answer))
    raise UsageError(
        detail=f"A {type(answer).__name__} is no scripted answer; give a text, tool calls, "
        "a Message, a Reply or an exception."
    )


def _request_id(reply: ModelReply | Message) -> str:
    return reply.request_id if isinstance(reply, ModelReply) else ""


def _list_deltas(reply: ModelReply | Message, message: Message) -> list[Delta]:
    """Cut an answer into the pieces in which it might have arrived."""
    if isinstance(reply, ModelReply) and reply.deltas is not None:
        return list(reply.deltas)
    found: list[Delta] = []
    index = 0
    for part in message.parts:
        if isinstance(part, ReasoningPart):
            found.extend(ReasoningDelta(piece) for piece in _split_pieces(part.text))
        elif isinstance(part, TextPart):
            found.extend(TextDelta(piece) for piece in _split_pieces(part.text))
        elif isinstance(part, ToolPart):
            arguments = part.raw_input or msgspec.json.encode(part.input).decode()
            found.append(ToolCallDelta(index, part.call_id, part.tool, ""))
            found.extend(
                ToolCallDelta(index, part.call_id, "", piece) for piece in _split_pieces(arguments)
            )
            index += 1
    return found


def _split_pieces(text: str) -> list[str]:
    """Cut after each space; the pieces join to the text."""
    return [piece for piece in text.replace(" ", " \0").split("\0") if piece]
