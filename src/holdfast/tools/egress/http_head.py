"""Read the head of a request to a proxy so strictly that no two readers can differ.

Request smuggling lives on what one parser forgives and the next one reads otherwise: bare line
feeds, folded lines, two lengths, a Host that is not the target. Nothing is forgiven here, and
what goes on to the server is written anew from what was read.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

MAX_HEAD: Final = 32 * 1024
MAX_FIELDS: Final = 100
_MAX_PORT: Final = 65_535

_LINE: Final = re.compile(rb"([A-Z][A-Z-]{0,19}) ([\x21-\x7e]{1,8192}) HTTP/1\.([01])")
_FIELD: Final = re.compile(
    rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}):[ \t]*((?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]"
    rb"*[\x21-\x7e\x80-\xff])?)?)[ \t]*"
)
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?")
# No user, no zone, no escape: what is not here has more than one meaning somewhere.
_AUTHORITY: Final = re.compile(
    r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,252}))(?::([1-9][0-9]{0,4}))?"
)
_ABSOLUTE: Final = re.compile(r"http://([^/?#\\@]+)((?:[/?][^#\\]*)?)")
_LENGTH: Final = re.compile(r"[0-9]{1,15}")
# Between us and each side only, or ours to write.
_HOP: Final = frozenset(
    "connection keep-alive te trailer transfer-encoding upgrade expect host content-length "
    "http2-settings".split()
)
_RESPONSE_HOP: Final = frozenset({"connection", "keep-alive", "upgrade", "alt-svc"})
_NEVER: Final = frozenset({"TRACE", "TRACK", "PRI"})

Framing = Literal["none", "length", "chunked"]


class BadHead(Exception):
    """The head is refused; `str()` says why, `status` is the answer."""

    def __init__(self, because: str, status: int = 400) -> None:
        """Keep both."""
        super().__init__(because)
        self.status = status


class ProxyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was read; `host` is as it was written, and not judged yet."""

    method: str
    host: str
    port: int
    path: str = "/"
    fields: tuple[tuple[str, str], ...] = ()
    framing: Framing = "none"
    length: int = 0
    wants_continue: bool = False

    @property
    def is_tunnel(self) -> bool:
        """Whether it asks for a tunnel rather than a page."""
        return self.method == "CONNECT"

    def written(self, host: str) -> bytes:
        """The head as it goes to the server, for exactly one request on its connection."""
        shown = f"[{host}]" if ":" in host else host
        lines = [f"{self.method} {self.path} HTTP/1.1"]
        lines.append(f"Host: {shown}" if self.port == 80 else f"Host: {shown}:{self.port}")
        lines += [f"{name}: {value}" for name, value in self.fields]
        if self.framing == "length":
            lines.append(f"Content-Length: {self.length}")
        elif self.framing == "chunked":
            lines.append("Transfer-Encoding: chunked")
        return "\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1")


def parse_head(data: bytes) -> ProxyRequest:
    """Read a request's head up to and with its empty line.

    Raises:
        BadHead: it is no request to a proxy, or one that could be read in two ways.
    """
    first, fields = _split(data)
    line = _LINE.fullmatch(first)
    if line is None:
        raise BadHead("the request line is malformed")
    method, target = line[1].decode(), line[2].decode()
    if method in _NEVER:
        raise BadHead(f"{method} is not for proxies", 405)
    named = [value for name, value in fields if name == "host"]
    if len(named) > 1 or (not named and line[3] == b"1"):
        raise BadHead("a request has exactly one Host")
    path = "/"
    if method == "CONNECT":
        host, port = _parse_authority(target, 0)
    else:
        found = _ABSOLUTE.fullmatch(target)
        if found is None:
            raise BadHead("the target is no http:// address; for https use CONNECT")
        host, port = _parse_authority(found[1], 80)
        path = found[2] if found[2].startswith("/") else f"/{found[2]}"
    if named and _lower_host(_parse_authority(named[0], port)) != (host.lower(), port):
        raise BadHead("Host names another host than the target")
    framing, length = _find_framing(fields, is_old=line[3] == b"0")
    if method == "CONNECT" and (framing == "chunked" or length):
        raise BadHead("CONNECT has no body")
    return ProxyRequest(
        method=method,
        host=host,
        port=port,
        path=path,
        fields=_select_kept(fields, _HOP),
        framing=framing,
        length=length,
        wants_continue=("expect", "100-continue") in [(n, v.lower()) for n, v in fields],
    )


class ProxyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a server's answer, as the program gets it; `length` is None if not said."""

    status: int
    written: bytes
    length: int | None


def parse_answer(data: bytes) -> ProxyAnswer:
    """Read the head of a server's answer.

    Raises:
        BadHead: it is no head of HTTP/1, or says more than one length.
    """
    first, fields = _split(data)
    line = _STATUS.fullmatch(first)
    if line is None:
        raise BadHead("the server's answer is no HTTP/1", 502)
    lines = [first.decode("latin-1")]
    lines += [f"{name}: {value}" for name, value in _select_kept(fields, _RESPONSE_HOP)]
    coded = any(name == "transfer-encoding" for name, _ in fields)
    lengths = {value for name, value in fields if name == "content-length"}
    if len(lengths) > 1 or not all(map(_LENGTH.fullmatch, lengths)):
        raise BadHead("the server's answer has more than one length", 502)
    return ProxyAnswer(
        status=int(line[1]),
        written="\r\n".join([*lines, "connection: close", "", ""]).encode("latin-1"),
        length=int(lengths.pop()) if lengths and not coded else None,
    )


def _split(data: bytes) -> tuple[bytes, list[tuple[str, str]]]:
    """The first line, and the fields with their names in small letters."""
    if not data.endswith(b"\r\n\r\n") or len(data) > MAX_HEAD:
        raise BadHead("the head has no end, or is too long", 431)
    first, *lines = data[:-4].split(b"\r\n")
    if len(lines) > MAX_FIELDS:
        raise BadHead("too many fields", 431)
    fields: list[tuple[str, str]] = []
    for line in lines:
        found = _FIELD.fullmatch(line)
        if found is None:
            raise BadHead("a field is malformed")
        fields.append((found[1].decode().lower(), found[2].decode("latin-1")))
    return first, fields


def _parse_authority(text: str, default: int) -> tuple[str, int]:
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        raise BadHead("the host is malformed")
    port = int(found[2]) if found[2] else default
    if not 0 < port <= _MAX_PORT:
        raise BadHead("the port is missing, or is none")
    return found[1].removeprefix("[").removesuffix("]"), port


def _lower_host(found: tuple[str, int]) -> tuple[str, int]:
    return found[0].lower(), found[1]


def _find_framing(fields: list[tuple[str, str]], *, is_old: bool) -> tuple[Framing, int]:
    lengths = [value for name, value in fields if name == "content-length"]
    codings = [value for name, value in fields if name == "transfer-encoding"]
    if len(lengths) + len(codings) > 1:
        raise BadHead("the body has more than one length")
    if codings:
        if codings[0].lower() != "chunked" or is_old:
            raise BadHead("the body is encoded in another way than chunked")
        return "chunked", 0
    if not lengths:
        return "none", 0
    if not _LENGTH.fullmatch(lengths[0]):
        raise BadHead("the length of the body is no number")
    return "length", int(lengths[0])


def _select_kept(
    fields: list[tuple[str, str]], dropped: frozenset[str]
) -> tuple[tuple[str, str], ...]:
    """What goes on: not what holds between two sides only, nor what they say does."""
    named = {
        one.strip().lower()
        for name, value in fields
        if name == "connection"
        for one in value.split(",")
    }
    return tuple(
        (name, value)
        for name, value in fields
        if name not in dropped and name not in named and not name.startswith("proxy-")
    )


__all__ = [
    "MAX_HEAD",
    "BadHead",
    "Framing",
    "ProxyAnswer",
    "ProxyRequest",
    "parse_answer",
    "parse_head",
]
