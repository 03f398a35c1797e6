"""One POST over a connection of aiohttp's pool, without aiohttp's request and response.

aiohttp opens the connection (names, TLS, proxies, keep-alive) and reads HTTP. What its
`ClientSession` does around that for each request (headers merged, cookies, redirects,
timers, a task that writes, request and response objects) costs more than both together
and is not wanted here: address and headers of a route stay the same, and the body is
bytes. See `docs/decisions/0011-posts-on-the-connection-pool.md`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from yarl import URL

from holdfast.providers.wire.endpoint import Endpoint
from holdfast.providers.wire.http import OUR_HEADERS, HttpTransport

_USED: Final = "holdfast_used"
_LINE_BREAK = re.compile(r"[\r\n\x00]")
_FRAMING = ("content-length", "transfer-encoding")
_SWITCHING_PROTOCOLS = 101


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


class Exchange:
    """A connection with one request and its answer: sent, read, given back.

    `close` gives the connection back to the pool if the answer was received to its end,
    and cuts it otherwise; whoever waits for more is woken then.
    """

    __slots__ = (
        "_connection",
        "_prepared",
        "_protocol",
        "content",
        "headers",
        "is_reused",
        "status",
    )

    content: aiohttp.StreamReader
    headers: Mapping[str, str]

    def __init__(
        self, connection: Connection, protocol: ResponseHandler, prepared: Prepared
    ) -> None:
        """Begin on a connection that nobody else uses."""
        self._connection: Connection | None = connection
        self._protocol = protocol
        self._prepared = prepared
        self.is_reused = hasattr(protocol, _USED)
        """It has served before, so it may be dead without our knowing."""
        self.status = 0

    async def post(self, body: bytes) -> None:
        """Send the request and wait for the head of the answer.

        Raises:
            aiohttp.ClientError: the connection broke, or the answer is no HTTP.
        """
        protocol = self._protocol
        transport = protocol.transport
        if transport is None:
            raise aiohttp.ServerDisconnectedError
        setattr(protocol, _USED, True)
        protocol.set_response_params(read_until_eof=True)
        transport.write(b"%b%d\r\n\r\n%b" % (self._prepared.head, len(body), body))
        try:
            message, content = await protocol.read()
            while 100 <= message.code < 200 and message.code != _SWITCHING_PROTOCOLS:
                message, content = await protocol.read()
        except aiohttp.http.HttpProcessingError:
            raise aiohttp.ClientPayloadError("the answer is no HTTP") from None
        self.headers, self.content = message.headers, content
        self.status = message.code

    def close(self) -> None:
        """Give the connection back, or cut it; a second time does nothing."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        closed = aiohttp.ClientConnectionError("Connection closed")
        if not self.status:
            self._protocol.set_exception(closed)
        elif self.content.is_eof() and self._is_sent():
            connection.release()
            return
        elif self.content.exception() is None:
            self.content.set_exception(closed)
        connection.close()

    def _is_sent(self) -> bool:
        """An answer may come before its request was read; the rest of that may not go on."""
        transport = self._protocol.transport
        return transport is not None and transport.get_write_buffer_size() == 0


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
