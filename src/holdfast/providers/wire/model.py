"""One model behind one HTTP endpoint, whichever of the three APIs it speaks."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import LLMBadRequest, LLMConnectionError, LLMTimeout
from holdfast.ids import make_id
from holdfast.messages import FilePart, Message, TokenUsage
from holdfast.providers.model import Delta, Finished, ModelInfo, ModelRequest, Sleep
from holdfast.providers.tokens import TokenCounter
from holdfast.providers.wire.call import FIRST, ModelCall
from holdfast.providers.wire.codec import CUT, OPEN, PAUSED, Answer, Codec, as_deltas, drop_cut_call
from holdfast.providers.wire.connection import Route
from holdfast.providers.wire.endpoint import Api, Endpoint
from holdfast.providers.wire.http import HttpTransport

if TYPE_CHECKING:
    from holdfast.providers.wire.background import BackgroundAnswer
    from holdfast.providers.wire.paused import PausedAnswer

_CODECS: dict[Api, tuple[str, str]] = {
    "chat": ("holdfast.providers.wire.chat", "ChatCodec"),
    "responses": ("holdfast.providers.wire.responses", "ResponsesCodec"),
    "anthropic": ("holdfast.providers.wire.anthropic", "AnthropicCodec"),
}
"""Each API's codec; one is loaded with the first model that speaks it."""

_LONG_ANSWER = 16_384
"""Longer answers are streamed even if no subscriber listens: proxies drop silent connections."""

_FILE_TOKENS = 1_000
_UNCOUNTED = (None, TokenUsage())


class WireModel:
    """A model that is reached over HTTP.

    Nothing is retried here, and redirects are not followed: a key goes to the address
    that was configured and nowhere else.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        model: str,
        transport: HttpTransport,
        *,
        info: ModelInfo | None = None,
        clock: Clock = SYSTEM,
        counter: TokenCounter | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Speak to `model` at `endpoint`; nothing is opened before the first call.

        `counter` counts tokens, of answers too where the server reports no usage; without
        it there is a rough estimate of requests, and such answers say nothing. `sleep` waits
        between two questions for an answer in the background.
        """
        self._clock = clock
        self._sleep = sleep
        self._transport = transport
        self.info = info or ModelInfo(provider=endpoint.provider, model=model)
        """What is known about the model."""
        self.endpoint = endpoint
        """Where the model is reached."""
        home, name = _CODECS[endpoint.api]
        codec: Callable[[Endpoint, ModelInfo], Codec] = getattr(importlib.import_module(home), name)
        self._codec = codec(endpoint, self.info)
        self._route = Route(transport, endpoint, self._codec.path, self._codec.headers)
        self._counter = counter
        self._must_stream = False
        """An answer in one body has let us wait; whether one is alive shows in a stream sooner."""

    def count_tokens(self, request: ModelRequest) -> int:
        """Count the input tokens of a request; a rough estimate unless a counter was given."""
        return self._counter.count(request) if self._counter is not None else _estimate(request)

    def encode(self, request: ModelRequest, *, stream: bool) -> bytes:
        """Return the body that would be sent, for those who measure or record."""
        return self._codec.encode(request, stream=stream)

    async def close(self) -> None:
        """Do nothing: connections belong to the transport, which others share."""

    async def stream(  # noqa: C901 - a generator more is paid for with every delta
        self, request: ModelRequest, *, deltas: bool = True
    ) -> AsyncGenerator[Delta, None]:
        """Ask, and yield the answer while it arrives; the last item is `Finished`.

        With `deltas=False` the answer is asked for as one body, unless it may become
        long or the endpoint says to stream all the same; nothing is built per chunk.
        Closing the iterator closes the connection.

        Raises:
            LLMError: the call failed; nothing of a half answer may be used.
        """
        body = self._encode(request, deltas=deltas)
        call = ModelCall(self.endpoint, self.info.model, self._codec, self._clock)
        try:
            if await call.open(self._route, body):
                out: list[Delta] | None = [] if deltas else None
                try:
                    while await call.advance(out):
                        if out:
                            for delta in out:
                                yield delta
                            out.clear()
                    answer = await call.answer()
                except (LLMConnectionError, LLMTimeout) as lost:
                    answer = call.take_lost(lost)
                for delta in out or ():
                    yield delta
            else:
                answer = self._codec.decode(call.body)
                for delta in as_deltas(answer) if deltas else ():
                    yield delta
            if answer.stop_reason in OPEN:
                rest = self._follow(call, answer, request)
                async with aclosing(rest.follow(deltas=deltas)) as said:
                    async for delta in said:
                        yield delta
                answer = rest.answer
        except LLMTimeout as late:
            # Slow or dead cannot be told apart without a stream: the next attempt asks for one.
            self._must_stream = self._must_stream or late.context.get("phase") == FIRST
            raise
        except BaseException:
            if call.open_id:
                await self._wait_for(call, call.open_id, request).cancel()
            raise
        finally:
            if call.line is not None:
                call.line.release()
        yield self._finish(request, answer, call.request_id)

    def _encode(self, request: ModelRequest, *, deltas: bool) -> bytes:
        is_long = (request.max_output_tokens or 0) > _LONG_ANSWER
        streamed = deltas or is_long or self._must_stream or self.endpoint.quiet == "stream"
        try:
            return self._codec.encode(request, stream=streamed)
        except UnicodeEncodeError:
            detail = "a text in it holds half of a surrogate pair, which cannot be sent"
            raise LLMBadRequest(provider=self.endpoint.provider, detail=detail) from None

    def _follow(
        self, call: ModelCall, answer: Answer, request: ModelRequest
    ) -> BackgroundAnswer | PausedAnswer:
        """Return what goes on with an answer that is not whole."""
        if call.line is not None:
            call.line.release()
            call.line = None
        if answer.stop_reason == PAUSED:
            # Few models are asked so, and none pays for it that is not.
            from holdfast.providers.wire.anthropic import AnthropicCodec  # noqa: PLC0415
            from holdfast.providers.wire.paused import PausedAnswer  # noqa: PLC0415

            codec = self._codec
            assert isinstance(codec, AnthropicCodec)
            return PausedAnswer(
                first=call, route=self._route, codec=codec, request=request, answer=answer
            )
        rest = self._wait_for(call, answer.response_id, request)
        call.decoder = None  # It is the other's now, who cancels what is not whole.
        return rest

    def _wait_for(
        self, call: ModelCall, response_id: str, request: ModelRequest
    ) -> BackgroundAnswer:
        # As above: loaded for those who need it.
        from holdfast.providers.wire.background import BackgroundAnswer  # noqa: PLC0415
        from holdfast.providers.wire.responses_stream import ResponsesDecoder  # noqa: PLC0415

        decoder = call.decoder if isinstance(call.decoder, ResponsesDecoder) else None
        return BackgroundAnswer(
            transport=self._transport,
            endpoint=self.endpoint,
            model=self.info.model,
            codec=self._codec,
            clock=self._clock,
            sleep=self._sleep,
            request=request,
            response_id=response_id,
            began=call.began,
            decoder=decoder,
        )

    def _finish(self, request: ModelRequest, answer: Answer, request_id: str) -> Finished:
        metadata = dict(answer.metadata)
        if answer.response_id:
            metadata["response_id"] = answer.response_id
        message = Message(
            id=make_id("msg"),
            session_id="",
            role="assistant",
            parts=drop_cut_call(answer) if answer.stop_reason in CUT else answer.parts,
            time_created=self._clock.now(),
            provider=self.endpoint.provider,
            model=answer.model or self.info.model,
            stop_reason=answer.stop_reason,
            usage=answer.usage,
            metadata=metadata,
            refusal=answer.refusal,
        )
        # No call uses no tokens at all: a server that says so has not counted.
        if message.usage in _UNCOUNTED and self._counter is not None:
            message = _count_here(self._counter, request, message)
        return Finished(message, request_id or answer.response_id)


def _count_here(counter: TokenCounter, request: ModelRequest, message: Message) -> Message:
    """Return the message with tokens that were counted here, and say so in its metadata."""
    metadata = {**message.metadata, "usage": "estimate"}
    usage = counter.usage(request, message)
    return msgspec.structs.replace(message, usage=usage, metadata=metadata)


def _estimate(request: ModelRequest) -> int:
    """Four characters to a token, and a flat price for each file."""
    size = len(request.system)
    files = 0
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, FilePart):
                files += 1
            else:
                size += len(str(part))
    size += sum(len(str(tool)) for tool in request.tools)
    return size // 4 + files * _FILE_TOKENS
