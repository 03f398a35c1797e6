"""One model behind one HTTP endpoint, whichever of the three APIs it speaks."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

import aiohttp
import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import (
    LLMBadRequest,
    LLMConnectionError,
    LLMError,
    LLMProtocolError,
    LLMTimeout,
)
from holdfast.ids import make_id
from holdfast.messages import FilePart, Message, TokenUsage
from holdfast.providers.model import Delta, Finished, ModelInfo, ModelRequest, Sleep
from holdfast.providers.tokens import TokenCounter
from holdfast.providers.wire.codec import (
    CUT,
    OPEN,
    PAUSED,
    Answer,
    Codec,
    StreamDecoder,
    as_deltas,
    drop_cut_call,
    request_id,
)
from holdfast.providers.wire.connection import WHOLE, HttpConnection, Limit, Route
from holdfast.providers.wire.endpoint import Api, Endpoint
from holdfast.providers.wire.failures import explain_reason, find_failure_in_answer, make_refusal
from holdfast.providers.wire.http import HttpTransport
from holdfast.providers.wire.sse import SseParser

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
_ERROR_BODY = 64 * 1024
_GRACE_S = 0.25
"""How long the end of the HTTP answer may take after the end of the model's."""

_OK = 200
_STALE_CONNECTIONS = 3
_TRANSPORT_ERRORS = (aiohttp.ClientError, OSError, RuntimeError, ValueError)
"""What a connection that broke, was cut or speaks no HTTP may raise."""

_FIRST = "the first token"
_BLANKS = b"\xef\xbb\xbf \t\r\n"
_FIELDS = (b"data:", b"event:", b":", b"id:", b"retry:")
_LONGEST_FIELD = 6
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

    async def stream(  # noqa: C901, PLR0915 - one more layer is paid for with every delta
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
        streamed = deltas or is_long or self._must_stream or self.endpoint.quiet == "stream"
        try:
            body = self._codec.encode(request, stream=streamed)
        except UnicodeEncodeError:
            detail = "a text in it holds half of a surrogate pair, which cannot be sent"
            raise LLMBadRequest(provider=self.endpoint.provider, detail=detail) from None
        call = ModelCall(self.endpoint, self.info.model, self._codec, self._clock)
        try:
            if await call.open(self._route, body):
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
            if answer.stop_reason in OPEN:
                rest = self._follow(call, answer, request)
                async with aclosing(rest.follow(deltas=deltas)) as said:
                    async for delta in said:
                        yield delta
                answer = rest.answer
        except LLMTimeout as late:
            # Slow or dead cannot be told apart without a stream: the next attempt asks for one.
            self._must_stream = self._must_stream or late.context.get("phase") == _FIRST
            raise
        except BaseException:
            if call.open_id:
                await self._wait_for(call, call.open_id, request).cancel()
            raise
        finally:
            if call.line is not None:
                call.line.release()
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
        yield Finished(message, call.request_id or answer.response_id)

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


class ModelCall(msgspec.Struct, eq=False):
    """One HTTP call: opened, then read within its limits."""

    _endpoint: Endpoint
    _model: str
    _codec: Codec
    _clock: Clock
    line: HttpConnection | None = None
    """Where the answer comes from; to be released when it was read, or will not be."""
    _size: int = 0
    _held: bytes = b""
    decoder: StreamDecoder | None = None
    """Puts a streamed answer together; one that is given goes on with what it has."""
    began: float = 0.0
    """When the whole of it began, in the loop's time, if that was before this call."""
    whole: Answer | None = None
    """What `read` has found."""
    is_said: bool = False
    """All of it has arrived: what is wrong with it now is no matter of the connection."""
    _parser: SseParser | None = None
    _first: Limit = (WHOLE, 0.0, 0.0)
    _total: Limit = (WHOLE, 0.0, 0.0)
    body: bytes = b""
    request_id: str = ""

    async def open(self, route: Route, body: bytes) -> bool:
        """Send the request; say whether the answer comes as a stream.

        If it does not, it is here as a whole when this returns.

        A server may close an idle connection at any time, and some do so unannounced
        after each stream. Such a request was not answered, most likely not even read, so
        it is sent again: over another connection, and never when a fresh one failed.
        """
        start = asyncio.get_running_loop().time()
        total_s = self._endpoint.timeouts.total_s
        self.began = self.began or start
        due = self.began + total_s
        self._total = self._first = (WHOLE, total_s, due)
        first_s = self._endpoint.timeouts.first_token_s
        if start + first_s < due:
            # Neither a stream nor the head of an answer in one body takes as long as the whole.
            self._first = (_FIRST, first_s, start + first_s)
        for left in range(_STALE_CONNECTIONS, -1, -1):
            is_first = left == _STALE_CONNECTIONS
            self.line = line = route.kept() or await self._connect(route, is_first=is_first)
            line.watchdog.begin(self._total)
            if self._first is not self._total:
                line.watchdog.wait(self._first)
            try:
                await line.post(body)
                # What came before the connection broke may say more than that.
                if line.error is None or line.status:
                    break
                raise line.error
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                if not (left and line.is_reused):
                    raise self._make_lost(error) from None
                line.release()
                self.line = None
            except _TRANSPORT_ERRORS as error:
                raise self._make_lost(error) from None
        self.request_id = request_id(line.headers, line.key)
        if line.status != _OK:
            raise await self._make_refused(line)
        kind = line.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind == "application/json" or not (
            kind == "text/event-stream" or await self._is_stream(kind)
        ):
            self.body = self._find_here() or b""
            self._first = self._total
            if not line.is_received:
                self.body = await self._to_the_end(self.body)
            return False
        self.decoder = self.decoder or self._codec.decoder()
        self._parser = SseParser(self._endpoint.provider, self._endpoint.max_event_bytes)
        return True

    async def advance(self, out: list[Delta] | None) -> bool:
        """Take what arrives next; say whether more is to come."""
        decoder, parser = self.decoder, self._parser
        assert decoder is not None and parser is not None
        chunk = self._find_here()
        if chunk is None:
            chunk = await self._take_next()
        if not chunk and decoder.open_id:
            return False  # what has not come to its end is asked for again
        events = parser.feed(chunk) if chunk else parser.flush()
        if events:
            decoder.feed(events, out)
        if parser.failed is not None and not decoder.done:
            raise self._tell_failed(parser.failed)
        return bool(chunk) and not decoder.done

    async def answer(self) -> Answer:
        """Return the whole streamed answer."""
        assert self.decoder is not None
        answer = self.decoder.finish()
        if self.line is not None and not self.line.is_received:
            await self._drain(self.line)
        return answer

    async def read(self, route: Route, body: bytes, *, deltas: bool) -> AsyncGenerator[Delta, None]:
        """Ask, and yield what is said while it arrives; then `whole` is the answer."""
        try:
            if await self.open(route, body):
                out: list[Delta] | None = [] if deltas else None
                while await self.advance(out):
                    for delta in out or ():
                        yield delta
                    if out:
                        out.clear()
                self.whole = await self.answer()
                for delta in out or ():
                    yield delta
            else:
                self.is_said = True
                self.whole = answer = self._codec.decode(self.body)
                for delta in as_deltas(answer) if deltas else ():
                    yield delta
        finally:
            if self.line is not None:
                self.line.release()

    @property
    def open_id(self) -> str:
        """The provider goes on making the answer under this id, whatever becomes of this call."""
        return self.decoder.open_id if self.decoder is not None else ""

    def renew(self) -> ModelCall:
        """Return another call within the same limits."""
        return ModelCall(self._endpoint, self._model, self._codec, self._clock, began=self.began)

    async def _connect(self, route: Route, *, is_first: bool) -> HttpConnection:
        connect_s = self._endpoint.timeouts.connect_s
        phase, limit_s, due = self._first
        left_s = limit_s if is_first else due - asyncio.get_running_loop().time()
        if left_s <= 0:
            raise self._make_timeout(phase, limit_s)
        try:
            return await route.connect(left_s if left_s < connect_s else None)
        except TimeoutError:
            if left_s >= connect_s:
                phase, limit_s = "connecting", connect_s
            raise self._make_timeout(phase, limit_s) from None
        except _TRANSPORT_ERRORS as error:
            raise self._report_unreachable(error) from None

    async def _to_the_end(self, start: bytes) -> bytes:
        """Return an answer that comes as one body and has begun so."""
        line = self.line
        assert line is not None
        chunks = [start]
        while not line.is_received:
            chunks.append(await self._read())
        return b"".join(chunks)

    async def _read(self) -> bytes:
        """Return what arrives next; empty at the end."""
        chunk = self._find_here()
        return await self._take_next() if chunk is None else chunk

    def _find_here(self) -> bytes | None:
        """Return what has arrived; empty at the end, nothing if one has to wait for it."""
        line = self.line
        assert line is not None
        chunk = line.take()
        if self._held:
            chunk, self._held = self._held + chunk, b""
        if not chunk and not line.is_received:
            return None
        self._size += len(chunk)
        if self._size > self._endpoint.max_response_bytes:
            limit = self._endpoint.max_response_bytes
            raise self._mark_broken(f"the answer is larger than {limit} bytes")
        return chunk

    async def _take_next(self) -> bytes:
        """Wait for what arrives next, as long as that may take."""
        line = self.line
        assert line is not None
        limit = self._first
        if self.decoder is not None and self.decoder.begun:
            idle_s = self._endpoint.timeouts.idle_s
            limit = ("the next piece", idle_s, asyncio.get_running_loop().time() + idle_s)
        line.watchdog.wait(limit)
        try:
            await line.more()
        except _TRANSPORT_ERRORS as error:
            if self.open_id:
                return b""
            raise self._make_lost(error) from None
        line.watchdog.rest()
        return self._find_here() or b""

    async def _drain(self, line: HttpConnection) -> None:
        """Read the rest, so that the connection can be used again; give up soon."""
        line.watchdog.wait(("the end", _GRACE_S, asyncio.get_running_loop().time() + _GRACE_S))
        try:
            while not line.is_received and line.watchdog.expired is None:
                await line.more()
                line.take()
        except _TRANSPORT_ERRORS:
            # The answer is complete; only the connection is lost.
            line.cut()

    async def _is_stream(self, kind: str) -> bool:
        """Find out what an answer is whose type does not say it."""
        if kind.endswith("+json"):
            return False
        if kind in ("", "text/plain", "application/octet-stream", "application/x-ndjson"):
            start = await self._peek()
            if start[:1] == b"{":
                return False
            if start.startswith(_FIELDS):
                return True
        error = self._mark_broken(f"it answers with {kind or 'no content type'}, not with JSON")
        error.context["content_type"] = kind
        raise error

    async def _peek(self) -> bytes:
        """Return how the answer begins, without taking it."""
        start = b""
        while chunk := await self._read():
            start += chunk
            if len(start.lstrip(_BLANKS)) >= _LONGEST_FIELD:
                break
        self._held = start
        self._size -= len(start)
        return start.lstrip(_BLANKS)

    async def _make_refused(self, line: HttpConnection) -> LLMError:
        body = b""
        try:
            while len(body) < _ERROR_BODY and (chunk := await self._read()):
                body += chunk
        except LLMError:
            # The status says enough; what was read of the body is a bonus.
            body = body[:_ERROR_BODY]
        return make_refusal(
            self._endpoint,
            self._model,
            status=line.status,
            headers=line.headers,
            body=body[:_ERROR_BODY],
            clock=self._clock,
        )

    def _tell_failed(self, data: bytes) -> LLMError:
        error = find_failure_in_answer(self._endpoint, self._model, data)
        error.context.setdefault("request_id", self.request_id)
        return error

    def _make_timeout(self, phase: str, limit_s: float) -> LLMTimeout:
        return LLMTimeout(
            provider=self._endpoint.provider, model=self._model, phase=phase, limit_s=limit_s
        )

    def _mark_broken(self, detail: str) -> LLMProtocolError:
        return LLMProtocolError(
            provider=self._endpoint.provider, detail=detail, request_id=self.request_id
        )

    def _make_lost(self, error: Exception) -> LLMError:
        """Say what became of a connection: cut by us because it was too slow, or broken."""
        if self.line is not None and self.line.watchdog.expired is not None:
            return self._make_timeout(*self.line.watchdog.expired)
        return self._report_unreachable(error)

    def _report_unreachable(self, error: Exception) -> LLMConnectionError:
        # The cause is not chained: it holds the request with its headers and address.
        return LLMConnectionError(
            provider=self._endpoint.provider,
            model=self._model,
            detail=self._endpoint.scrub(explain_reason(error)),
            request_id=self.request_id,
        )


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
