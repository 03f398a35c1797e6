"""Connections of aiohttp's pool, each with requests and answers on it, one after the other.

aiohttp opens a connection (names, TLS, proxies) and reads heads. What its `ClientSession`
does for each request (headers merged, cookies, redirects, timers, a task that writes, request
and response objects) and its pool for each use costs more than both together and is not
wanted here. See `docs/decisions/0011-posts-on-the-connection-pool.md`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from math import inf
from typing import Protocol, TypeAlias

import aiohttp
import msgspec
from aiohttp.base_protocol import BaseProtocol
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError, HttpResponseParser, RawResponseMessage
from yarl import URL

from holdfast.providers.wire.endpoint import Endpoint
from holdfast.providers.wire.framing import Body, Chunked, Open, Packed
from holdfast.providers.wire.http import KEEPALIVE_S, OUR_HEADERS, HttpTransport, Pool

LARGEST_HEAD = 64 * 1024
_HEAD_END = re.compile(rb"\n\r?\n")
_LINE_BREAK = re.compile(r"[\r\n\x00]")
_FRAMING = ("content-length", "transfer-encoding")
_OK = 200
_SWITCHING_PROTOCOLS = 101
_BODILESS = (204, 304)
_MOST_HELD = 256 * 1024
"""When so much of an answer waits to be read, no more is taken from the connection."""

WHOLE = "the whole answer"

Limit: TypeAlias = tuple[str, float, float]
"""What is waited for, how many seconds that may take, and the loop's time when they are over."""

_NEVER: Limit = ("", inf, inf)


class Route:
    """The way to one API method of an endpoint; its head is made anew only for a new key."""

    __slots__ = ("_endpoint", "_headers", "_method", "_timeout", "_transport", "_url", "_way")

    def __init__(
        self,
        transport: HttpTransport,
        endpoint: Endpoint,
        path: str,
        headers: Mapping[str, str],
        *,
        method: str = "POST",
        query: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare what does not depend on the key; nothing is opened."""
        self._transport = transport
        self._endpoint = endpoint
        self._method = method
        url = URL(endpoint.url(path), encoded=True)
        self._url = url.update_query(query) if query else url
        self._headers = headers
        self._timeout = aiohttp.ClientTimeout(total=None, connect=endpoint.timeouts.connect_s)
        self._way: _Way | None = None

    def kept(self) -> HttpConnection | None:
        """Return a connection that waits for a request, if there is one for the present key."""
        way = self._way
        if way is None or way.key != self._endpoint.key.reveal():
            return None
        if way.loop is not asyncio.get_running_loop():
            return None
        while way.idle and way.head:
            line = way.idle.pop()
            if not line.is_closing():
                line.head, line.key = way.head, way.key
                return line
        return None

    async def connect(self, within_s: float | None = None) -> HttpConnection:
        """Take a connection that waits or open one, within the endpoint's limit or less.

        Raises:
            TimeoutError: no caller took the connection in time.
            aiohttp.ClientError: no server answers, or none that is trusted.
        """
        way, key = self._way, self._endpoint.key.reveal()
        is_ours = way is not None and way.loop is asyncio.get_running_loop()
        if way is None or not is_ours or way.key != key or way.pool.connector.closed:
            way = self._way = _Way(key, self._request(), self._transport.pool())
        line = self.kept()
        if line is not None:
            return line
        timeout = self._timeout
        if within_s is not None:
            timeout = aiohttp.ClientTimeout(total=None, connect=within_s)
        while True:
            connection = await way.pool.connector.connect(way.request, [], timeout)
            keeper = connection.protocol
            # Something may have come while no caller had asked; it must not pass for an answer.
            if keeper is not None and not keeper.should_close:
                break
            connection.close()
        if not way.head:
            way.head = _render_head(way.request)
        line = HttpConnection(connection, keeper, way.idle, way.head)
        line.key = way.key
        return line

    def _request(self) -> aiohttp.ClientRequest:
        """Say in aiohttp's words where to go; it adds `Host` and the like."""
        endpoint = self._endpoint
        json = {"Content-Type": "application/json"}
        headers: dict[str, tuple[str, str]] = {}
        for more in (
            OUR_HEADERS,
            json,
            self._headers,
            endpoint.make_auth_headers(),
            endpoint.headers,
        ):
            headers.update((name.lower(), (name, value)) for name, value in more.items())
        proxy = self._transport.proxy(endpoint)
        return aiohttp.ClientRequest(
            self._method,
            self._url,
            headers=dict(headers.values()),
            proxy=URL(proxy) if proxy else None,
            ssl=self._transport.tls(endpoint),
        )


class _Way:
    """What all requests with one key on one loop have in common; is never shown."""

    __slots__ = ("head", "idle", "key", "loop", "pool", "request")

    def __init__(self, key: str, request: aiohttp.ClientRequest, pool: Pool) -> None:
        self.key = key
        self.request = request
        self.pool = pool
        self.loop = asyncio.get_running_loop()
        self.idle = pool.idle.setdefault(request.connection_key, [])
        head = _render_head(request)
        # With the first connection the pool adds what a proxy wants to know.
        self.head = head if request.proxy is None else b""


def _render_head(request: aiohttp.ClientRequest) -> bytes:
    """Return everything that goes before the body's length."""
    is_absolute = request.proxy is not None and not request.is_ssl()
    target = str(request.url) if is_absolute else request.url.raw_path_qs
    lines = [f"{request.method} {target} HTTP/1.1"]
    for name, value in request.headers.items():
        if name.lower() not in _FRAMING:
            lines.append(f"{name}: {value}")
    if any(_LINE_BREAK.search(line) for line in lines):
        raise ValueError("a header holds a line break")
    return "\r\n".join([*lines, "Content-Length: "]).encode()


class HttpConnection(asyncio.Protocol):
    """A connection: a request is sent, its answer read, then it waits for the next one.

    It takes the place of the pool's own protocol, which hears only when the connection is
    lost. What arrives waits here until it is read; a reader that is slow slows the sender.
    What arrives unasked closes the connection, and so does a minute without a request.
    """

    __slots__ = (
        "_body",
        "_connection",
        "_head",
        "_idle",
        "_is_asked",
        "_is_last",
        "_is_lost",
        "_keeper",
        "_loop",
        "_pieces",
        "_size",
        "_transport",
        "_waiter",
        "error",
        "head",
        "headers",
        "is_closing",
        "is_received",
        "is_reused",
        "key",
        "status",
        "watchdog",
    )

    headers: Mapping[str, str]

    def __init__(
        self,
        connection: Connection,
        keeper: ResponseHandler,
        idle: list[HttpConnection],
        head: bytes,
    ) -> None:
        """Take over a connection that no other process uses; between requests it waits in `idle`.

        Raises:
            aiohttp.ClientError: it is lost already.
        """
        if keeper.transport is None:
            raise aiohttp.ServerDisconnectedError
        self._connection = connection
        self._keeper = keeper
        self._idle = idle
        self._loop = asyncio.get_running_loop()
        self._transport = keeper.transport
        self._head = HeadReader(keeper, self._loop)
        self._body: Body | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._is_asked = False
        self._is_lost = False
        self._is_last = False
        self.error: Exception | None = None
        """What went wrong first; nothing more comes then."""
        self.head = head
        """Everything of a request that goes before the length of its body."""
        self.is_closing = self._transport.is_closing
        """Says whether nothing can be sent any more."""
        self.is_received = False
        """The answer has arrived to its end, though perhaps it is not all taken."""
        self.is_reused = False
        """It has served before, so it may be dead without our knowing."""
        self.key = ""
        """The one in `head`, in clear."""
        self.status = 0
        """That of the answer, as soon as its head is here."""
        self.watchdog = Watchdog(self)
        self._transport.set_protocol(self)

    def post(self, body: bytes) -> asyncio.Future[None]:
        """Send a request; wait for what this returns, then there is a `status` or an `error`."""
        self._is_asked = True
        self._transport.write(b"%b%d\r\n\r\n%b" % (self.head, len(body), body))
        # What `create_future` of the loop returns, without asking it.
        waiter: asyncio.Future[None] = asyncio.Future(loop=self._loop)
        if self.error is not None:
            waiter.set_result(None)
        self._waiter = waiter
        return waiter

    def take(self) -> bytes:
        """Return what is here of the body; empty if there is nothing now."""
        pieces = self._pieces
        if not pieces:
            return b""
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        if self._size > _MOST_HELD:
            self._resume()
        self._size = 0
        return data

    async def more(self) -> None:
        """Wait until there is something to take, or the end of the body.

        Raises:
            aiohttp.ClientError: the connection broke, or was cut.
        """
        while not self._pieces:
            if self.error is not None:
                raise self.error
            if self.is_received:
                break
            self._waiter = asyncio.Future(loop=self._loop)
            await self._waiter

    def release(self) -> None:
        """Keep the connection for the next request if the answer is at its end, or cut it."""
        body = self._body
        is_over = body is not None and body.ended and not body.surplus
        if not is_over or self._is_last or self._is_lost or self.error is not None:
            return self.cut()
        # An answer may come before its request was read; the rest of that may not go on.
        if self._transport.get_write_buffer_size():
            return self.cut()
        if self._pieces:
            self.take()
        self._body = None
        self.status = 0
        self.is_received = False
        self._is_asked = False
        self.is_reused = True
        self.watchdog.begin(("a request", KEEPALIVE_S, self._loop.time() + KEEPALIVE_S))
        self._idle.append(self)

    def cut(self) -> None:
        """Close the connection; a caller that waits is woken. A second time does nothing."""
        self.watchdog.stop()
        self._fail(aiohttp.ClientConnectionError("Connection closed"))
        self._connection.close()

    # --- what the transport calls ------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take what the connection says, and wake the reader if that is worth it."""
        if self.error is not None:
            return
        if not self._is_asked:
            return self.cut()
        if type(data) is not bytes:
            data = bytes(data)  # Some loops hand out their buffer.
        before = body = self._body
        try:
            if body is None:
                found = self._head.feed(data)
                if found is None:
                    return
                message, body, data = found
                self._body = body
                self._is_last = message.should_close or message.code < _OK
                self.headers, self.status = message.headers, message.code
            if body.ended:
                # Behind a body nothing may come.
                piece, body.surplus = b"", body.surplus or bool(data)
            else:
                piece = body.feed(data)
        except aiohttp.ClientPayloadError as error:
            return self._fail(error)
        self.is_received = body.ended
        if piece:
            self._pieces.append(piece)
            self._size += len(piece)
            if self._size > _MOST_HELD:
                self._transport.pause_reading()
        elif before is not None and not self.is_received:
            return
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take the end of the connection, and tell the pool."""
        self._is_lost = True
        if self in self._idle:
            self._idle.remove(self)
        try:
            self._end(exc)
        except aiohttp.ClientError as error:
            self._fail(error)
        self._wake()
        self._keeper.connection_lost(exc)
        self._connection.close()
        if not self._is_asked:
            self.watchdog.stop()

    def _end(self, exc: Exception | None) -> None:
        if self._body is None:
            if isinstance(exc, OSError):
                raise aiohttp.ClientOSError(*exc.args)
            raise aiohttp.ServerDisconnectedError
        if not self._body.ended:
            if exc is not None:
                raise aiohttp.ClientPayloadError("the connection broke")
            self._body.feed_end()
            self.is_received = True

    def _fail(self, error: Exception) -> None:
        """Keep what went wrong first."""
        if self.error is None:
            self.error = error
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _resume(self) -> None:
        if not self._is_lost:
            self._transport.resume_reading()


class HeadReader:
    """Waits for heads of answers; what a server says before it answers is left out."""

    __slots__ = ("_held", "_loop", "_parser", "_protocol")

    def __init__(self, protocol: BaseProtocol, loop: asyncio.AbstractEventLoop) -> None:
        """Begin before the first byte; the parser wants to know whose answer it is."""
        self._parser: HttpResponseParser | None = None
        self._protocol = protocol
        self._loop = loop
        self._held = b""

    def feed(self, data: bytes) -> tuple[RawResponseMessage, Body, bytes] | None:
        """Return the head, how its body is to be read, and what came behind it.

        Raises:
            aiohttp.ClientPayloadError: this is no HTTP.
        """
        # The end of the head may begin with what is already here.
        seen = max(0, len(self._held) - 2)
        if self._held:
            data, self._held = self._held + data, b""
        while (found := _HEAD_END.search(data, seen)) is not None:
            end = found.end()
            if self._parser is None:
                self._parser = HttpResponseParser(
                    self._protocol, self._loop, LARGEST_HEAD, response_with_body=False
                )
            try:
                messages, _, _ = self._parser.feed_data(data[:end])
            except HttpProcessingError:
                raise aiohttp.ClientPayloadError("the answer is no HTTP") from None
            if len(messages) != 1:
                raise aiohttp.ClientPayloadError("the answer is no HTTP")
            message: RawResponseMessage = messages[0][0]
            if message.should_close:
                # It takes nothing more, and what came may only be what comes before an answer.
                self._parser = None
            data, seen = data[end:], 0
            if message.code >= 200 or message.code == _SWITCHING_PROTOCOLS:
                return message, _read_body(message), data
        if len(data) > LARGEST_HEAD:
            raise aiohttp.ClientPayloadError("the head of the answer is too long")
        self._held = data
        return None


def _read_body(message: RawResponseMessage) -> Body:
    headers = message.headers
    body: Body
    if message.code < 200 or message.code in _BODILESS:
        return Sized(0, ended=True)
    if message.chunked:
        body = Chunked()
    elif "Content-Length" in headers and "Transfer-Encoding" not in headers:
        length = headers["Content-Length"]
        if not (length.isascii() and length.isdigit()):
            raise aiohttp.ClientPayloadError("the answer's length is no number")
        size = int(length)
        body = Sized(size, ended=size == 0)
    else:
        body = Open()
    return Packed(body, message.compression) if message.compression else body


class Sized(msgspec.Struct, gc=False):
    """A body of known length; one without length is there already."""

    _left: int
    ended: bool
    surplus: bool = False

    def feed(self, data: bytes) -> bytes:
        """Return what belongs to the body."""
        left = self._left - len(data)
        if left > 0:
            self._left = left
            return data
        data = data[: self._left]
        self._left = 0
        self.ended = True
        self.surplus = left < 0
        return data

    def feed_end(self) -> None:
        """Take the end of the connection."""
        if not self.ended:
            raise aiohttp.ClientPayloadError("the answer is shorter than it says")


class Closable(Protocol):
    """Something whose closing wakes the caller that waits for it."""

    def cut(self) -> None:
        """Close at once."""
        ...


class Watchdog:
    """Closes a connection when something takes longer than it may.

    One timer serves all waits of all its answers: a wait costs two assignments, and only
    when the timer goes off it is looked up whether the limit really passed. Closing the
    connection wakes the reader, which then asks `expired`; no task is cancelled.
    """

    __slots__ = ("_at", "_closable", "_handle", "_limit", "_loop", "_total", "expired")

    def __init__(self, closable: Closable) -> None:
        """Watch nothing yet."""
        self._loop = asyncio.get_running_loop()
        self._closable = closable
        self._total = self._limit = _NEVER
        self._handle: asyncio.TimerHandle | None = None
        self._at = inf
        self.expired: tuple[str, float] | None = None

    def begin(self, total: Limit) -> None:
        """Something new begins: close when it is not over in time; what was before is over."""
        self.expired = None
        self._total = self._limit = total
        if total[2] < self._at:
            self._set(total[2])

    def wait(self, limit: Limit) -> None:
        """The reader begins to wait: close when it still does when the limit is over."""
        if limit[2] >= self._total[2]:
            limit = self._total
        self._limit = limit
        if limit[2] < self._at:
            self._set(limit[2])

    def rest(self) -> None:
        """The reader does not wait; only the total limit counts."""
        self._limit = self._total

    def stop(self) -> None:
        """Watch no longer."""
        self._total = self._limit = _NEVER
        self._at = inf
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _set(self, at: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._at = at
        self._handle = self._loop.call_at(at, self._look)

    def _look(self) -> None:
        self._handle, self._at = None, inf
        phase, limit_s, due = self._limit
        if self._loop.time() < due:
            self._set(due)
            return
        self.expired = (phase, limit_s)
        self._closable.cut()
