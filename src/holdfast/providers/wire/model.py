"""One model behind one HTTP endpoint, whichever of the three APIs it speaks."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable

import aiohttp
from yarl import URL

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import LLMConnectionError, LLMError, LLMProtocolError, LLMTimeout
from holdfast.ids import new_id
from holdfast.messages import FilePart, Message
from holdfast.providers.model import Delta, Finished, ModelInfo, ModelRequest
from holdfast.providers.wire.anthropic import AnthropicCodec
from holdfast.providers.wire.chat import ChatCodec
from holdfast.providers.wire.codec import Answer, Codec, as_deltas
from holdfast.providers.wire.endpoint import Api, Endpoint
from holdfast.providers.wire.failures import failure_in_answer, refusal, request_id
from holdfast.providers.wire.http import HttpTransport
from holdfast.providers.wire.responses import ResponsesCodec
from holdfast.providers.wire.sse import SseParser
from holdfast.providers.wire.watchdog import Watchdog

_CODECS: dict[Api, Callable[[Endpoint, ModelInfo], Codec]] = {
    "chat": ChatCodec,
    "responses": ResponsesCodec,
    "anthropic": AnthropicCodec,
}
_LONG_ANSWER = 16_384
"""Longer answers are streamed even if nobody listens: proxies drop silent connections."""

_ERROR_BODY = 64 * 1024
_GRACE_S = 0.25
"""How long the end of the HTTP answer may take after the end of the model's."""

_BLANKS = b"\xef\xbb\xbf \t\r\n"
_FIELDS = (b"data:", b"event:", b":", b"id:", b"retry:")
_LONGEST_FIELD = 6
_FILE_TOKENS = 1_000


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
        count_tokens: Callable[[ModelRequest], int] | None = None,
    ) -> None:
        """Speak to `model` at `endpoint`; nothing is opened before the first call."""
        self._endpoint = endpoint
        self._transport = transport
        self._clock = clock
        self._info = info or ModelInfo(provider=endpoint.provider, model=model)
        self._codec: Codec = _CODECS[endpoint.api](endpoint, self._info)
        self._url = URL(endpoint.url(self._codec.path), encoded=True)
        self._connect = aiohttp.ClientTimeout(total=None, connect=endpoint.timeouts.connect_s)
        self._counter = count_tokens or _estimate

    @property
    def info(self) -> ModelInfo:
        """What is known about the model."""
        return self._info

    @property
    def endpoint(self) -> Endpoint:
        """Where the model is reached."""
        return self._endpoint

    def count_tokens(self, request: ModelRequest) -> int:
        """Count the input tokens of a request; a rough estimate unless a counter was given."""
        return self._counter(request)

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
        streamed = deltas or is_long or self._endpoint.quiet == "stream"
        body = self._codec.encode(request, stream=streamed)
        call = _Call(self._endpoint, self._info.model, self._codec, self._clock)
        try:
            await call.open(self._post(body), streamed=streamed)
            if call.is_stream:
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
                answer = self._codec.decode(await call.body())
                for delta in as_deltas(answer) if deltas else ():
                    yield delta
        finally:
            call.close()
        yield Finished(self._message(answer), call.request_id or answer.response_id)

    def _post(self, body: bytes) -> aiohttp.client._RequestContextManager:
        endpoint = self._endpoint
        headers = {
            "Content-Type": "application/json",
            **self._codec.headers,
            **endpoint.auth_headers(),
            **endpoint.headers,
        }
        return self._transport.session().post(
            self._url,
            data=body,
            headers=headers,
            allow_redirects=False,
            proxy=self._transport.proxy(endpoint),
            ssl=self._transport.tls(endpoint),
            timeout=self._connect,
        )

    def _message(self, answer: Answer) -> Message:
        metadata = dict(answer.metadata)
        if answer.response_id:
            metadata["response_id"] = answer.response_id
        return Message(
            id=new_id("msg"),
            session_id="",
            role="assistant",
            parts=answer.parts,
            time_created=self._clock.now(),
            provider=self._endpoint.provider,
            model=answer.model or self._info.model,
            stop_reason=answer.stop_reason,
            usage=answer.usage,
            metadata=metadata,
        )


class _Call:
    """One HTTP call: opened, read within its limits, closed."""

    def __init__(self, endpoint: Endpoint, model: str, codec: Codec, clock: Clock) -> None:
        self._endpoint = endpoint
        self._model = model
        self._decoder = codec.decoder()
        self._parser = SseParser(endpoint.provider, endpoint.max_event_bytes)
        self._clock = clock
        self._response: aiohttp.ClientResponse | None = None
        self._watchdog: Watchdog | None = None
        self._size = 0
        self._held = b""
        self._streamed = True
        self.is_stream = False
        self.request_id = ""

    async def open(self, pending: aiohttp.client._RequestContextManager, *, streamed: bool) -> None:
        """Send the request and look at the head of the answer."""
        limits = self._endpoint.timeouts
        total_at = asyncio.get_running_loop().time() + limits.total_s
        phase, limit_s = ("the first token", min(limits.first_token_s, limits.total_s))
        if not streamed:
            phase, limit_s = "the whole answer", limits.total_s
        self._streamed = streamed
        timer = asyncio.timeout(limit_s)
        try:
            async with timer:
                response = await pending
        except TimeoutError:
            if not timer.expired():
                phase, limit_s = "connecting", limits.connect_s
            raise self._late(phase, limit_s) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._unreachable(error) from None
        self._response = response
        self._watchdog = Watchdog(response, total_at=total_at, total_s=limits.total_s)
        self.request_id = self._endpoint.scrub(request_id(response.headers))
        if response.status != 200:
            raise await self._refused(response)
        self.is_stream = await self._looks_like_stream(response)

    async def advance(self, out: list[Delta] | None) -> bool:
        """Take what arrives next; say whether more is to come."""
        decoder, parser = self._decoder, self._parser
        chunk = await self._read()
        events = parser.feed(chunk) if chunk else parser.flush()
        if events:
            decoder.feed(events, out)
        if parser.failed is not None and not decoder.done:
            raise self._failed(parser.failed)
        return bool(chunk) and not decoder.done

    async def answer(self) -> Answer:
        """Return the whole streamed answer."""
        answer = self._decoder.finish()
        await self._drain()
        return answer

    async def body(self) -> bytes:
        """Read an answer that comes as one body."""
        chunks = []
        while chunk := await self._read():
            chunks.append(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def close(self) -> None:
        """Give the connection back if the answer was read to its end, else close it."""
        if self._watchdog is not None:
            self._watchdog.stop()
        if self._response is not None:
            self._response.close()

    async def _read(self) -> bytes:
        response, watchdog, limits = self._response, self._watchdog, self._endpoint.timeouts
        assert response is not None and watchdog is not None
        if self._held:
            chunk, self._held = self._held, b""
            return self._counted(chunk)
        if not self._streamed:
            watchdog.wait("the whole answer", limits.total_s)
        elif self._decoder.begun:
            watchdog.wait("the next piece", limits.idle_s)
        else:
            watchdog.wait("the first token", limits.first_token_s)
        try:
            chunk = await response.content.readany()
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if watchdog.expired is not None:
                raise self._late(*watchdog.expired) from None
            raise self._unreachable(error) from None
        watchdog.rest()
        return self._counted(chunk)

    def _counted(self, chunk: bytes) -> bytes:
        self._size += len(chunk)
        if self._size > self._endpoint.max_response_bytes:
            limit = self._endpoint.max_response_bytes
            raise self._broken(f"the answer is larger than {limit} bytes")
        return chunk

    async def _drain(self) -> None:
        """Read the rest, so that the connection can be used again; give up soon."""
        response, watchdog = self._response, self._watchdog
        assert response is not None and watchdog is not None
        if response.content.at_eof():
            return
        watchdog.wait("the end", _GRACE_S)
        try:
            while await response.content.readany():
                if watchdog.expired is not None:
                    break
        except (aiohttp.ClientError, OSError, ValueError):
            # The answer is complete; only the connection is lost.
            response.close()

    async def _looks_like_stream(self, response: aiohttp.ClientResponse) -> bool:
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind == "text/event-stream":
            return True
        if kind == "application/json" or kind.endswith("+json"):
            return False
        if kind in ("", "text/plain", "application/octet-stream", "application/x-ndjson"):
            start = await self._peek()
            if start[:1] == b"{":
                return False
            if start.startswith(_FIELDS):
                return True
        error = self._broken(f"it answers with {kind or 'no content type'}, not with JSON")
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

    async def _refused(self, response: aiohttp.ClientResponse) -> LLMError:
        body = b""
        try:
            while len(body) < _ERROR_BODY and (chunk := await self._read()):
                body += chunk
        except LLMError:
            # The status says enough; what was read of the body is a bonus.
            body = body[:_ERROR_BODY]
        return refusal(
            self._endpoint,
            self._model,
            status=response.status,
            headers=response.headers,
            body=body[:_ERROR_BODY],
            clock=self._clock,
        )

    def _failed(self, data: bytes) -> LLMError:
        error = failure_in_answer(self._endpoint, self._model, data)
        error.context.setdefault("request_id", self.request_id)
        return error

    def _late(self, phase: str, limit_s: float) -> LLMTimeout:
        return LLMTimeout(
            provider=self._endpoint.provider, model=self._model, phase=phase, limit_s=limit_s
        )

    def _broken(self, detail: str) -> LLMProtocolError:
        return LLMProtocolError(
            provider=self._endpoint.provider, detail=detail, request_id=self.request_id
        )

    def _unreachable(self, error: Exception) -> LLMConnectionError:
        # The cause is not chained: it holds the request with its headers and address.
        return LLMConnectionError(
            provider=self._endpoint.provider,
            model=self._model,
            detail=self._endpoint.scrub(_reason(error)),
            request_id=self.request_id,
        )


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"the certificate of {error.host} is not trusted"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"{error.host}:{error.port}: {error.os_error.strerror or error.os_error}"
    if isinstance(error, ssl.SSLError | OSError) and error.strerror:
        return error.strerror
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the answer broke off"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server closed the connection"
    return type(error).__name__


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
