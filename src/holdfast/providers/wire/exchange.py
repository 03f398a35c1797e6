"""One POST over a connection of aiohttp's pool, without aiohttp's request and response.

aiohttp opens the connection (names, TLS, proxies, keep-alive) and reads HTTP. What its
`ClientSession` does around that for each request (headers merged, cookies, redirects,
timers, a task that writes, request and response objects) costs more than both together
and is not wanted here: address and headers of a route stay the same, and the body is
bytes. See `docs/decisions/0011-posts-on-the-connection-pool.md`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Final

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from yarl import URL

from holdfast.providers.wire.endpoint import Endpoint
from holdfast.providers.wire.framing import Body, HeadReader
from holdfast.providers.wire.http import OUR_HEADERS, HttpTransport

_USED: Final = "holdfast_used"
_LINE_BREAK = re.compile(r"[\r\n\x00]")
_FRAMING = ("content-length", "transfer-encoding")
_OK = 200
_MOST_HELD = 256 * 1024
"""When so much of an answer waits to be read, no more is taken from the connection."""


class Prepared:
    """What all requests with one key have in common; shows itself to nobody."""

    __slots__ = ("_head", "key", "request")

    def __init__(self, key: str, request: aiohttp.ClientRequest) -> None:
        """Keep where to go, and with which key."""
        self.key = key
        self.request = request
        self._head = b""

    @property
    def head(self) -> bytes:
        """Everything that goes before the body's length, made when it is first sent.

        Not earlier: with the first connection the pool adds what a proxy wants to know.
        """
        if not self._head:
            self._head = _head(self.request)
        return self._head


class Exchange(asyncio.Protocol):
    """A connection with one request and its answer: sent, read, given back.

    The pool's own protocol is set aside for that time and hears only when the connection is
    lost. What arrives waits here until it is read; a reader that is slow slows the sender.

    `close` gives the connection back to the pool if the answer was received to its end,
    and cuts it otherwise; whoever waits for more is woken then.
    """

    __slots__ = (
        "_body",
        "_connection",
        "_error",
        "_head",
        "_is_last",
        "_is_lost",
        "_keeper",
        "_loop",
        "_pieces",
        "_prepared",
        "_size",
        "_transport",
        "_waiter",
        "headers",
        "is_reused",
        "status",
    )

    headers: Mapping[str, str]

    def __init__(self, connection: Connection, keeper: ResponseHandler, prepared: Prepared) -> None:
        """Begin on a connection that nobody else uses."""
        self._connection: Connection | None = connection
        self._keeper = keeper
        self._prepared = prepared
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._head = HeadReader(keeper, self._loop)
        self._body: Body | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._is_lost = False
        self._is_last = False
        self.is_reused = hasattr(keeper, _USED)
        """It has served before, so it may be dead without our knowing."""
        self.status = 0

    async def post(self, body: bytes) -> None:
        """Send the request and wait for the head of the answer.

        Raises:
            aiohttp.ClientError: the connection broke, or the answer is no HTTP.
        """
        transport = self._keeper.transport
        if transport is None:
            raise aiohttp.ServerDisconnectedError
        head = self._prepared.head
        setattr(self._keeper, _USED, True)
        self._transport = transport
        transport.set_protocol(self)
        transport.write(b"%b%d\r\n\r\n%b" % (head, len(body), body))
        while self._body is None:
            if self._error is not None:
                raise self._error
            self._waiter = self._loop.create_future()
            await self._waiter

    @property
    def is_received(self) -> bool:
        """The answer has arrived to its end, though perhaps it is not all taken."""
        return self._body is not None and self._body.ended

    @property
    def is_read(self) -> bool:
        """The answer has arrived to its end, and all of it is taken."""
        return not self._pieces and self._body is not None and self._body.ended

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

    async def read(self) -> bytes:
        """Return what comes next of the body, as soon as it is here; empty at the end.

        Raises:
            aiohttp.ClientError: the connection broke, or was cut.
        """
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self._body is not None and self._body.ended:
                break
            self._waiter = self._loop.create_future()
            await self._waiter
        return self.take()

    def close(self) -> None:
        """Give the connection back, or cut it; a second time does nothing."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        is_reusable = self._is_reusable()
        if self._transport is not None and not self._is_lost:
            self._transport.set_protocol(self._keeper)
        if is_reusable:
            if self._size > _MOST_HELD:
                self._resume()
            connection.release()
            return
        if self._error is None:
            self._error = aiohttp.ClientConnectionError("Connection closed")
        self._wake()
        connection.close()

    def _is_reusable(self) -> bool:
        body, transport = self._body, self._transport
        if body is None or transport is None or self._error is not None:
            return False
        if self._is_lost or self._is_last:
            return False
        # An answer may come before its request was read; the rest of that may not go on.
        return body.ended and not body.surplus and transport.get_write_buffer_size() == 0

    # --- what the transport calls ------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take what the connection says, and wake the reader if that is worth it."""
        if self._error is not None:
            return
        if type(data) is not bytes:
            data = bytes(data)  # Some loops hand out their buffer.
        body = self._body
        try:
            if body is None or body.ended:
                piece = self._begin(data)
            else:
                piece = body.feed(data)
        except aiohttp.ClientPayloadError as error:
            self._fail(error)
            return
        if piece:
            self._pieces.append(piece)
            self._size += len(piece)
            if self._size > _MOST_HELD and self._transport is not None:
                self._transport.pause_reading()
        elif body is not None and not body.ended:
            return
        waiter = self._waiter
        if waiter is not None and self._body is not None and not waiter.done():
            waiter.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take the end of the connection, and tell the pool."""
        self._is_lost = True
        if self._error is None:
            try:
                self._end(exc)
            except aiohttp.ClientError as error:
                self._fail(error)
        self._wake()
        self._keeper.connection_lost(exc)

    def _begin(self, data: bytes) -> bytes:
        """Read the head; return what there is of the body. Behind a body nothing may come."""
        if self._body is None:
            found = self._head.feed(data)
            if found is None:
                return b""
            message, self._body, data = found
            self._is_last = message.should_close or message.code < _OK
            self.headers, self.status = message.headers, message.code
        if self._body.ended:
            self._body.surplus = self._body.surplus or bool(data)
            return b""
        return self._body.feed(data) if data else b""

    def _end(self, exc: Exception | None) -> None:
        if self._body is None:
            if isinstance(exc, OSError):
                raise aiohttp.ClientOSError(*exc.args)
            raise aiohttp.ServerDisconnectedError
        if not self._body.ended:
            if exc is not None:
                raise aiohttp.ClientPayloadError("the connection broke")
            self._body.feed_end()

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _resume(self) -> None:
        if self._transport is not None and not self._is_lost:
            self._transport.resume_reading()


class Route:
    """The way to one API method of an endpoint; its head is made anew only for a new key."""

    __slots__ = ("_endpoint", "_headers", "_prepared", "_timeout", "_transport", "_url")

    def __init__(
        self, transport: HttpTransport, endpoint: Endpoint, path: str, headers: Mapping[str, str]
    ) -> None:
        """Prepare what does not depend on the key; nothing is opened."""
        self._transport = transport
        self._endpoint = endpoint
        self._url = URL(endpoint.url(path), encoded=True)
        self._headers = headers
        self._timeout = aiohttp.ClientTimeout(total=None, connect=endpoint.timeouts.connect_s)
        self._prepared: Prepared | None = None

    async def connect(self, within_s: float | None = None) -> Exchange:
        """Take a connection from the pool or open one, within the endpoint's limit or less.

        Raises:
            TimeoutError: nobody took the connection in time.
            aiohttp.ClientError: there is nobody, or nobody to be trusted.
        """
        timeout = self._timeout
        if within_s is not None:
            timeout = aiohttp.ClientTimeout(total=None, connect=within_s)
        pool = self._transport.pool()
        prepared = self._prepared
        key = self._endpoint.key.reveal()
        if prepared is None or prepared.key != key:
            prepared = self._prepared = Prepared(key, self._request())
        while True:
            connection = await pool.connect(prepared.request, [], timeout)
            protocol = connection.protocol
            assert protocol is not None
            exchange = Exchange(connection, protocol, prepared)
            if not (exchange.is_reused and protocol.should_close):
                return exchange
            # Something came while nobody had asked; it must not pass for an answer.
            exchange.close()

    def _request(self) -> aiohttp.ClientRequest:
        """Say in aiohttp's words where to go; it adds `Host` and the like."""
        endpoint = self._endpoint
        json = {"Content-Type": "application/json"}
        headers: dict[str, tuple[str, str]] = {}
        for more in (OUR_HEADERS, json, self._headers, endpoint.auth_headers(), endpoint.headers):
            headers.update((name.lower(), (name, value)) for name, value in more.items())
        proxy = self._transport.proxy(endpoint)
        return aiohttp.ClientRequest(
            "POST",
            self._url,
            headers=dict(headers.values()),
            proxy=URL(proxy) if proxy else None,
            ssl=self._transport.tls(endpoint),
        )


def _head(request: aiohttp.ClientRequest) -> bytes:
    """Return everything that goes before the body's length."""
    is_absolute = request.proxy is not None and not request.is_ssl()
    target = str(request.url) if is_absolute else request.url.raw_path_qs
    lines = [f"POST {target} HTTP/1.1"]
    for name, value in request.headers.items():
        if name.lower() not in _FRAMING:
            lines.append(f"{name}: {value}")
    if any(_LINE_BREAK.search(line) for line in lines):
        raise ValueError("a header holds a line break")
    return "\r\n".join([*lines, "Content-Length: "]).encode()
