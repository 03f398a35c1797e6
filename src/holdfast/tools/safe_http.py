"""An HTTP client that cannot be talked into reaching what it should not.

A name is resolved once, every address is checked, and the connection goes to a checked
address. Redirects are followed here, each with all checks again; credentials do not go
to another host. No proxy, no cookies, no environment.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Protocol

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from holdfast._version import __version__
from holdfast.errors import NetworkFailed, PermissionDenied
from holdfast.tools.network_rules import NetworkRules
from holdfast.tools.services import HttpRequest, HttpResponse

_MAX_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SECRET_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key"})
_CHUNK = 64 * 1024


class Lookup(Protocol):
    """How a host name becomes addresses."""

    async def __call__(self, host: str, port: int) -> list[str]:
        """Return all addresses of a host."""
        ...


async def system_lookup(host: str, port: int) -> list[str]:
    """Ask the system's resolver."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


class SafeHttpClient:
    """Fetches what the rules allow; one connection per request, so nothing is shared."""

    def __init__(self, rules: NetworkRules, *, lookup: Lookup = system_lookup) -> None:
        """Keep the rules; nothing is opened yet."""
        self._rules = rules
        self._lookup = lookup

    async def fetch(self, request: HttpRequest) -> HttpResponse:
        """Send a request, as `HttpClient.fetch` promises.

        Raises:
            PermissionDenied: a host or address on the way is not allowed.
            NetworkFailed: no answer in time, or none that can be used.
        """
        try:
            async with asyncio.timeout(request.timeout_s):
                return await self._follow(request)
        except TimeoutError as error:
            detail = f"no answer within {request.timeout_s:g} s"
            raise NetworkFailed(url=request.url, detail=detail) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NetworkFailed(url=request.url, detail=str(error) or repr(error)) from error

    async def _follow(self, request: HttpRequest) -> HttpResponse:
        url, method, body = self._checked_url(request.url), request.method, request.body
        headers = {"User-Agent": f"holdfast/{__version__}", **request.headers}
        for _ in range(_MAX_REDIRECTS + 1):
            response = await self._send(url, method, headers, body, request.max_bytes)
            location = response.headers.get("location", "")
            if response.status not in _REDIRECTS or not location:
                return response
            target = self._checked_url(str(url.join(URL(location))))
            if target.origin() != url.origin():
                headers = _without_secrets(headers)
            if response.status == 303 or (response.status in (301, 302) and method == "POST"):
                method, body = "GET", b""
            url = target
        raise NetworkFailed(url=request.url, detail=f"more than {_MAX_REDIRECTS} redirects")

    def _checked_url(self, text: str) -> URL:
        url = URL(text)
        if url.scheme not in ("http", "https") or not url.host:
            raise NetworkFailed(url=text[:200], detail="only http and https URLs can be fetched")
        if url.user or url.password:
            raise PermissionDenied(
                permission="network", target=url.host, because="the URL carries credentials"
            )
        self._rules.check_host(url.host)
        return url

    async def _send(
        self, url: URL, method: str, headers: Mapping[str, str], body: bytes, max_bytes: int
    ) -> HttpResponse:
        resolver = _CheckedResolver(self._rules, self._lookup)
        if url.host and _is_literal(url.host):
            self._rules.check_address(url.host, url.host)
        connector = aiohttp.TCPConnector(
            resolver=resolver, use_dns_cache=False, force_close=True, limit=1
        )
        async with (
            aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
            ) as session,
            session.request(
                method, url, headers=headers, data=body or None, allow_redirects=False
            ) as response,
        ):
            content = bytearray()
            async for chunk in response.content.iter_chunked(_CHUNK):
                content += chunk
                if len(content) > max_bytes:
                    break
            return HttpResponse(
                url=str(response.url),
                status=response.status,
                headers={name.lower(): value for name, value in response.headers.items()},
                body=bytes(content[:max_bytes]),
                is_truncated=len(content) > max_bytes,
            )


class _CheckedResolver(AbstractResolver):
    """Gives aiohttp only addresses that were checked; it connects to nothing else."""

    def __init__(self, rules: NetworkRules, lookup: Lookup) -> None:
        self._rules = rules
        self._lookup = lookup

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        addresses = list(dict.fromkeys(await self._lookup(host, port)))
        for address in addresses:
            # One bad address spoils the name: whoever answers so is up to something.
            self._rules.check_address(host, address)
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        """Nothing is held open."""


def _is_literal(host: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host.split("%")[0])
    except OSError:
        return False
    return True


def _without_secrets(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _SECRET_HEADERS}
