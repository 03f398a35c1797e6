"""Who asks: the seam between a request over HTTP and a `Caller`.

The application authenticates every request once, before anything else is looked at, by one
`Authenticator`. On loopback that is `LoopbackToken`; keys and JWT are others, and
`FirstOf` lets several of them look at a request one after the other.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.client import make_token
from holdfast.errors import Unauthenticated
from holdfast.operations import OWNER, Caller


class RequestHead(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a request before its body is read."""

    method: str
    path: str
    headers: Mapping[str, str]
    """By lower-case name; of a header that came several times, the values joined by commas."""
    address: str = ""
    """Of the client, as far as trusted proxies say; empty where the socket has none."""
    scheme: str = "http"
    is_again: bool = False
    """Whether it was let in before, and is only looked at again: that counts against no limit."""


class Authenticator(Protocol):
    """Says in whose name a request is made."""

    async def authenticate(self, request: RequestHead) -> Caller:
        """Return the caller.

        Raises:
            Unauthenticated: it is none that is known; every reason looks the same outside.
            RateLimitError: too many attempts failed from there.
        """
        ...


class FirstOf:
    """Asks several authenticators; the first that knows the caller decides."""

    def __init__(self, authenticators: Sequence[Authenticator]) -> None:
        """Ask these, in this order."""
        self._authenticators = tuple(authenticators)

    async def authenticate(self, request: RequestHead) -> Caller:
        """Return the caller of the first that knows one; raises Unauthenticated."""
        for one in self._authenticators:
            try:
                return await one.authenticate(request)
            except Unauthenticated:
                continue
        raise Unauthenticated


class LoopbackToken:
    """The owner of the state directory: who can read its token file, mode 0600."""

    def __init__(self, base_dir: Path) -> None:
        """Take the token of this state directory; one is made if there is none."""
        self._token = make_token(base_dir)

    async def authenticate(self, request: RequestHead) -> Caller:
        """Return the owner if the request carries the token; raises Unauthenticated."""
        given = read_bearer(request.headers)
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            raise Unauthenticated
        return OWNER


def read_bearer(headers: Mapping[str, str]) -> str:
    """Return what stands behind `Bearer` in the Authorization header; empty if nothing does."""
    kind, _, value = headers.get("authorization", "").partition(" ")
    return value.strip() if kind.lower() == "bearer" else ""


__all__ = [
    "Authenticator",
    "FirstOf",
    "LoopbackToken",
    "RequestHead",
    "read_bearer",
]
