"""The body of an answer, unpacked as it arrives and never beyond a limit."""

from __future__ import annotations

import zlib

_GZIP, _ZLIB, _RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
_PLAIN = frozenset({"", "identity"})
_PACKED = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": _ZLIB}
ACCEPTED = "gzip, deflate"


class BodyTooStrange(ValueError):
    """The body is packed in a way that was not asked for, or cannot be unpacked."""


class BodyReader:
    """Collects a body of at most `limit` bytes, counted packed and unpacked.

    A small packed body that unpacks to a huge one costs no more than the limit.
    """

    def __init__(self, encoding: str, limit: int) -> None:
        """Expect a body in this content encoding."""
        name = encoding.strip().lower()
        if name not in _PLAIN and name not in _PACKED:
            raise BodyTooStrange(f"the answer is packed as {name[:40]!r}")
        self._bits = _PACKED.get(name)
        self._unpacker = zlib.decompressobj(self._bits) if self._bits else None
        self._limit = limit
        self._body = bytearray()
        self._received = 0

    @property
    def is_full(self) -> bool:
        """Whether more than the limit came; the rest need not be read."""
        return len(self._body) > self._limit or self._received > self._limit

    @property
    def is_cut(self) -> bool:
        """Whether a packed body ended before its end."""
        return self._unpacker is not None and self._received > 0 and not self._unpacker.eof

    @property
    def body(self) -> bytes:
        """What came, at most up to the limit."""
        return bytes(self._body[: self._limit])

    def feed(self, chunk: bytes) -> None:
        """Take the next piece.

        Raises:
            BodyTooStrange: it cannot be unpacked.
        """
        self._received += len(chunk)
        if self._unpacker is None:
            self._body += chunk[: self._room]
            return
        try:
            self._unpack(chunk)
        except zlib.error as error:
            raise BodyTooStrange(f"the answer cannot be unpacked: {error}") from error

    @property
    def _room(self) -> int:
        """One byte more than allowed, so that too much can be told from just enough."""
        return max(0, self._limit + 1 - len(self._body))

    def _unpack(self, chunk: bytes) -> None:
        assert self._unpacker is not None
        while chunk and self._room:
            try:
                self._body += self._unpacker.decompress(chunk, self._room)
            except zlib.error:
                # Some servers send bare deflate where the standard wants it wrapped.
                if self._bits != _ZLIB or self._body:
                    raise
                self._bits = _RAW
                self._unpacker = zlib.decompressobj(_RAW)
                continue
            chunk = self._unpacker.unconsumed_tail
            if self._unpacker.eof:
                # Packed files may follow one another; anything else behind them is ignored.
                chunk = self._unpacker.unused_data
                if self._bits != _GZIP or not chunk.startswith(b"\x1f\x8b"):
                    return
                self._unpacker = zlib.decompressobj(_GZIP)
