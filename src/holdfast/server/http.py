"""Requests and answers over ASGI: the little of HTTP that the application needs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import IO, Any, Final, TypeAlias
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from holdfast.errors import RequestInvalid, RequestTimeout, RequestTooLarge
from holdfast.server.identity import RequestHead

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Middleware: TypeAlias = Callable[[AsgiApp], AsgiApp]
"""Takes an application and returns the one around it."""

JSON = "application/json"
PROBLEM = "application/problem+json"
_MOST_QUERY_FIELDS = 100
LEAST_BYTES_PER_S: Final = 1_000
"""A client that sends or takes less than this keeps a connection from others."""


class Disconnected(Exception):
    """The client has gone; there is nobody to answer."""


class ServerResponse(msgspec.Struct, frozen=True):
    """An answer that is there as a whole."""

    status: int
    body: bytes = b""
    media_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


class ServerRequest:
    """One request: its head, the words of its path, its query, and its body when it is read."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        """Take what the server hands over.

        Raises:
            RequestInvalid: the path cannot be meant, or a header came twice that must not.
        """
        self.scope = scope
        self.receive = receive
        self.headers = read_headers(scope["headers"])
        self.segments = read_path(scope)
        self.head = RequestHead(
            method=scope["method"],
            path="/" + "/".join(self.segments),
            headers=self.headers,
            address=scope["client"][0] if scope.get("client") else "",
            scheme=scope.get("scheme", "http"),
        )

    def read_query(self) -> list[tuple[str, str]]:
        """Return the pairs of the query, in order.

        Raises:
            RequestInvalid: it is no query, or has too many fields.
        """
        return read_pairs(self.scope.get("query_string", b""), "query")

    async def read_body(self, *, limit: int, timeout_s: float) -> bytes:
        """Return the whole body.

        Raises:
            RequestTooLarge: it is larger than `limit`; the rest is not read.
            RequestTimeout: it takes longer than `timeout_s`, and a second for each kilobyte.
            Disconnected: the client went away.
        """
        self.check_length(limit)
        chunks: list[bytes] = []
        size = 0
        more = True
        begun = asyncio.get_running_loop().time()
        while more:
            message = await self.read_chunk(timeout_s, begun=begun, size=size)
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > limit:
                raise RequestTooLarge(detail=f"the body is larger than {limit} bytes")
            chunks.append(chunk)
            more = message.get("more_body", False)
        return b"".join(chunks)

    async def spool_body(self, file: IO[bytes], *, limit: int, timeout_s: float) -> None:
        """Write the body to a file as it comes, in bounded memory; raises as `read_body`."""
        self.check_length(limit)
        size, more = 0, True
        begun = asyncio.get_running_loop().time()
        while more:
            message = await self.read_chunk(timeout_s, begun=begun, size=size)
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > limit:
                raise RequestTooLarge(detail=f"the body is larger than {limit} bytes")
            await asyncio.to_thread(file.write, chunk)
            more = message.get("more_body", False)
        await asyncio.to_thread(file.seek, 0)

    def check_length(self, limit: int) -> None:
        """Refuse a body that says itself that it is too large, before any of it is read."""
        length = self.headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            raise RequestInvalid(detail="Content-Length is no number")
        if len(length) > 15 or int(length) > limit:
            raise RequestTooLarge(detail=f"the body is larger than {limit} bytes")

    async def wait_gone(self) -> None:
        """Return when the client has gone; its body was read before."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def read_chunk(
        self, timeout_s: float, *, begun: float, size: int
    ) -> MutableMapping[str, Any]:
        """Return the next part of a body of which so much came; raises as `read_body`.

        Bytes that come one by one do not help: the body as a whole has its time.
        """
        try:
            async with asyncio.timeout_at(begun + timeout_s + size / LEAST_BYTES_PER_S):
                message = await self.receive()
        except TimeoutError:
            raise RequestTimeout(seconds=timeout_s) from None
        if message["type"] == "http.disconnect":
            raise Disconnected
        return message


def read_pairs(data: bytes, what: str) -> list[tuple[str, str]]:
    """Return the pairs of a query or a form, in order.

    Raises:
        RequestInvalid: it is none, or has too many fields.
    """
    try:
        text = data.decode("ascii")
        return parse_qsl(
            text,
            keep_blank_values=True,
            strict_parsing=bool(text),
            errors="strict",
            max_num_fields=_MOST_QUERY_FIELDS,
        )
    except ValueError as error:
        raise RequestInvalid(detail=f"the {what} cannot be read: {error}") from error


_ONCE = frozenset({"host", "authorization", "content-length", "content-type", "origin",
                   "last-event-id", "idempotency-key", "x-request-id"})  # fmt: skip


def read_headers(pairs: list[tuple[bytes, bytes]]) -> Mapping[str, str]:
    """Return headers by lower-case name; those that came several times are joined.

    Raises:
        RequestInvalid: one came twice of which only one can be meant.
    """
    found: dict[str, str] = {}
    for raw_name, raw_value in pairs:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if name in found:
            if name in _ONCE:
                raise RequestInvalid(detail=f"the header {name} came twice")
            value = f"{found[name]}{'; ' if name == 'cookie' else ', '}{value}"
        found[name] = value
    return found


def read_path(scope: Scope) -> tuple[str, ...]:
    """Return the words of a path, decoded one by one: none is empty, `.` or `..`, or has a slash.

    Raises:
        RequestInvalid: it is not such a path; it is refused rather than tidied up, since others
            on the way may tidy up differently.
    """
    raw = scope.get("raw_path") or scope["path"].encode()
    root = scope.get("root_path", "").encode()
    if root and raw.startswith(root + b"/"):
        raw = raw[len(root) :]
    if raw == b"/":
        return ()
    if not raw.startswith(b"/"):
        raise RequestInvalid(detail="the path does not begin with a slash")
    words = []
    for part in raw[1:].split(b"/"):
        try:
            word = unquote_to_bytes(part).decode()
        except UnicodeDecodeError:
            raise RequestInvalid(detail="the path is no UTF-8") from None
        if word in ("", ".", "..") or any(c in "/\\" or not c.isprintable() for c in word):
            raise RequestInvalid(detail="the path has a part that names nothing")
        words.append(word)
    return tuple(words)


async def send_response(
    send: Send, response: ServerResponse, *, is_head: bool, common: list[tuple[bytes, bytes]]
) -> None:
    """Send a whole answer, with the headers that every answer has."""
    headers = [*common, *((n.encode(), v.encode("latin-1")) for n, v in response.headers)]
    if response.status != 204:
        headers.append((b"content-type", response.media_type.encode()))
        headers.append((b"content-length", str(len(response.body)).encode()))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    body = b"" if is_head or response.status == 204 else response.body
    await send({"type": "http.response.body", "body": body})


__all__ = [
    "JSON",
    "LEAST_BYTES_PER_S",
    "PROBLEM",
    "AsgiApp",
    "Disconnected",
    "Middleware",
    "Receive",
    "Scope",
    "Send",
    "ServerRequest",
    "ServerResponse",
    "read_pairs",
    "send_response",
]
