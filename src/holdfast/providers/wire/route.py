"""The way to one API method of an endpoint, and the connections that are kept for it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping

import aiohttp
from yarl import URL

from holdfast.providers.wire.connection import HttpConnection
from holdfast.providers.wire.endpoint import Endpoint
from holdfast.providers.wire.http import OUR_HEADERS, HttpTransport, Pool

_LINE_BREAK = re.compile(r"[\r\n\x00]")
_FRAMING = ("content-length", "transfer-encoding")


class _Way:
    """What all requests with one key on one loop have in common; shows itself to nobody."""

    __slots__ = ("head", "idle", "key", "loop", "pool", "request")

    def __init__(self, key: str, request: aiohttp.ClientRequest, pool: Pool) -> None:
        self.key = key
        self.request = request
        self.pool = pool
        self.loop = asyncio.get_running_loop()
        self.idle = pool.idle.setdefault(request.connection_key, [])
        head = _head(request)
        # With the first connection the pool adds what a proxy wants to know.
        self.head = head if request.proxy is None else b""


class Route:
    """The way to one API method of an endpoint; its head is made anew only for a new key."""

    __slots__ = ("_endpoint", "_headers", "_timeout", "_transport", "_url", "_way")

    def __init__(
        self, transport: HttpTransport, endpoint: Endpoint, path: str, headers: Mapping[str, str]
    ) -> None:
        """Prepare what does not depend on the key; nothing is opened."""
        self._transport = transport
        self._endpoint = endpoint
        self._url = URL(endpoint.url(path), encoded=True)
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
            TimeoutError: nobody took the connection in time.
            aiohttp.ClientError: there is nobody, or nobody to be trusted.
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
            # Something may have come while nobody had asked; it must not pass for an answer.
            if keeper is not None and not keeper.should_close:
                break
            connection.close()
        if not way.head:
            way.head = _head(way.request)
        line = HttpConnection(connection, keeper, way.idle, way.head)
        line.key = way.key
        return line

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
