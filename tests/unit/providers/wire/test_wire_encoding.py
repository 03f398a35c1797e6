"""Each message is encoded once; odd answers of compatible servers are understood."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from wire_kit import WIRES, ask, user

from holdfast.errors import LLMBadRequest, LLMOverloaded, LLMProtocolError
from holdfast.messages import (
    AgentPart,
    CompactionPart,
    FilePart,
    Message,
    ReasoningPart,
    TextPart,
    TokenUsage,
    ToolPart,
    ToolSpec,
)
from holdfast.providers.model import ModelInfo
from holdfast.providers.wire import Endpoint
from holdfast.providers.wire.anthropic import AnthropicCodec
from holdfast.providers.wire.chat import ChatCodec
from holdfast.providers.wire.codec import EncodedCache, Fragment
from holdfast.providers.wire.responses import ResponsesCodec
from holdfast.providers.wire.schema import close_schema, is_strict
from holdfast.testing.fake_rules import check_request
from holdfast.testing.fake_wires import Reply, Wire, read_whole_body, stream_events

CODECS = {"chat": ChatCodec, "responses": ResponsesCodec, "anthropic": AnthropicCodec}
INFO = ModelInfo(provider="p", model="m")
HEADERS = {"Content-Type": "application/json", "anthropic-version": "2023-06-01"}


def codec(wire: str = "chat", **changes: Any) -> Any:
    return CODECS[wire](Endpoint(provider="p", base_url="http://h/v1", api=wire, **changes), INFO)


def message(role: str, *parts: Any, **more: Any) -> Message:
    return Message(id="m", session_id="s", role=role, parts=parts, **more)  # type: ignore[arg-type]


def chat_stream(*chunks: dict[str, Any]) -> Any:
    decoder = codec().decoder()
    decoder.feed([msgspec.json.encode(chunk) for chunk in chunks], None)
    return decoder.finish()


def choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call(
    index: int | None, call_id: str | None, name: str | None, arguments: Any
) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    made: dict[str, Any] = {"function": function}
    if index is not None:
        made["index"] = index
    if call_id is not None:
        made["id"] = call_id
    return choice({"tool_calls": [made]})


# --- encoding ------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
def test_a_message_is_encoded_once_in_its_life(wire: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = codec(wire)
    counted: list[str] = []
    original = type(made).fragment

    def counting(self: Any, message: Message) -> Any:
        counted.append(message.id)
        return original(self, message)

    monkeypatch.setattr(type(made), "fragment", counting)
    messages = [user(f"Number {n}") for n in range(200)]
    bodies = [made.encode(ask(*messages[: n + 1]), stream=True) for n in range(200)]
    assert len(counted) == 200
    fresh = codec(wire).encode(ask(*messages), stream=True)
    assert bodies[-1] == fresh


@pytest.mark.parametrize("wire", WIRES)
def test_parts_that_are_not_for_the_model_are_left_out(wire: str) -> None:
    parts = (AgentPart(name="a"), CompactionPart(summary="So far."), TextPart(text="Go on."))
    body = codec(wire).encode(ask(message("user", *parts)), stream=False)
    assert b"So far." in body and b"Go on." in body and b"agent" not in body


@pytest.mark.parametrize("wire", WIRES)
def test_an_empty_message_is_left_out(wire: str) -> None:
    empty = [message(role) for role in ("assistant", "user", "assistant")]
    data = msgspec.json.decode(codec(wire).encode(ask(user(), *empty), stream=False))
    assert len(data["input" if wire == "responses" else "messages"]) == 1


def test_anthropic_turns_join_neighbours_of_one_role() -> None:
    results = [
        message("tool", ToolPart(call_id=c, tool="t", state="completed", output=c)) for c in "ab"
    ]
    said = message("assistant", *(ToolPart(call_id=c, tool="t") for c in "ab"))
    body = codec("anthropic").encode(ask(user(), said, *results, user("Go on.")), stream=False)
    turns = msgspec.json.decode(body)["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    kinds = [block["type"] for block in turns[2]["content"]]
    assert kinds == ["tool_result", "tool_result", "text"]


def test_broken_arguments_go_back_as_a_field() -> None:
    said = message("assistant", ToolPart(call_id="c", tool="t", raw_input='{"a":'))
    for wire in WIRES:
        body = codec(wire).encode(ask(user(), said), stream=False)
        assert b"invalid_arguments" in body


def test_the_phase_of_a_text_goes_back() -> None:
    said = message("assistant", TextPart(text="Hm."), metadata={"phases": ["commentary"]})
    data = msgspec.json.decode(codec("responses").encode(ask(user(), said), stream=False))
    assert data["input"][1]["phase"] == "commentary"


def test_reasoning_without_ciphertext_does_not_go_to_responses() -> None:
    said = message("assistant", ReasoningPart(text="t", signature="rs_1"), TextPart(text="Hm."))
    assert b"rs_1" not in codec("responses").encode(ask(user(), said), stream=False)


def test_chat_takes_audio_but_no_other_file_by_address() -> None:
    sound = FilePart(media_type="audio/wav", data=b"wav")
    assert b"input_audio" in codec().encode(ask(message("user", sound)), stream=False)
    paper = FilePart(media_type="application/pdf", url="https://h/a.pdf")
    with pytest.raises(LLMBadRequest):
        codec().encode(ask(message("user", paper)), stream=False)
    assert b"file_url" in codec("responses").encode(ask(message("user", paper)), stream=False)
    assert b'"url"' in codec("anthropic").encode(ask(message("user", paper)), stream=False)


def test_a_data_address_is_unpacked_for_anthropic() -> None:
    image = FilePart(media_type="image/png", url="data:image/jpeg;base64,QUJD")
    data = msgspec.json.decode(codec("anthropic").encode(ask(message("user", image)), stream=False))
    source = data["messages"][0]["content"][0]["source"]
    assert source == {"type": "base64", "media_type": "image/jpeg", "data": "QUJD"}


def test_stop_sequences_are_refused_where_they_do_not_exist() -> None:
    with pytest.raises(LLMBadRequest):
        codec("responses").encode(ask(stop=("END",)), stream=False)


def test_anthropic_effort_may_be_a_budget() -> None:
    body = codec("anthropic").encode(ask(reasoning_effort="2048"), stream=False)
    thinking = msgspec.json.decode(body)["thinking"]
    assert thinking == {"type": "enabled", "budget_tokens": 2048}


def test_older_servers_get_the_older_name_of_the_limit() -> None:
    body = codec(max_tokens_field="max_tokens").encode(ask(max_output_tokens=5), stream=False)
    assert msgspec.json.decode(body)["max_tokens"] == 5


@pytest.mark.parametrize("wire", WIRES)
def test_system_messages_and_tools_are_encoded(wire: str) -> None:
    tools = (ToolSpec(name="t", description="d", parameters={"type": "object"}),)
    said = message("system", TextPart(text="Mind the gap."))
    made = codec(wire)
    for choice_ in ("auto", "none", "required"):
        request = ask(user(), said, tools=tools, tool_choice=choice_)
        data = msgspec.json.decode(made.encode(request, stream=False))
        assert len(data["tools"]) == 1 and data["tool_choice"]
    roles = [m["role"] for m in data["input" if wire == "responses" else "messages"]]
    assert roles[-1] in ("system", "developer")


def test_what_changes_between_two_requests_is_sent() -> None:
    made, tool = codec(), ToolSpec(name="t", description="", parameters={"type": "object"})
    options: dict[str, Any] = {"seed": 1}
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    first = ask(user(), system="One.", tools=(tool,), options=options, output_schema=schema)
    known = made.encode(first, stream=False)
    assert made.encode(first, stream=False) == known

    def sent(stream: bool = False, **changes: Any) -> Any:
        request = msgspec.structs.replace(first, **changes)
        body = made.encode(request, stream=stream)
        assert body == codec().encode(request, stream=stream)
        return msgspec.json.decode(body)

    assert sent(system="Two.")["messages"][0]["content"] == "Two."
    assert sent(system="")["messages"][0]["role"] == "user"
    assert "tools" not in sent(tools=())
    assert sent(tool_choice="t")["tool_choice"]["function"]["name"] == "t"
    assert sent(temperature=0.5)["temperature"] == 0.5
    assert sent(top_p=0.5)["top_p"] == 0.5
    assert sent(max_output_tokens=7)["max_completion_tokens"] == 7
    assert sent(stop=("x",))["stop"] == ["x"]
    assert sent(reasoning_effort="low")["reasoning_effort"] == "low"
    assert sent(output_name="other")["response_format"]["json_schema"]["name"] == "other"
    assert sent(stream=True)["stream"] is True
    # In their place, as nothing forbids it.
    options["seed"] = 2
    schema["properties"]["a"] = {"type": "integer"}
    data = sent()
    assert data["seed"] == 2
    assert list(data["response_format"]["json_schema"]["schema"]["properties"]) == ["a"]


# --- the cache -----------------------------------------------------------------------


def test_the_cache_keeps_what_is_used_and_stays_within_its_bound() -> None:
    cache = EncodedCache(max_bytes=100_000)
    made: list[object] = []

    def make(source: object) -> Fragment:
        made.append(source)
        return Fragment("user", b"x" * 1000)

    hot = object()
    for n in range(500):
        assert cache.fragments((hot, [n]), make)[0].data == b"x" * 1000
    assert made.count(hot) == 1
    assert len(cache._young) + len(cache._old) < 100


def test_an_equal_object_is_not_the_same_object() -> None:
    cache = EncodedCache()
    first, second = [1], [1]
    assert cache.fragments((first,), lambda _: Fragment("user", b"a"))[0].data == b"a"
    assert cache.fragments((second,), lambda _: Fragment("user", b"b"))[0].data == b"b"


def test_something_larger_than_the_cache_is_made_each_time() -> None:
    cache = EncodedCache(max_bytes=1000)
    source, large = object(), Fragment("user", b"x" * 5000)
    assert cache.fragments((source, source), lambda _: large) == [large, large]
    assert not cache._young


# --- schemas -------------------------------------------------------------------------


def test_a_schema_is_closed_but_not_otherwise_changed() -> None:
    schema = {
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": ["object"]},
            "inner": {"type": "object", "properties": {"a": {"type": "integer"}}},
            "items": {"type": "array", "items": {"type": "object", "properties": {}}},
        },
        "required": ["type", "inner", "items"],
        "$defs": {"x": {"type": "object", "additionalProperties": True}},
    }
    closed = close_schema(schema)
    assert closed["additionalProperties"] is False
    assert closed["properties"]["inner"]["additionalProperties"] is False
    assert closed["properties"]["items"]["items"]["additionalProperties"] is False
    assert closed["$defs"]["x"]["additionalProperties"] is True
    assert "additionalProperties" not in schema
    assert not is_strict(closed)
    assert is_strict(close_schema({"type": "object", "properties": {"a": {}}, "required": ["a"]}))


# --- odd answers ---------------------------------------------------------------------


def test_calls_with_one_index_and_two_ids_are_two_calls() -> None:
    found = chat_stream(call(0, "a", "t", "{}"), call(0, "b", "u", "{}"), choice({}, "stop"))
    assert [(part.call_id, part.tool) for part in found.parts] == [("a", "t"), ("b", "u")]
    assert found.stop_reason == "tool_calls"


def test_calls_without_index_and_with_repeated_names_are_understood() -> None:
    found = chat_stream(
        call(None, "a", "t", '{"x"'),
        call(None, None, None, ": 1}"),
        call(None, "b", "u", {"y": 2}),
        choice({}, "stop"),
    )
    assert [part.input for part in found.parts] == [{"x": 1}, {"y": 2}]
    found = chat_stream(call(0, "a", "t", '{"x"'), call(0, "a", "t", ": 1}"), choice({}, "stop"))
    assert [part.input for part in found.parts] == [{"x": 1}]


def test_content_in_a_list_and_refusals_are_read() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    found = chat_stream(choice({"content": [thinking, {"type": "text", "text": "ok"}]}, "stop"))
    assert [type(part) for part in found.parts] == [ReasoningPart, TextPart]
    found = chat_stream(choice({"refusal": "No."}, "stop"))
    assert found.stop_reason == "filtered"


def test_other_choices_are_ignored() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}]}
    found = chat_stream(choice({"content": "yes"}), other, choice({}, "stop"))
    assert [part.text for part in found.parts] == ["yes"]


def test_an_answer_that_the_provider_broke_off_is_an_error() -> None:
    with pytest.raises(LLMOverloaded):
        chat_stream(choice({"content": "half"}, "error"))


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, None),
        ([], None),
        ({}, TokenUsage()),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 22,
                "completion_tokens_details": {"reasoning_tokens": 7},
            },
            TokenUsage(input=10, output=5, reasoning=7),
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 99},
                "completion_tokens_details": {"reasoning_tokens": 99},
            },
            TokenUsage(reasoning=5, cache_read=10),
        ),
        ({"prompt_tokens": -4, "completion_tokens": "many"}, TokenUsage()),
        ({"prompt_tokens": 9, "prompt_cache_hit_tokens": 4}, TokenUsage(input=5, cache_read=4)),
    ],
    ids=range(7),
)
def test_counts_never_overlap(usage: Any, expected: TokenUsage | None) -> None:
    assert chat_stream(choice({}, "stop") | {"usage": usage}).usage == expected


def test_responses_without_output_in_the_closing_event_use_the_finished_items() -> None:
    decoder = codec("responses").decoder()
    item = {"type": "message", "content": [{"type": "output_text", "text": "Hi."}]}
    closing = {"id": "r", "status": "completed", "output": []}
    decoder.feed(
        [
            msgspec.json.encode(
                {"type": "response.output_item.done", "output_index": 0, "item": item}
            ),
            msgspec.json.encode({"type": "response.completed", "response": closing}),
        ],
        None,
    )
    assert decoder.finish().parts == (TextPart(text="Hi."),)


def test_an_open_response_is_no_answer() -> None:
    with pytest.raises(LLMProtocolError):
        codec("responses").decode(b'{"status": "in_progress", "output": []}')


@pytest.mark.parametrize(
    "events",
    [
        [{"type": "content_block_delta", "index": 0, "delta": {"text": "x"}}],
        [{"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}],
        [{"type": "message_start", "message": {}}, {"type": "message_start", "message": {}}],
        [
            {"type": "message_start", "message": {}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}},
        ],
        [
            {"type": "message_start", "message": {}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}},
            {"type": "content_block_stop", "index": 0},
            {"type": "content_block_delta", "index": 0, "delta": {"text": "x"}},
        ],
        [{"type": "message_stop"}],
    ],
    ids=range(6),
)
def test_mixed_up_blocks_are_a_protocol_error(events: list[dict[str, Any]]) -> None:
    decoder = codec("anthropic").decoder()
    with pytest.raises(LLMProtocolError):
        decoder.feed([msgspec.json.encode(event) for event in events], [])
        decoder.finish()


def test_unknown_anthropic_events_are_ignored() -> None:
    decoder = codec("anthropic").decoder()
    events = [
        {"type": "message_start", "message": {"id": "m"}},
        {"type": "something_new"},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "tool_use", "id": "c", "name": "t", "input": {"a": 1}},
        },
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ]
    decoder.feed([msgspec.json.encode(event) for event in events], None)
    found = decoder.finish()
    assert found.parts == (ToolPart(call_id="c", tool="t", input={"a": 1}),)
    assert found.stop_reason == "tool_calls"


# --- what models and servers make up --------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", ["functions.read", "read\0; rm", "x" * 200, "", "lesen ß"])
@pytest.mark.parametrize("made_up", ["functions.read:0", "a\0b", "i" * 100, "", "ü"])
def test_names_and_ids_that_apis_refuse_are_not_sent_back(
    wire: Wire, name: str, made_up: str
) -> None:
    called = ToolPart(call_id=made_up, tool=name)
    failed = ToolPart(call_id=made_up, tool=name, state="error", error="There is no such tool.")
    messages = user(), message("assistant", called), message("tool", failed)
    body = codec(wire).encode(ask(*messages), stream=True)
    check_request(wire, msgspec.json.decode(body), HEADERS)


@pytest.mark.parametrize("wire", WIRES)
def test_ids_that_differ_stay_different(wire: Wire) -> None:
    calls = [ToolPart(call_id=one, tool="read", state="completed") for one in ("a:1\0", "a_1\0")]
    messages = user(), message("assistant", *calls), message("tool", *calls)
    body = codec(wire).encode(ask(*messages), stream=True)
    check_request(wire, msgspec.json.decode(body), HEADERS)


@pytest.mark.parametrize("wire", WIRES)
def test_halves_of_a_character_that_come_in_two_events_are_put_together(wire: Wire) -> None:
    def cut(event: bytes) -> bytes:
        for plain, half in ((b"hl", rb"\ud83d\ude00"), (b"h", rb"\ud83d"), (b"l", rb"\ude00")):
            event = event.replace(b'"%b"' % plain, b'"%b"' % half)
        return event

    reply = Reply(text="hl", piece_chars=1)
    decoder = codec(wire).decoder()
    heard: list[Any] = []
    payloads = [
        line[6:]
        for line in b"\n".join(stream_events(wire, reply, "m")).split(b"\n")
        if line.startswith(b"data: ")
    ]
    decoder.feed([cut(payload) for payload in payloads], heard)
    assert decoder.finish().parts[0].text == "\N{GRINNING FACE}"
    "".join(delta.text for delta in heard).encode()


@pytest.mark.parametrize("wire", WIRES)
def test_half_a_character_alone_is_marked_as_lost(wire: Wire) -> None:
    body = read_whole_body(wire, Reply(text="one"), "m").replace(b'"one"', rb'"one \ude00\\ude00"')
    [part] = codec(wire).decode(body).parts
    assert part.text == "one \N{REPLACEMENT CHARACTER}\\ude00"
