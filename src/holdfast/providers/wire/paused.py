"""Turns that the provider pauses while its own tools work: sent back, so that it goes on."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from holdfast.canonical import JsonObject
from holdfast.messages import TokenUsage
from holdfast.providers.model import Delta, ModelRequest
from holdfast.providers.wire.anthropic import AnthropicCodec
from holdfast.providers.wire.codec import PAUSED, Answer
from holdfast.providers.wire.connection import Route
from holdfast.providers.wire.model import ModelCall

MOST_PAUSES = 16
"""A turn that pauses more often is cut off there, like one that becomes too long."""


class PausedAnswer(msgspec.Struct, eq=False, kw_only=True):
    """A turn in several answers, which become one."""

    first: ModelCall
    """The call that came first: `total_s` counts from it, and it says how to ask."""
    route: Route
    codec: AnthropicCodec
    request: ModelRequest
    answer: Answer
    """What is there so far; all of it after `follow`."""

    async def follow(self, *, deltas: bool) -> AsyncGenerator[Delta, None]:
        """Yield what is still said, until `answer` is whole.

        Raises:
            LLMError: it failed; then nothing of the turn is kept.
        """
        stream = self.first.decoder is not None
        for _ in range(MOST_PAUSES):
            turn = self.answer.sent_back
            if self.answer.stop_reason != PAUSED or turn is None:
                return
            body = self.codec.encode_on(self.request, turn, stream=stream)
            call = self.first.renew()
            async with aclosing(call.read(self.route, body, deltas=deltas)) as said:
                async for delta in said:
                    yield delta
            assert call.whole is not None
            self.answer = _join(self.answer, call.whole)
        if self.answer.stop_reason == PAUSED:
            self.answer = msgspec.structs.replace(self.answer, stop_reason="length")


def _join(begun: Answer, more: Answer) -> Answer:
    """Return two answers of one turn as one; the provider counts the tokens of each."""
    return msgspec.structs.replace(
        more,
        parts=begun.parts + more.parts,
        usage=_add(begun.usage, more.usage),
        metadata={**begun.metadata, **more.metadata},
        sent_back=_join_turns(begun.sent_back, more.sent_back),
    )


def _add(first: TokenUsage | None, second: TokenUsage | None) -> TokenUsage | None:
    return first + second if first and second else first or second


def _join_turns(begun: JsonObject | None, more: JsonObject | None) -> JsonObject | None:
    if begun is None or more is None:
        return None
    return {**begun, **more, "content": begun["content"] + more["content"]}
