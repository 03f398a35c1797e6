"""Bodies of HTTP answers that do not say how long they are: in chunks, packed, or open.

A body is only cut out of what arrives. A piece of it goes on as soon as it is here, and all
that came with one read goes on as one.
"""

from __future__ import annotations

import re
import zlib
from typing import Protocol

import aiohttp
import msgspec

_LARGEST_LINE = 4 * 1024
"""Of the lines between chunks."""
_LARGEST_TRAILER = 16 * 1024
_MOST_UNPACKED = 16 * 1024 * 1024
"""What one read may unpack to."""

_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15}) *(?:;[^\r\n]*)?\r\n")
_EMPTY_LINE = b"\r\n"
_LAST_CHUNK = b"0\r\n\r\n"
_hex = b"%x".__mod__
_SIZE, _DATA, _DATA_END, _TRAILER = range(4)


class Body(Protocol):
    """The body of one answer, cut out of what arrives."""

    ended: bool
    """All of it has arrived."""
    surplus: bool
    """Something came behind it, so no caller can tell what the connection will say next."""

    def feed(self, data: bytes) -> bytes:
        """Return what belongs to the body.

        Raises:
            aiohttp.ClientPayloadError: this is no such body.
        """
        ...

    def feed_end(self) -> None:
        """Take the end of the connection.

        Raises:
            aiohttp.ClientPayloadError: the body is not whole.
        """
        ...


class Open(msgspec.Struct, gc=False):
    """A body that ends with its connection."""

    ended: bool = False
    surplus: bool = False

    def feed(self, data: bytes) -> bytes:
        """Return what belongs to the body: everything."""
        return data

    def feed_end(self) -> None:
        """Take the end of the connection."""
        self.ended = True


class Chunked(msgspec.Struct, gc=False):
    """A body in chunks that each say how long they are."""

    ended: bool = False
    surplus: bool = False
    _state: int = _SIZE
    _left: int = 0
    _rest: bytes = b""
    _trailer: int = 0

    def feed(self, data: bytes) -> bytes:
        """Return what belongs to the body, of all chunks that are here, whole or not."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        pieces: list[bytes] = []
        at, size = 0, len(data)
        has_looked = False
        while at < size and not self.ended:
            if self._state == _SIZE and not has_looked:
                has_looked = True
                pieces_here, at = _split_whole_chunks(data, at)
                pieces += pieces_here
                if data[at:] == _LAST_CHUNK:
                    self.ended = True
                    at = size
                continue
            if self._state == _SIZE:
                found = _CHUNK_SIZE.match(data, at)
                if found is not None and found.end() - at <= _LARGEST_LINE:
                    start = found.end()
                    end = start + int(found[1], 16)
                    if end > start and data.startswith(_EMPTY_LINE, end):
                        pieces.append(data[start:end])
                        at = end + 2
                        continue
            if self._state == _DATA:
                piece = data[at : at + self._left]
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if not self._left:
                    self._state = _DATA_END
            else:
                at = self._format_line(data, at)
        self.surplus = at < size and self.ended
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def feed_end(self) -> None:
        """Take the end of the connection."""
        if not self.ended:
            raise aiohttp.ClientPayloadError("the last chunk is missing")

    def _format_line(self, data: bytes, at: int) -> int:
        """Take a line that is no data; return where the next one begins."""
        stop = data.find(b"\n", at) + 1
        if (stop or len(data)) - at > _LARGEST_LINE:
            raise aiohttp.ClientPayloadError("a line between chunks is too long")
        if not stop:
            self._rest = data[at:]
            return len(data)
        line = data[at:stop]
        if self._state == _SIZE:
            found = _CHUNK_SIZE.fullmatch(line)
            if found is None:
                raise aiohttp.ClientPayloadError("a chunk has no size")
            self._left = int(found[1], 16)
            self._state = _DATA if self._left else _TRAILER
        elif self._state == _DATA_END:
            if line != _EMPTY_LINE:
                raise aiohttp.ClientPayloadError("a chunk is longer than it says")
            self._state = _SIZE
        else:
            self._trailer += len(line)
            self.ended = line == _EMPTY_LINE
            if self._trailer > _LARGEST_TRAILER:
                raise aiohttp.ClientPayloadError("the trailer is too long")
        return stop


def _split_whole_chunks(data: bytes, at: int) -> tuple[list[bytes], int]:
    """Return the chunks of `data` from `at` on, and where they end, if all are as most are.

    That is: whole, without a line break inside, their sizes in plain small letters. Whatever
    is not so is left where it is; so are the last one, which is empty, and a cut one.
    """
    lines = (data[at:] if at else data).split(_EMPTY_LINE)
    chunks = lines[1:-1:2]
    sizes = lines[: 2 * len(chunks) : 2]
    if b"0" in sizes:
        last = sizes.index(b"0")
        del sizes[last:], chunks[last:]
    if sizes != list(map(_hex, map(len, chunks))):
        return [], at
    breaks = 2 * len(_EMPTY_LINE) * len(chunks)
    return chunks, at + sum(map(len, sizes)) + sum(map(len, chunks)) + breaks


class Packed:
    """A body that was packed although no caller asked for that."""

    def __init__(self, body: Body, packing: str) -> None:
        """Unpack another body."""
        if packing not in ("gzip", "deflate"):
            raise aiohttp.ClientPayloadError("the answer is packed in a way that was not asked for")
        self._body = body
        self._is_gzip = packing == "gzip"
        self._unpacker: zlib._Decompress | None = None
        self.ended = False
        self.surplus = False

    def feed(self, data: bytes) -> bytes:
        """Return what belongs to the body, unpacked."""
        data = self._body.feed(data)
        self.ended, self.surplus = self._body.ended, self._body.surplus
        if self._unpacker is None and data:
            # Some send `deflate` without its head.
            is_plain = not self._is_gzip and data[0] & 15 != 8
            bits = -zlib.MAX_WBITS if is_plain else zlib.MAX_WBITS
            self._unpacker = zlib.decompressobj(bits + 16 if self._is_gzip else bits)
        if self._unpacker is None:
            return b""
        try:
            data = self._unpacker.decompress(data, _MOST_UNPACKED)
        except zlib.error:
            raise aiohttp.ClientPayloadError("the answer cannot be unpacked") from None
        if self._unpacker.unconsumed_tail:
            raise aiohttp.ClientPayloadError("the answer unpacks to too much")
        if self.ended and not self._unpacker.eof:
            raise aiohttp.ClientPayloadError("the answer is packed and not whole")
        return data

    def feed_end(self) -> None:
        """Take the end of the connection."""
        self._body.feed_end()
        if self._unpacker is not None and not self._unpacker.eof:
            raise aiohttp.ClientPayloadError("the answer is packed and not whole")
        self.ended = True
