"""What is checked of every request before anything else: how it addresses us, and from where.

`Host` is checked against DNS rebinding, `Origin` against scripts of foreign web pages; headers
of proxies are believed only where the proxy is on the list.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Final, TypeAlias

from holdfast.errors import RequestInvalid
from holdfast.server.http import Scope, ServerRequest
from holdfast.server.problems import ProblemRaised

_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(\d{1,5}))?")
_ANY: Final = frozenset({"0.0.0.0", "::", "[::]", ""})


class AddressGuard:
    """Knows by which names the server may be addressed, and from which pages."""

    def __init__(
        self,
        *,
        host: str,
        allowed_hosts: Sequence[str] = (),
        allowed_origins: Sequence[str] = (),
        trusted_proxies: Sequence[str] = (),
    ) -> None:
        """Let through what addresses `host`, loopback or an allowed name.

        Raises:
            RequestInvalid: a trusted proxy is no address and no network.
        """
        named = {one.lower() for one in allowed_hosts}
        self._hosts = _LOOPBACK | named | ({bracketed(host.lower())} - _ANY)
        self.origins = frozenset(one.rstrip("/").lower() for one in allowed_origins)
        self._proxies = tuple(_network(one) for one in trusted_proxies)

    def check(self, request: ServerRequest) -> None:
        """Return if the request addresses us by a name of ours, from a page that may ask.

        Raises:
            ProblemRaised: it does not (421), or the page may not (403).
        """
        host = request.headers.get("host", "")
        found = _HOST.fullmatch(host)
        if found is None or found[1].lower() not in self._hosts:
            raise ProblemRaised(
                421, "request.host", "this server is not addressed by this name; "
                "its operator names it in `server.allowed_hosts`",
            )  # fmt: skip
        origin = request.headers.get("origin", "")
        if origin and not self.is_allowed_origin(origin, host, request.head.scheme):
            raise ProblemRaised(
                403, "request.origin", "scripts of this page may not ask; "
                "the operator names pages in `server.allowed_origins`",
            )  # fmt: skip

    def is_allowed_origin(self, origin: str, host: str, scheme: str) -> bool:
        """Say whether a page may ask: it is ours, or on the list."""
        return origin.lower() in self.origins or origin.lower() == f"{scheme}://{host}".lower()

    def is_known_origin(self, origin: str) -> bool:
        """Say whether a page is on the list, and may read answers (CORS)."""
        return origin.lower() in self.origins

    def apply_proxy(self, scope: Scope) -> None:
        """Believe what a trusted proxy says of the client; what others say is ignored.

        The nearest address that is not a proxy of ours is the client's.
        """
        client = scope.get("client")
        if not self._proxies or not client or not self._is_proxy(client[0]):
            return
        headers = {n.lower(): v.decode("latin-1") for n, v in scope["headers"]}
        for hop in reversed(headers.get(b"x-forwarded-for", "").split(",")):
            address = hop.strip()
            if not _is_address(address):
                break
            scope["client"] = (address, 0)
            if not self._is_proxy(address):
                break
        scheme = headers.get(b"x-forwarded-proto", "").strip().lower()
        if scheme in ("http", "https"):
            scope["scheme"] = scheme
        host = headers.get(b"x-forwarded-host", "").strip()
        if host:
            kept = [(n, v) for n, v in scope["headers"] if n.lower() != b"host"]
            scope["headers"] = [*kept, (b"host", host.encode("latin-1"))]

    def _is_proxy(self, address: str) -> bool:
        if not _is_address(address):
            return False
        found = ipaddress.ip_address(address)
        return any(found in network for network in self._proxies)


def bracketed(host: str) -> str:
    """Return a host as it stands in a URL: IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach an address."""
    if host.lower() == "localhost":
        return True
    return _is_address(host.strip("[]")) and ipaddress.ip_address(host.strip("[]")).is_loopback


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _network(text: str) -> _Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        detail = f"server.trusted_proxies: {text!r} is no address and no network"
        raise RequestInvalid(detail=detail) from None


__all__ = ["AddressGuard", "bracketed", "is_loopback"]
