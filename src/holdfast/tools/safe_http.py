"""An HTTP client that cannot be talked into reaching what it should not (SSRF, DNS rebinding).

A name is resolved once, every address is checked, and the connection goes to a checked
address. Redirects are followed here, each with all checks again; nothing but harmless
headers goes to another host. No proxy, no cookies, no environment.

aiohttp, and yarl with it, take longer to import than everything else here together; they come
with the first request.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

import msgspec

from holdfast._version import __version__
from holdfast.clock import SYSTEM, Clock
from holdfast.errors import NetworkFailed, PermissionDenied, UsageError
from holdfast.policy import NetworkRules
from holdfast.tools.host_rates import HostRates
from holdfast.tools.http_body import ACCEPTED, BodyReader
from holdfast.tools.services import HttpRequest, HttpResponse

if TYPE_CHECKING:
    from yarl import URL

_MAX_REDIRECTS = 5
_MAX_ADDRESSES = 16
_MAX_URL = 8_000
_MAX_SECONDS = 600.0
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# Another host gets these headers and no others: any of them could carry a key.
_HARMLESS = frozenset({"accept", "accept-language", "user-agent", "content-type"})
_OURS = (
    r"host|content-length|transfer-encoding|connection|keep-alive|te|trailer|upgrade|expect|"
    r"accept-encoding|proxy-.*"
)
_NOT_IN_URLS = r"[\x00-\x20\x7f\\]"
_CREDENTIALS = r"[^/?#]*//[^/?#]*@"
_CHUNK = 64 * 1024


class Lookup(Protocol):
    """How a host name becomes addresses."""

    async def __call__(self, host: str, port: int) -> list[str]:
        """Return all addresses of a host."""
        ...


async def look_up_host(host: str, port: int) -> list[str]:
    """Ask the system's resolver."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


class CheckedUrl(msgspec.Struct, frozen=True, kw_only=True):
    """A URL that may be asked, and the addresses to which the connection may go."""

    url: URL
    addresses: tuple[str, ...]


class SafeHttpClient:
    """Fetches what the rules allow; one connection per request, so nothing is shared.

    Rules may be a function: it is asked once per request, so that new policies hold from
    the next request on.
    """

    def __init__(
        self,
        rules: NetworkRules | Callable[[], NetworkRules],
        *,
        lookup: Lookup = look_up_host,
        clock: Clock = SYSTEM,
        rates: HostRates | None = None,
    ) -> None:
        """Keep the rules; nothing is opened yet. Requests are counted in `rates`."""
        self._rules = rules
        self._lookup = lookup
        self._rates = rates or HostRates(clock)

    async def fetch(self, request: HttpRequest) -> HttpResponse:
        """Send a request, as `HttpClient.fetch` promises.

        Raises:
            PermissionDenied: a host or address on the way is not allowed.
            RateLimitError: the host was asked too often in the last minute.
            NetworkFailed: no answer in time, or none that can be used.
            UsageError: a method or header that a tool must not set.
        """
        from aiohttp import ClientError  # noqa: PLC0415 - see above

        _refuse_misuse(request)
        limit_s = min(request.timeout_s, _MAX_SECONDS)
        try:
            async with asyncio.timeout(limit_s):
                return await self._follow(request, self._read_current_rules())
        except TimeoutError as error:
            raise NetworkFailed(
                url=request.url, detail=f"no answer within {limit_s:g} s"
            ) from error
        except (ClientError, OSError, ValueError) as error:
            raise NetworkFailed(url=request.url, detail=str(error) or repr(error)) from error

    async def check(self, url: str) -> CheckedUrl:
        """Return where a request would go, without sending it; raises as `fetch` does."""
        try:
            return await self._check(url, self._read_current_rules())
        except (OSError, ValueError) as error:
            raise NetworkFailed(url=url, detail=str(error) or repr(error)) from error

    def _read_current_rules(self) -> NetworkRules:
        return self._rules if isinstance(self._rules, NetworkRules) else self._rules()

    async def _follow(self, request: HttpRequest, rules: NetworkRules) -> HttpResponse:
        from yarl import URL  # noqa: PLC0415 - see above

        method, body = request.method.upper(), request.body
        headers = {"User-Agent": f"holdfast/{__version__}", **request.headers}
        target = await self._check(request.url, rules)
        for _ in range(_MAX_REDIRECTS + 1):
            await self._rates.count(target.url.host or "", rules)
            response = await self._send(target, method, headers, body, request.max_bytes)
            location = response.headers.get("location", "")
            if response.status not in _REDIRECTS or not location:
                return response
            _refuse_strange(location)
            following = await self._check(str(target.url.join(URL(location))), rules)
            if response.status == 303 or (response.status in (301, 302) and method == "POST"):
                method, body = ("HEAD" if method == "HEAD" else "GET"), b""
                headers = {k: v for k, v in headers.items() if k.lower() != "content-type"}
            if following.url.origin() != target.url.origin():
                headers = {k: v for k, v in headers.items() if k.lower() in _HARMLESS}
                if body:
                    detail = "it redirects to another host, which would get the body"
                    raise NetworkFailed(url=request.url, detail=detail)
            target = following
        raise NetworkFailed(url=request.url, detail=f"more than {_MAX_REDIRECTS} redirects")

    async def _check(self, text: str, rules: NetworkRules) -> CheckedUrl:
        """Check scheme, host, port and every address of a URL."""
        from yarl import URL  # noqa: PLC0415 - see above

        _refuse_strange(text)
        url = URL(text)
        if url.scheme not in ("http", "https") or not url.host or not url.port:
            raise NetworkFailed(url=text[:200], detail="only http and https URLs can be fetched")
        if re.match(_CREDENTIALS, text):
            raise _make_denied(url.host, "the URL carries credentials")
        name = rules.check_host(url.host)
        rules.check_port(name, url.port)
        if "%" in name or (url.raw_host or "").removesuffix(".").lower() != name:
            # The parser of URLs and ours read different hosts: the address is a trick.
            raise _make_denied(url.host, "the host can be read in two ways")
        addresses = [name] if _is_literal(name) else await self._lookup(name, url.port)
        distinct = tuple(dict.fromkeys(addresses))
        if not distinct:
            raise NetworkFailed(url=text[:200], detail=f"{name} has no address")
        for address in distinct:
            # One bad address spoils the name: a resolver that answers so is up to something.
            rules.check_address(name, address)
        return CheckedUrl(url=url.with_host(name), addresses=distinct[:_MAX_ADDRESSES])

    async def _send(
        self,
        target: CheckedUrl,
        method: str,
        headers: Mapping[str, str],
        body: bytes,
        max_bytes: int,
    ) -> HttpResponse:
        import aiohttp  # noqa: PLC0415 - see above

        from holdfast.tools.pinned_resolver import PinnedResolver  # noqa: PLC0415 - see above

        connector = aiohttp.TCPConnector(
            resolver=PinnedResolver(target.url.raw_host, target.addresses),
            use_dns_cache=False,
            force_close=True,
            limit=1,
        )
        async with (
            aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None),
            ) as session,
            session.request(
                method,
                target.url,
                headers={**headers, "Accept-Encoding": ACCEPTED},
                data=body or None,
                allow_redirects=False,
            ) as response,
        ):
            reader = BodyReader(response.headers.get("Content-Encoding", ""), max_bytes)
            while not reader.is_full and (chunk := await response.content.read(_CHUNK)):
                reader.feed(chunk)
            return HttpResponse(
                url=str(response.url),
                status=response.status,
                headers={name.lower(): value for name, value in response.headers.items()},
                body=reader.body,
                is_truncated=reader.is_full or reader.is_cut,
            )


def _refuse_misuse(request: HttpRequest) -> None:
    if request.method.upper() not in _METHODS:
        raise UsageError(detail=f"The method {request.method[:20]!r} is not for tools.")
    for name in request.headers:
        if re.fullmatch(_OURS, name.strip(), re.IGNORECASE):
            raise UsageError(detail=f"The header {name[:40]!r} is set by the client itself.")


def _refuse_strange(url: str) -> None:
    """Spaces, controls and backslashes are read differently by different parsers."""
    if len(url) > _MAX_URL or re.search(_NOT_IN_URLS, url):
        raise NetworkFailed(url=url[:200], detail="it is no URL, or too long")


def _is_literal(host: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    except OSError:
        return False
    return True


def _make_denied(host: str, because: str) -> PermissionDenied:
    return PermissionDenied(permission="network", target=host[:200], because=because)
