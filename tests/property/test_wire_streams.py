"""Any bytes, in any chunking: never a crash, never more memory than allowed, one meaning."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import LLMError, LLMProtocolError
from holdfast.messages import Citation, TokenUsage
from holdfast.providers.model import Delta, ModelInfo
from holdfast.providers.wire import Endpoint
from holdfast.providers.wire.anthropic import AnthropicCodec
from holdfast.providers.wire.chat import ChatCodec
from holdfast.providers.wire.codec import QUEUED, Answer
from holdfast.providers.wire.responses import ResponsesCodec
from holdfast.providers.wire.sse import SseParser
from holdfast.testing.fake_server import Reply, ScriptedCall
from holdfast.testing.fake_wires import read_whole_body, stream_events
from tests.property.deltas import merged

CODECS = {"chat": ChatCodec, "responses": ResponsesCodec, "anthropic": AnthropicCodec}
WIRES = st.sampled_from(sorted(CODECS))
LIMIT = 1024
REPLY = Reply(
    text="Grüße aus 東京 🦀",
    reasoning="Überlegung",
    signature="sig",
    calls=(
        ScriptedCall(name="a", arguments='{"ü": "東"}', id="c1"),
        ScriptedCall(name="b", arguments='{"x": [1, 2', id="c2"),
    ),
    usage=TokenUsage(input=3, output=2, reasoning=1, cache_read=1),
    piece_chars=3,
)
PIECES = st.sampled_from(
    [b"data:", b"data: ", b"event: error", b"\n", b"\r", b"\r\n", b"\n\n", b":", b"\xef\xbb\xbf"]
    + [b"{", b"}", b'"error"', b"[DONE]", b"\xf0\x9f\xa6\x80", b"\xff", b"null", b"id: 1", b"x"]
)
HOSTILE = st.lists(PIECES | st.binary(max_size=8), max_size=60).map(b"".join)


def codec(wire: str) -> Any:
    endpoint = Endpoint(provider="p", base_url="http://h/v1", api=wire)  # type: ignore[arg-type]
    return CODECS[wire](endpoint, ModelInfo(provider="p", model="m"))


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in zip(edges, edges[1:], strict=False)]


def events_of(chunks: list[bytes], limit: int = LIMIT) -> tuple[list[bytes], bytes | None]:
    parser = SseParser("p", limit)
    found = [event for chunk in chunks for event in parser.feed(chunk)]
    return found + parser.flush(), parser.failed


def read(wire: str, chunks: list[bytes], *, listens: bool) -> tuple[Answer, list[Delta]]:
    decoder = codec(wire).decoder()
    parser = SseParser("p", 1 << 20)
    out: list[Delta] | None = [] if listens else None
    for chunk in chunks:
        decoder.feed(parser.feed(chunk), out)
    if not decoder.done:
        decoder.feed(parser.flush(), out)
    return decoder.finish(), out or []


@given(HOSTILE, st.lists(st.integers(0, 1000), max_size=20))
def test_events_do_not_depend_on_the_chunking(data: bytes, places: list[int]) -> None:
    assert events_of(cut(data, places)) == events_of([data])


@given(WIRES, st.sampled_from([b"\n", b"\r\n", b"\r"]), st.lists(st.integers(0, 9999)))
def test_a_message_does_not_depend_on_the_chunking(
    wire: str, end: bytes, places: list[int]
) -> None:
    recorded = b"".join(stream_events(wire, REPLY, "m"))  # type: ignore[arg-type]
    whole = recorded.replace(b"\n", end)
    expected, _ = read(wire, [recorded], listens=False)
    heard, deltas = read(wire, cut(whole, places), listens=True)
    quiet, none = read(wire, cut(whole, places), listens=False)
    assert heard == quiet == expected
    assert merged(deltas) == merged(read(wire, [recorded], listens=True)[1]) and none == []


@given(WIRES, HOSTILE, st.integers(0, 9999), st.booleans())
def test_a_damaged_stream_gives_the_whole_answer_or_a_clear_error(
    wire: str, junk: bytes, place: int, listens: bool
) -> None:
    recorded = b"".join(stream_events(wire, REPLY, "m"))  # type: ignore[arg-type]
    at = place % len(recorded)
    expected, _ = read(wire, [recorded], listens=False)
    for damaged in (recorded[:at], recorded[:at] + junk, junk + recorded[at:], junk):
        try:
            found, _ = read(wire, [damaged], listens=listens)
        except LLMError:
            continue
        assert found.stop_reason in ("stop", "length", "tool_calls", "filtered")
        if damaged == recorded[:at]:
            # Cut after everything that matters: only the usage may be missing.
            assert found.parts == expected.parts


@given(st.integers(0, 999), st.integers(0, 999), st.integers(1, 9), st.booleans())
def test_a_stream_in_the_background_that_is_taken_up_anywhere_is_the_same_answer(
    place: int, overlap: int, piece_chars: int, listens: bool
) -> None:
    """Cut after any event, and taken up with any number of the events that came before."""
    reply = msgspec.structs.replace(REPLY, piece_chars=piece_chars)
    events = [
        event.split(b"data: ", 1)[1].strip()
        for event in stream_events("responses", reply, "m", in_background=True)
    ]
    expected, said = read("responses", [b"data: %b\n\n" % e for e in events], listens=listens)
    at = 1 + place % (len(events) - 1)
    decoder = codec("responses").decoder()
    out: list[Delta] | None = [] if listens else None
    decoder.feed(events[:at], out)
    assert decoder.open_id == "resp_1" and decoder.finish().stop_reason == QUEUED
    assert decoder.heard == at - 1
    decoder.feed(events[at - overlap % (at + 1) :], out)
    assert decoder.finish() == expected and merged(out or []) == merged(said)
    assert decoder.open_id == ""


@given(
    WIRES,
    st.integers(1, 30),
    st.lists(st.integers(0, 9999)),
    st.text(max_size=20),
    st.text(max_size=20),
    st.lists(st.builds(Citation, kind=st.just("url_citation"), title=st.text(max_size=5))),
    st.booleans(),
)
def test_refusals_and_citations_are_the_same_however_they_came(
    wire: str,
    piece_chars: int,
    places: list[int],
    text: str,
    refusal: str,
    citations: list[Citation],
    listens: bool,
) -> None:
    cited = tuple(citations) if text else ()
    reply = Reply(text=text, refusal=refusal, citations=cited, piece_chars=piece_chars)
    whole = codec(wire).decode(read_whole_body(wire, reply, "m"))  # type: ignore[arg-type]
    stream = b"".join(stream_events(wire, reply, "m"))  # type: ignore[arg-type]
    found, _ = read(wire, cut(stream, places), listens=listens)
    assert found == whole
    assert (whole.refusal.text if whole.refusal else "") == refusal
    assert (whole.stop_reason == "filtered") == bool(refusal)
    assert [one for part in whole.parts for one in part.citations] == list(cited)  # type: ignore[union-attr]


@given(st.integers(1, 30), st.lists(st.integers(0, 9999)), st.text(max_size=9))
def test_a_paused_turn_goes_back_the_same_however_it_came(
    piece_chars: int, places: list[int], query: str
) -> None:
    arguments = msgspec.json.encode({"query": query}).decode()
    reply = msgspec.structs.replace(
        REPLY,
        calls=(),
        searches=(ScriptedCall(name="web_search", arguments=arguments),),
        stop_reason="paused",
        encrypted="b3BhcXVl",
        container="c",
        piece_chars=piece_chars,
    )
    whole = codec("anthropic").decode(read_whole_body("anthropic", reply, "m"))
    stream = b"".join(stream_events("anthropic", reply, "m"))
    found, _ = read("anthropic", cut(stream, places), listens=False)
    assert found == whole and found.sent_back == whole.sent_back
    assert whole.sent_back is not None and whole.sent_back["container"] == "c"
    assert whole.sent_back["content"][3]["input"] == {"query": query}


@given(WIRES, st.binary(max_size=300) | HOSTILE)
def test_any_body_is_an_answer_or_a_clear_error(wire: str, body: bytes) -> None:
    with pytest.raises(LLMError):
        codec(wire).decode(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "type error choices delta message content index id usage output item response"
                " tool_calls function name arguments finish_reason status text code"
                " content_block background sequence_number container citation citations annotations"
                " input stop_reason refusal".split()
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(WIRES, st.lists(JSON, max_size=4))
@settings(max_examples=200)
def test_any_json_is_an_answer_or_a_clear_error(wire: str, values: list[Any]) -> None:
    events = [msgspec.json.encode(value) for value in values]
    for deltas in ([], None):
        decoder = codec(wire).decoder()
        try:
            decoder.feed(events, deltas)
            decoder.finish()
        except LLMError:
            continue
    for event in events:
        try:
            codec(wire).decode(event)
        except LLMError:
            continue


@given(st.sampled_from([b"x", b"data: x", b"data: x\n", b"\r", b":c\n", b"\n"]), st.integers(1, 64))
@settings(max_examples=30, deadline=None)
def test_memory_is_bounded_whatever_comes(piece: bytes, repeat: int) -> None:
    parser = SseParser("p", LIMIT)
    chunk = piece * repeat
    tracemalloc.start()
    try:
        for _ in range(2 + 4 * LIMIT // len(chunk)):
            parser.feed(chunk)
            assert len(parser._buffer) <= LIMIT
    except LLMProtocolError:
        assert len(parser._buffer) <= LIMIT + len(chunk)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 128 * LIMIT
