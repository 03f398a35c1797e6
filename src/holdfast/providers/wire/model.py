"""One model behind one HTTP endpoint, whichever of the three APIs it speaks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import LLMBadRequest
from holdfast.ids import new_id
from holdfast.messages import FilePart, Message, TokenUsage
from holdfast.providers.model import Delta, Finished, ModelInfo, ModelRequest
from holdfast.providers.tokens import TokenCounter
from holdfast.providers.wire.anthropic import AnthropicCodec
from holdfast.providers.wire.call import ModelCall
from holdfast.providers.wire.chat import ChatCodec
from holdfast.providers.wire.codec import CUT, Answer, Codec, as_deltas, without_cut_call
from holdfast.providers.wire.endpoint import Api, Endpoint
from holdfast.providers.wire.http import HttpTransport
from holdfast.providers.wire.responses import ResponsesCodec
from holdfast.providers.wire.route import Route

_CODECS: dict[Api, Callable[[Endpoint, ModelInfo], Codec]] = {
    "chat": ChatCodec,
    "responses": ResponsesCodec,
    "anthropic": AnthropicCodec,
}
_LONG_ANSWER = 16_384
"""Longer answers are streamed even if nobody listens: proxies drop silent connections."""

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
    ) -> None:
        """Speak to `model` at `endpoint`; nothing is opened before the first call.

        `counter` counts tokens, of answers too where the server reports no usage; without
        it there is a rough estimate of requests, and such answers say nothing.
        """
        self._clock = clock
        self.info = info or ModelInfo(provider=endpoint.provider, model=model)
        """What is known about the model."""
        self.endpoint = endpoint
        """Where the model is reached."""
        self._codec: Codec = _CODECS[endpoint.api](endpoint, self.info)
        self._route = Route(transport, endpoint, self._codec.path, self._codec.headers)
        self._counter = counter

    def count_tokens(self, request: ModelRequest) -> int:
        """Count the input tokens of a request; a rough estimate unless a counter was given."""
        return self._counter.count(request) if self._counter is not None else _estimate(request)

    def encode(self, request: ModelRequest, *, stream: bool) -> bytes:
        """Return the body that would be sent, for those who measure or record."""
        return self._codec.encode(request, stream=stream)

    async def close(self) -> None:
        """Do nothing: connections belong to the transport, which others share."""

    async def stream(
        self, request: ModelRequest, *, deltas: bool = True
    ) -> AsyncGenerator[Delta, None]:
        """Ask, and yield the answer while it arrives; the last item is `Finished`.

        With `deltas=False` the answer is asked for as one body, unless it may become
        long or the endpoint says to stream all the same; nothing is built per chunk.
        Closing the iterator closes the connection.

        Raises:
            LLMError: the call failed; nothing of a half answer may be used.
        """
        is_long = (request.max_output_tokens or 0) > _LONG_ANSWER
        streamed = deltas or is_long or self.endpoint.quiet == "stream"
        try:
            body = self._codec.encode(request, stream=streamed)
        except UnicodeEncodeError:
            detail = "a text in it holds half of a surrogate pair, which cannot be sent"
            raise LLMBadRequest(provider=self.endpoint.provider, detail=detail) from None
        call = ModelCall(self.endpoint, self.info.model, self._codec, self._clock)
        try:
            if await call.open(self._route, body, streamed=streamed):
                out: list[Delta] | None = [] if deltas else None
                while await call.advance(out):
                    if out:
                        for delta in out:
                            yield delta
                        out.clear()
                answer = await call.answer()
                for delta in out or ():
                    yield delta
            else:
                answer = self._codec.decode(call.body)
                for delta in as_deltas(answer) if deltas else ():
                    yield delta
        finally:
            call.close()
        message = self._message(answer)
        # No call uses no tokens at all: a server that says so has not counted.
        if message.usage in _UNCOUNTED and self._counter is not None:
            message = _counted_here(self._counter, request, message)
        yield Finished(message, call.request_id or answer.response_id)

    def _message(self, answer: Answer) -> Message:
        metadata = dict(answer.metadata)
        if answer.response_id:
            metadata["response_id"] = answer.response_id
        return Message(
            id=new_id("msg"),
            session_id="",
            role="assistant",
            parts=without_cut_call(answer) if answer.stop_reason in CUT else answer.parts,
            time_created=self._clock.now(),
            provider=self.endpoint.provider,
            model=answer.model or self.info.model,
            stop_reason=answer.stop_reason,
            usage=answer.usage,
            metadata=metadata,
        )


def _counted_here(counter: TokenCounter, request: ModelRequest, message: Message) -> Message:
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
