"""Pieces found by their bytes are those that decoding finds: any layout, damage, chunking."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import LLMError
from holdfast.messages import ToolPart
from holdfast.providers.model import Delta, ModelInfo, TextDelta
from holdfast.providers.wire import Endpoint, repeats
from holdfast.providers.wire.anthropic import AnthropicCodec
from holdfast.providers.wire.chat import ChatCodec
from holdfast.providers.wire.codec import StreamDecoder
from holdfast.providers.wire.repeats import Pieces, Repeats
from holdfast.providers.wire.responses import ResponsesCodec
from holdfast.providers.wire.sse import SseParser
from holdfast.testing.fake_server import Reply, ScriptedCall
from holdfast.testing.fake_wires import stream_events
from tests.property.deltas import merged

CODECS = {"chat": ChatCodec, "responses": ResponsesCodec, "anthropic": AnthropicCodec}
WIRES = st.sampled_from(sorted(CODECS))
TEXT = st.text(max_size=12) | st.sampled_from(
    [
        'a "quoted" word \\ and / more\n\t',
        "\x00\x1f\x7f",
        "🦀🦀 東京 ü",
        "\\u00e9 \\ud83e",
        '","text":"x',
    ]
)
ODD = st.sampled_from(
    [
        rb"\ud83e",
        rb"\udd80",
        rb"\u00e9",
        rb"\u00",
        b"\\",
        b'"',
        b"\xf0\x9f",
        b"\xa6\x80",
        b"\xff",
        b"\n",
        b"\x00",
        b'","error":{"message":"no"},"x":"',
        b'"}}],"usage":{"prompt_tokens":7},"choices":[{"delta":{"content":"',
        b'","finish_reason":"length","x":"',
        b"5",
        b"",
    ]
)
EXTRA = st.sampled_from(
    [
        {},
        {"obfuscation": "aB3"},
        {"sequence_number": 7},
        {"sequence_number": 7, "obfuscation": "", "text": "other"},
        {"usage": {"prompt_tokens": 3}},
        {"error": {"message": "no", "code": 503}},
        {"type": 5},
        {"delta": "x"},
        {"index": "0"},
        {"choices": None},
    ]
)


@pytest.fixture(autouse=True, scope="module")
def short_answers_count() -> Iterator[None]:
    """Let the first events be learned from, as those of a long answer are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeats, "_OPENING_EVENTS", 0)
        yield


def new_decoder(wire: str) -> StreamDecoder:
    endpoint = Endpoint(provider="p", base_url="http://h/v1", api=wire)  # type: ignore[arg-type]
    return CODECS[wire](endpoint, ModelInfo(provider="p", model="m")).decoder()


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in zip(edges, edges[1:], strict=False)]


def outcome(wire: str, chunks: list[bytes], out: list[Delta] | None) -> tuple[Any, ...]:
    """What became of a stream: the answer or the error, and what was seen on the way."""
    decoder = new_decoder(wire)
    parser = SseParser("p", 1 << 20)
    seen = []
    try:
        for chunk in [*chunks, None]:
            events = parser.flush() if chunk is None else parser.feed(chunk)
            if not decoder.done:
                decoder.feed(events, out)
            seen.append((decoder.begun, decoder.done))
        answer = decoder.finish()
    except LLMError as error:
        return seen, type(error), error.to_dict()
    # A call that came without an id gets a new one each time.
    parts = [
        msgspec.structs.replace(part, call_id=part.call_id * (not part.call_id.startswith("call_")))
        if isinstance(part, ToolPart)
        else part
        for part in answer.parts
    ]
    return seen, parts, msgspec.structs.astuple(answer)[1:]


def same(wire: str, chunks: list[bytes]) -> None:
    """The answer is the one of a decoder that decodes each event, and so is what is heard."""
    decoded: list[Delta] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeats, "_MOST_FAILURES", 0)
        expected = outcome(wire, chunks, decoded)
    heard: list[Delta] = []
    assert outcome(wire, chunks, heard) == outcome(wire, chunks, None) == expected
    assert merged(heard) == merged(decoded)
    assert len(heard) <= len(decoded)


def laid_out(draw: Any, event: bytes) -> bytes:
    """The same event as another server might write it: order, blanks, escapes, more fields."""
    lines = event.rstrip(b"\n").split(b"\n")
    data = lines[-1].removeprefix(b"data: ")
    if data == b"[DONE]":
        return event
    value = shuffled(draw, {**json.loads(data), **draw(EXTRA)})
    style = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,", " : ")]))
    text = json.dumps(value, ensure_ascii=draw(st.booleans()), separators=style)
    return b"\n".join([*lines[:-1], b"data: " + text.encode("utf-8", "surrogatepass")]) + b"\n\n"


def shuffled(draw: Any, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    names = draw(st.permutations(list(value))) if draw(st.booleans()) else list(value)
    return {name: shuffled(draw, value[name]) for name in names}


@st.composite
def streams(draw: Any) -> tuple[str, bytes]:
    """A stream of one of the APIs, as some server might write it."""
    wire = draw(WIRES)
    reply = Reply(
        text=draw(TEXT),
        reasoning=draw(TEXT),
        calls=tuple(
            ScriptedCall(name=f"t{n}", arguments=draw(TEXT), id=f"c{n}")
            for n in range(draw(st.integers(0, 2)))
        ),
        piece_chars=draw(st.integers(1, 5)),
    )
    events = stream_events(wire, reply, "m")
    if draw(st.booleans()):
        events = [laid_out(draw, event) for event in events]
    return wire, b"".join(events)


@given(streams(), st.lists(st.integers(0, 9999), max_size=8))
@settings(deadline=None, max_examples=60)
def test_an_unheard_answer_is_the_heard_one(stream: tuple[str, bytes], places: list[int]) -> None:
    wire, data = stream
    same(wire, cut(data, places))


@given(streams(), st.lists(st.tuples(st.integers(0, 9999), ODD, st.integers(0, 3)), max_size=4))
@settings(deadline=None, max_examples=60)
def test_an_unheard_stream_is_damaged_in_the_same_way(
    stream: tuple[str, bytes], damage: list[tuple[int, bytes, int]]
) -> None:
    wire, data = stream
    for place, odd, lost in damage:
        at = place % (len(data) + 1)
        data = data[:at] + odd + data[at + lost :]
    same(wire, [data])


SHAPES = {
    "chat": '{"id":"i","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}',
    "responses": '{"type":"response.output_text.delta","sequence_number":5,"delta":"%s"}',
    "anthropic": '{"type":"content_block_delta","index":0,"delta":{"type":"t","text":"%s"}}',
}


@given(WIRES, st.lists(ODD | TEXT.map(lambda text: json.dumps(text)[1:-1].encode()), max_size=6))
@settings(deadline=None, max_examples=60)
def test_pieces_are_never_mended_by_their_neighbours(wire: str, pieces: list[bytes]) -> None:
    begun = stream_events(wire, Reply(text="Begun"), "m")  # type: ignore[arg-type]
    before, after = SHAPES[wire].encode().split(b"%s")
    said = [b"data: " + before + piece + after + b"\n\n" for piece in (b"known", *pieces)]
    # Behind the first piece of the fake answer, where a text is open in every API.
    place = next(n for n, event in enumerate(begun) if b"Begun" in event) + 1
    same(wire, [b"".join([*begun[:place], *said, *begun[place:]])])


REAL = [
    (
        "content",
        '{"id":"chatcmpl-B9","object":"chat.completion.chunk","created":1741569952,"model":"gpt",'
        '"service_tier":"default","system_fingerprint":"fp_1","choices":[{"index":0,"delta":'
        '{"content":"@"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"LETTERS"}',
    ),
    (
        "arguments",
        '{"id": "c", "choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": '
        '{"arguments": "@"}}]}}], "model": "m"}',
    ),
    (
        "reasoning_content",
        '{"choices":[{"finish_reason":null,"index":0,"delta":{"reasoning_content":"@"}}],'
        '"created":1,"id":"chatcmpl-x","object":"chat.completion.chunk"}',
    ),
    (
        "delta",
        '{"type":"response.output_text.delta","sequence_number":NUMBER,"item_id":"msg_1",'
        '"output_index":0,"content_index":0,"delta":"@","logprobs":[],"obfuscation":"LETTERS"}',
    ),
    (
        "text",
        '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"@"}BLANKS}',
    ),
    (
        "partial_json",
        '{"type":"content_block_delta","index":0,'
        '"delta":{"type":"input_json_delta","partial_json":"@"}}',
    ),
]


def written(layout: str, piece: str, number: int) -> bytes:
    """An event as the server writes the one with this number."""
    for word, value in (("NUMBER", f"{number}"), ("LETTERS", "aB3" * number)):
        layout = layout.replace(word, value)
    return layout.replace("BLANKS", " " * number).replace("@", piece).encode()


@pytest.mark.parametrize(("name", "layout"), REAL)
def test_what_real_servers_send_is_not_decoded_piece_by_piece(name: str, layout: str) -> None:
    known, kept = Repeats(), Pieces()
    event = written(layout, "one", 3)
    known.learn(event, name, lambda _: "a piece in its place", target=kept, delta=TextDelta)
    pieces = enumerate((r"two\n", r"drei \u00fc", "🦀", ""))
    events = [written(layout, piece, number) for number, piece in pieces]
    heard: list[Delta] = []
    assert known.take(events, 0, None) == known.take(events, 0, heard) == len(events)
    assert heard == [TextDelta("two\ndrei ü🦀")]
    for piece in (r"\ud83e", '"', "\\", "\n"):
        assert known.take([written(layout, piece, 9), *events], 0, None) == 0
        assert known.take([*events, written(layout, piece, 9)], 2, heard) == len(events)
    assert kept.text() == "two\ndrei ü🦀" * 2 + "🦀" * 4


def test_a_server_that_never_repeats_itself_is_not_studied_for_ever() -> None:
    known, asked, decoded = Repeats(), [], []

    def piece_of(event: bytes) -> str:
        asked.append(event)
        return "a piece in its place"

    events = [b'{"n":%d,"text":"x"}' % number for number in range(50)]
    for event in known.others(events, None):
        decoded.append(event)
        if known.wants:
            known.learn(event, "text", piece_of, target=Pieces(), delta=TextDelta)
    assert decoded == events and 0 < len(asked) < 10
