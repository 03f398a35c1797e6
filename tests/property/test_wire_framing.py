"""Bodies are cut out of a connection as aiohttp would, whatever arrives in which pieces."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import aiohttp
import pytest
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpProcessingError, HttpResponseParser
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.providers.wire import framing
from holdfast.providers.wire.connection import HeadReader
from holdfast.providers.wire.framing import Body, Chunked

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
PLACES = st.lists(st.integers(0, 9999), max_size=20)
PIECES = st.sampled_from(
    [b"\r\n", b"\n", b"\r", b"0", b"5", b"a", b"F", b"1f", b"0005", b";", b";x=y", b" ", b"-1"]
    + [b"0x5", b"1_0", b"+5", b"hello", b"data: x\n\n", b"Trailer: yes", b"\x00", b"\xff"]
    + [b"5\r\nhello\r\n", b"0\r\n\r\n", b"5 \r\nhello\r\n", b"5\nhello\n", b"0\n\n"]
)
HOSTILE = st.lists(PIECES | st.binary(max_size=4), max_size=30).map(b"".join)


class Read(NamedTuple):
    """What became of an answer: its body, and whether it was whole, had more behind it, broke."""

    body: bytes
    ended: bool
    surplus: bool
    failed: bool


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in zip(edges, edges[1:], strict=False)]


def read(loop: asyncio.AbstractEventLoop, parts: list[bytes]) -> Read:
    """Read an answer as an exchange does."""
    head, body, found = HeadReader(BaseProtocol(loop), loop), None, b""
    ended = surplus = False
    try:
        for part in parts:
            if body is None:
                begun = head.feed(part)
                if begun is None:
                    continue
                _, body, part = begun
            if body.ended:
                surplus = surplus or bool(part)
            elif part:
                found += body.feed(part)
            ended, surplus = body.ended, surplus or body.surplus
    except aiohttp.ClientPayloadError:
        return Read(found, False, False, True)
    return Read(found, ended, surplus, False)


def read_by_aiohttp(loop: asyncio.AbstractEventLoop, data: bytes) -> Read:
    """Read an answer with aiohttp's parser and stream."""
    parser = HttpResponseParser(BaseProtocol(loop), loop, 2**16, read_until_eof=True)
    try:
        messages, _, _ = parser.feed_data(data)
    except HttpProcessingError:
        return Read(b"", False, False, True)
    if not messages:
        return Read(b"", False, False, False)
    payload = messages[0][1]
    if payload.exception() is not None:
        return Read(b"", False, False, True)
    return Read(payload.read_nowait(), payload.is_eof(), len(messages) > 1, False)


def chunked(pieces: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=12), PLACES)
def test_chunks_give_their_body_however_they_arrive(
    loop: asyncio.AbstractEventLoop, pieces: list[bytes], places: list[int]
) -> None:
    whole = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(pieces)
    expected = Read(b"".join(pieces), True, False, False)
    assert read(loop, cut(whole, places)) == expected == read_by_aiohttp(loop, whole)
    assert read(loop, cut(whole + b"x", places)).surplus
    assert not read(loop, cut(whole[:-1], places)).ended


@given(st.binary(max_size=200), PLACES)
def test_a_length_gives_its_body_however_it_arrives(
    loop: asyncio.AbstractEventLoop, body: bytes, places: list[int]
) -> None:
    whole = HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    assert read(loop, cut(whole, places)) == Read(body, True, False, False)
    assert read(loop, cut(whole + b"more", places)) == Read(body, True, True, False)
    assert not body or not read(loop, cut(whole[:-1], places)).ended


@given(HOSTILE, PLACES)
@example(b"5;" + b"x" * 5000 + b"\r\nhello\r\n0\r\n\r\n", [])
@example(b"5\r\nhello world\r\n0\r\n\r\n", [])
@example(b"0\r\n" + b"T: x\r\n" * 5000 + b"\r\n", [])
def test_what_is_taken_for_a_body_is_one_for_aiohttp_too(
    loop: asyncio.AbstractEventLoop, junk: bytes, places: list[int]
) -> None:
    whole = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + junk
    ours, theirs = read(loop, [whole]), read_by_aiohttp(loop, whole)
    parts = read(loop, cut(whole, places))
    assert parts.failed == ours.failed
    if not ours.failed:
        assert parts == ours
    if ours.ended and not ours.surplus:
        assert theirs == ours


@given(HOSTILE | st.binary(max_size=60), PLACES)
def test_any_head_is_read_or_refused(
    loop: asyncio.AbstractEventLoop, junk: bytes, places: list[int]
) -> None:
    for data in (junk, HEAD + junk, b"HTTP/1.1 " + junk + b"\r\n\r\n", HEAD + junk + b"\r\n\r\nx"):
        ours = read(loop, cut(data, places))
        if ours.ended and not ours.surplus:
            assert read_by_aiohttp(loop, data) == ours


@given(st.binary(max_size=300), PLACES, st.sampled_from(["gzip", "deflate", "raw"]))
def test_what_was_packed_unasked_is_unpacked(
    loop: asyncio.AbstractEventLoop, body: bytes, places: list[int], packing: str
) -> None:
    packed = zlib.compress(body) if packing == "deflate" else gzip.compress(body)
    if packing == "raw":
        raw = zlib.compressobj(wbits=-15)
        packed = raw.compress(body) + raw.flush()
    name = b"gzip" if packing == "gzip" else b"deflate"
    head = HEAD + b"Content-Encoding: %b\r\nContent-Length: %d\r\n\r\n" % (name, len(packed))
    assert read(loop, cut(head + packed, places)) == Read(body, True, False, False)


def test_a_packed_answer_cannot_fill_the_memory(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(framing, "_MOST_UNPACKED", 100_000)
    packed = gzip.compress(b"x" * 200_000)
    head = HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    assert read(loop, [head + packed]).failed
    head = HEAD + b"Content-Encoding: br\r\nContent-Length: 3\r\n\r\n"
    assert read(loop, [head + b"abc"]).failed


def test_a_line_that_never_ends_is_refused_soon() -> None:
    body: Body = Chunked()
    with pytest.raises(aiohttp.ClientPayloadError):
        for _ in range(10_000):
            body.feed(b"5;xx")
