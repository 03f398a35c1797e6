"""One HTTP client per event loop, shared by all endpoints."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from holdfast.errors import ConfigError
from holdfast.providers.address import is_loopback
from holdfast.providers.wire.endpoint import Endpoint

# aiohttp, TLS and what reads the proxies of the machine take 0.1 s to load, which those who
# ask no model over HTTP shall not pay: here they are loaded with the first connection.
if TYPE_CHECKING:
    import ssl

    import aiohttp
    from aiohttp.client_reqrep import ConnectionKey

    from holdfast.providers.wire.connection import HttpConnection

KEEPALIVE_S = 60.0
"""How long a connection waits for its next request."""

OUR_HEADERS: Final = {
    # A compressed stream is delivered late and may unpack to anything.
    "Accept-Encoding": "identity",
    "User-Agent": "holdfast",
}


class Pool(NamedTuple):
    """The connections of one loop: what opens them, and those that wait for a request."""

    connector: aiohttp.BaseConnector
    idle: dict[ConnectionKey, list[HttpConnection]]


class HttpTransport:
    """Connections to providers: opened on first use, kept alive, reused.

    One session per event loop, so that one transport may serve several loops. Proxies
    come from the environment (`HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY`), looked up once
    per address; servers on this machine are never asked through one. Cookies are never
    kept; credentials of a netrc file are never used.
    """

    def __init__(self) -> None:
        """Nothing is opened yet."""
        self._sessions: dict[int, tuple[asyncio.AbstractEventLoop, aiohttp.ClientSession]] = {}
        self._pools: dict[asyncio.AbstractEventLoop, Pool] = {}
        self._proxies: dict[str, str | None] = {}
        self._tls: dict[tuple[bool, str], ssl.SSLContext | bool] = {}

    def session(self) -> aiohttp.ClientSession:
        """Return the session of the running loop, opening it on first use."""
        loop = asyncio.get_running_loop()
        entry = self._sessions.get(id(loop))
        if entry is not None and entry[0] is loop and not entry[1].closed:
            return entry[1]
        import aiohttp  # noqa: PLC0415 - see above

        session = aiohttp.ClientSession(
            # How many calls run at once is decided above (rate limits), not by the pool.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S),
            cookie_jar=aiohttp.DummyCookieJar(loop=loop),
            timeout=aiohttp.ClientTimeout(total=None),
            headers=OUR_HEADERS,
        )
        self._sessions[id(loop)] = (loop, session)
        return session

    def pool(self) -> Pool:
        """Return the connections of the running loop."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None or pool.connector.closed:
            connector = self.session().connector
            assert connector is not None
            pool = self._pools[loop] = Pool(connector, {})
        return pool

    def proxy(self, endpoint: Endpoint) -> str | None:
        """Return the proxy that the environment names for an endpoint, if any."""
        base_url = endpoint.base_url
        if base_url not in self._proxies:
            from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - see above

            parts = urlsplit(base_url)
            host = parts.hostname or ""
            # No proxy elsewhere can reach this machine's own address, nor may it see the call.
            bypass = is_loopback(host) or proxy_bypass(host) or proxy_bypass(parts.netloc)
            self._proxies[base_url] = None if bypass else getproxies().get(parts.scheme)
        return self._proxies[base_url]

    def tls(self, endpoint: Endpoint) -> ssl.SSLContext | bool:
        """Return how to check certificates: the system's way unless the endpoint says else."""
        wanted = (endpoint.verify_tls, endpoint.ca_file)
        if wanted not in self._tls:
            self._tls[wanted] = _make_tls_context(endpoint)
        return self._tls[wanted]

    async def close(self) -> None:
        """Close the connections of the running loop, and those whose loop has ended."""
        here = asyncio.get_running_loop()
        for key, (loop, session) in list(self._sessions.items()):
            if loop is here or loop.is_closed():
                del self._sessions[key]
                self._pools.pop(loop, None)
                await session.close()


def _make_tls_context(endpoint: Endpoint) -> ssl.SSLContext | bool:
    if not endpoint.verify_tls:
        return False
    if not endpoint.ca_file:
        return True
    import ssl  # noqa: PLC0415 - see above

    try:
        return ssl.create_default_context(cafile=endpoint.ca_file)
    except (OSError, ssl.SSLError) as error:
        detail = f"The certificates in {endpoint.ca_file!r} cannot be read: {error}"
        raise ConfigError(detail=detail) from error
