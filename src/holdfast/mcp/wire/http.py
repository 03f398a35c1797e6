"""A server at an address: streamable HTTP to that address, and to no other.

The SDK speaks through an HTTP client that we give it. That client asks before each request
where the connection may go, connects to one of those addresses, takes no proxy and nothing
else from the environment, and follows no redirect to another host.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

import httpx2
from mcp.client.streamable_http import streamable_http_client

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

MOST_BODY_BYTES: Final = 8 * 1024 * 1024
_POOL: Final = httpx2.Limits(max_connections=32, max_keepalive_connections=8)


class HttpLogin:
    """What logs in, and where it may ask."""

    def __init__(self, auth: httpx2.Auth, resolve: Callable[[str], Awaitable[str]]) -> None:
        """Log in by `auth`; `resolve` gives the address for each of its requests, or refuses."""
        self.auth = auth
        self.resolve = resolve


class Watched:
    """What the server's last answers said on the level of HTTP."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.status = 0

    @property
    def is_unauthorized(self) -> bool:
        """Whether the last answer asked for a token, or another one."""
        return self.status in (401, 403)

    @property
    def is_throttled(self) -> bool:
        """Whether the last answer said: too many requests."""
        return self.status == 429


@contextlib.asynccontextmanager
async def open_http_transport(
    url: str,
    *,
    resolve: Callable[[], Awaitable[str]],
    headers: Mapping[str, str],
    timeout_s: float,
    connect_timeout_s: float,
    watched: Watched,
    login: HttpLogin | None = None,
) -> AsyncIterator[TransportStreams]:
    """Exchange messages with a server; `resolve` gives the one address to connect to.

    What `resolve` raises ends the connection, so that it can refuse. With a `login` other hosts
    are asked too, those of its authorization server, at the address that it gives for them.
    """
    # Packed bodies are not asked for: a small one can unpack to a huge one.
    headers = {**headers, "Accept-Encoding": "identity"}
    timeout = httpx2.Timeout(connect_timeout_s, read=timeout_s)
    transport = _Pinned(httpx2.URL(url), resolve, watched, login)
    async with (
        httpx2.AsyncClient(
            headers=headers,
            timeout=timeout,
            transport=transport,
            auth=login.auth if login is not None else None,
            trust_env=False,
            follow_redirects=False,
        ) as client,
        streamable_http_client(
            url, http_client=client, max_sse_event_size=MOST_BODY_BYTES
        ) as streams,
    ):
        yield streams


class _Pinned(httpx2.AsyncBaseTransport):
    """Connects to the address that was checked, and reads no more than it should."""

    def __init__(
        self,
        url: httpx2.URL,
        resolve: Callable[[], Awaitable[str]],
        watched: Watched,
        login: HttpLogin | None = None,
    ) -> None:
        self._origin = (url.scheme, url.host, url.port)
        self._resolve = resolve
        self._watched = watched
        self._login = login
        self._inner = httpx2.AsyncHTTPTransport(trust_env=False, limits=_POOL)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request."""
        url = request.url
        is_own = (url.scheme, url.host, url.port) == self._origin
        if is_own:
            address = await self._resolve()
        elif self._login is not None:
            # The transport follows nothing to other hosts: only a login asks for them.
            address = await self._login.resolve(str(url))
        else:
            raise httpx2.UnsupportedProtocol(f"{url.host} is not the configured host")
        request.extensions = {**request.extensions, "sni_hostname": url.host}
        request.url = url.copy_with(host=address)
        response = await self._inner.handle_async_request(request)
        request.url = url
        if is_own:
            self._watched.status = response.status_code
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            raise httpx2.DecodingError("the answer is packed although that was not asked for")
        kind = response.headers.get("content-type", "").lower()
        if not kind.startswith("text/event-stream"):
            response.stream = _Bounded(response.stream)
        return response

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()


class _Bounded(httpx2.AsyncByteStream):
    """A body that ends with an error where it becomes too long."""

    def __init__(self, inner: object) -> None:
        if not isinstance(inner, httpx2.AsyncByteStream):
            raise httpx2.ProtocolError("the body is no stream")
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the body piece by piece."""
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > MOST_BODY_BYTES:
                raise httpx2.ReadError(f"the answer is longer than {MOST_BODY_BYTES} bytes")
            yield chunk

    async def aclose(self) -> None:
        """Close it."""
        await self._inner.aclose()


__all__ = ["MOST_BODY_BYTES", "HttpLogin", "Watched", "open_http_transport"]
