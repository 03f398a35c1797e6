"""Read the name that a TLS client asks for (SNI) out of its first message.

Nothing is decrypted: the first message of a client is in the clear. What hides the name there
(ECH, ESNI) or says it twice is refused by whoever asks here.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

MAX_HELLO: Final = 64 * 1024
_HANDSHAKE, _CHANGE_CIPHER, _APPLICATION = 22, 20, 23
_CLIENT_HELLO, _SERVER_HELLO = 1, 2
_MAX_RECORD: Final = 16_384
_SERVER_NAME: Final = 0
_HIDING: Final = frozenset({0xFE0D, 0xFFCE})
"""Encrypted Client Hello, and its draft ESNI: the name that counts is inside, unseen."""
_NAME: Final = re.compile(rb"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,252})")
# The random of a ServerHello that asks for another ClientHello (RFC 8446, 4.1.3).
_RETRY: Final = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
RETRY_BYTES: Final = 43
"""How much of the server's first bytes it takes to tell."""


class BadHello(Exception):
    """It is no ClientHello that can be read; `str()` says why."""


class ClientHello(msgspec.Struct, frozen=True, kw_only=True):
    """What the client asks for; `server_name` is empty if it names none.

    `size` is how many bytes of the stream it takes, with what stands before it.
    """

    server_name: str
    hides_name: bool
    size: int = 0


def read_hello(data: bytes, *, is_second: bool = False) -> ClientHello | None:
    """Return the ClientHello at the beginning of a stream; None if more bytes are needed.

    The second one, after a retry, may stand behind a record that changes nothing, and behind
    early data.

    Raises:
        BadHello: the stream does not begin so, or is malformed.
    """
    message = b""
    at = 0
    while True:
        if len(data) > MAX_HELLO and at + 5 > MAX_HELLO:
            raise BadHello("the first message is too long")
        if len(data) < at + 5:
            _check_start(data[at:], is_second=is_second)
            return None
        kind, major, length = data[at], data[at + 1], int.from_bytes(data[at + 3 : at + 5], "big")
        _check_start(data[at : at + 5], is_second=is_second)
        is_skipped = kind != _HANDSHAKE
        if is_skipped and message:
            raise BadHello("the first message is interrupted")
        if major != 3 or not 0 < length <= _MAX_RECORD + (256 if is_skipped else 0):
            raise BadHello("it is no TLS")
        body = data[at + 5 : at + 5 + length]
        if len(body) < length:
            return None
        at += 5 + length
        if is_skipped:
            continue
        message += body
        if message[0] != _CLIENT_HELLO:
            raise BadHello("it is another message of TLS")
        if len(message) >= 4:
            whole = 4 + int.from_bytes(message[1:4], "big")
            if whole > MAX_HELLO or len(message) > whole:
                raise BadHello("the first message is too long, or another one follows in it")
            if len(message) == whole:
                return msgspec.structs.replace(parse_hello(message[4:]), size=at)


def is_retry(data: bytes) -> bool:
    """Say whether the server's first bytes ask the client for another ClientHello."""
    return (
        len(data) >= RETRY_BYTES
        and data[0] == _HANDSHAKE
        and data[5] == _SERVER_HELLO
        and data[11:43] == _RETRY
    )


def parse_hello(body: bytes) -> ClientHello:
    """Read the body of a ClientHello.

    Raises:
        BadHello: a length does not fit, or an extension stands there twice.
    """
    fields = _Fields(body)
    fields.take(2 + 32)
    fields.vector(1)
    fields.vector(2)
    fields.vector(1)
    if fields.is_empty:
        return ClientHello(server_name="", hides_name=False)
    extensions = _Fields(fields.vector(2))
    fields.end()
    seen: set[int] = set()
    name = ""
    while not extensions.is_empty:
        kind = extensions.number(2)
        content = extensions.vector(2)
        if kind in seen:
            raise BadHello("an extension stands there twice")
        seen.add(kind)
        if kind == _SERVER_NAME:
            name = _find_server_name(content)
    return ClientHello(server_name=name, hides_name=bool(seen & _HIDING))


def _find_server_name(content: bytes) -> str:
    outer = _Fields(content)
    names = _Fields(outer.vector(2))
    outer.end()
    kind, name = names.number(1), names.vector(2)
    names.end()  # one name, and one only
    if kind != 0 or not _NAME.fullmatch(name):
        raise BadHello("the name in it is none")
    return name.decode("ascii")


def _check_start(head: bytes, *, is_second: bool) -> None:
    """Refuse what is no TLS as soon as that can be seen."""
    kinds = (_HANDSHAKE, _CHANGE_CIPHER, _APPLICATION) if is_second else (_HANDSHAKE,)
    if (head and head[0] not in kinds) or (len(head) > 1 and head[1] != 3):
        raise BadHello("it is no TLS")


class _Fields:
    """Takes numbers and vectors off the front of bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_empty(self) -> bool:
        return self._at == len(self._data)

    def take(self, count: int) -> bytes:
        if self._at + count > len(self._data):
            raise BadHello("it is cut off")
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int) -> bytes:
        return self.take(self.number(size))

    def end(self) -> None:
        if not self.is_empty:
            raise BadHello("something follows where nothing may")


__all__ = ["MAX_HELLO", "RETRY_BYTES", "BadHello", "ClientHello", "is_retry", "parse_hello"]
__all__ += ["read_hello"]
