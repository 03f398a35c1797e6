"""The built-in model that needs no key, no server and no network, and is no LLM."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from holdfast import clock
from holdfast.canonical import digest
from holdfast.ids import make_id
from holdfast.messages import Message, Part, TextPart, TokenUsage, ToolPart
from holdfast.providers.model import (
    Delta,
    Finished,
    ModelInfo,
    ModelRequest,
    TextDelta,
    ToolCallDelta,
)
from holdfast.providers.offline.conversation import read_conversation
from holdfast.providers.offline.decide import decide
from holdfast.providers.offline.instance import NOTE
from holdfast.providers.tokens import TokenCounter

_INFO = ModelInfo(
    inputs=("text",),
    provider="offline",
    model="offline",
    context_window=128_000,
    tool_mode="native",
    is_llm=False,
)


class OfflineModel:
    """Fixed rules behind the `Model` protocol: it drives tools, and never pretends.

    Equal requests get equal answers (ids and times aside). Every answer's metadata says
    that no language model wrote it.
    """

    def __init__(self, *, time: clock.Clock = clock.SYSTEM) -> None:
        """Take the clock for the time of its messages."""
        self._clock = time
        self._counter = TokenCounter(_INFO.provider, _INFO.model)

    @property
    def info(self) -> ModelInfo:
        """Says that this is no LLM."""
        return _INFO

    async def stream(self, request: ModelRequest, *, deltas: bool = True) -> AsyncIterator[Delta]:
        """Yield the answer: text line by line or tool calls, then `Finished`."""
        message = self._answer(request)
        if deltas:
            for delta in _list_deltas(message):
                yield delta
        yield Finished(message)

    def count_tokens(self, request: ModelRequest) -> int:
        """Estimate what a language model would count."""
        return self._counter.request(request).tokens

    async def close(self) -> None:
        """Nothing is open."""

    def _answer(self, request: ModelRequest) -> Message:
        answer = decide(request)
        conversation = read_conversation(request)
        parts: list[Part] = []
        if answer.text:
            parts.append(TextPart(text=answer.text))
        for place, call in enumerate(answer.calls):
            seed = (conversation.goal_id, conversation.calls_before + place, call.tool)
            parts.append(
                ToolPart(
                    call_id=f"call_{digest([*seed, call.arguments])[:24]}",
                    tool=call.tool,
                    input=call.arguments,
                )
            )
        return Message(
            id=make_id("msg"),
            session_id=conversation.session_id,
            role="assistant",
            parts=tuple(parts),
            time_created=self._clock.now(),
            provider=_INFO.provider,
            model=_INFO.model,
            stop_reason="tool_calls" if answer.calls else "stop",
            usage=TokenUsage(),
            metadata={
                "offline": True,
                "note": NOTE,
                **({"not_done": answer.not_done} if answer.not_done else {}),
            },
        )


def _list_deltas(message: Message) -> list[Delta]:
    found: list[Delta] = [TextDelta(line) for line in message.text.splitlines(keepends=True)]
    for index, part in enumerate(message.tool_calls):
        arguments = msgspec.json.encode(part.input).decode()
        found.append(ToolCallDelta(index, part.call_id, part.tool, arguments))
    return found
