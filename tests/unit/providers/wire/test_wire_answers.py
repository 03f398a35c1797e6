"""A scripted answer comes out the same on every wire, streamed and not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from wire_kit import answer, ask, collect, user

from holdfast.errors import LLMBadRequest, LLMProtocolError
from holdfast.messages import (
    FilePart,
    Message,
    ReasoningPart,
    TextPart,
    TokenUsage,
    ToolPart,
    ToolSpec,
)
from holdfast.providers.model import Finished, ReasoningDelta, TextDelta, ToolCallDelta
from holdfast.providers.tokens import TokenCounter
from holdfast.providers.wire import HttpTransport, WireModel
from holdfast.testing.fake_server import FakeServer, HoldPoint, RawAnswer, Reply, ScriptedCall
from holdfast.testing.fake_wires import read_whole_body, stream_events

pytestmark = pytest.mark.parametrize("deltas", [True, False], ids=["heard", "quiet"])

CALLS = (
    ScriptedCall(name="multiply", arguments='{"a": 15, "b": 23, "note": "Grüße"}', id="c1"),
    ScriptedCall(name="look_up", arguments='{"word": "tide"}', id="c2"),
)
TOOLS = tuple(
    ToolSpec(name=name, description="d", parameters={"type": "object", "properties": {}})
    for name in ("multiply", "look_up")
)


async def test_text_reasoning_and_parallel_calls_arrive_whole(
    model: WireModel, server: FakeServer, deltas: bool
) -> None:
    usage = TokenUsage(input=100, output=40, reasoning=9, cache_read=30, cache_write=5)
    server.answers.append(
        Reply(text="Let me see: 🦀", reasoning="Hmm, 15×23", calls=CALLS, usage=usage)
    )
    found = await collect(model, ask(tools=TOOLS), deltas=deltas)
    last = found[-1]
    assert isinstance(last, Finished)
    message = last.message
    assert message.text == "Let me see: 🦀"
    assert [p.text for p in message.parts if isinstance(p, ReasoningPart)] == ["Hmm, 15×23"]
    assert [(c.call_id, c.tool, c.input) for c in message.tool_calls] == [
        ("c1", "multiply", {"a": 15, "b": 23, "note": "Grüße"}),
        ("c2", "look_up", {"word": "tide"}),
    ]
    assert message.stop_reason == "tool_calls"
    assert message.usage == usage
    assert last.request_id == "req_head"
    assert message.metadata["response_id"] in ("chatcmpl-1", "resp_1", "msg_1")
    assert message.provider == "fake" and message.model == "fake-model"
    if deltas:
        assert "".join(d.text for d in found if isinstance(d, TextDelta)) == message.text
        assert "".join(d.text for d in found if isinstance(d, ReasoningDelta)) == "Hmm, 15×23"
        begun = [d for d in found if isinstance(d, ToolCallDelta) and d.name]
        assert [d.name for d in begun] == ["multiply", "look_up"]
        assert len({d.index for d in begun}) == 2
    else:
        assert len(found) == 1


@pytest.mark.parametrize("reason", ["stop", "length", "filtered"])
async def test_stop_reasons_are_normalised(
    model: WireModel, server: FakeServer, reason: str, deltas: bool
) -> None:
    server.answers.append(Reply(text="x", stop_reason=reason))
    assert (await answer(model, deltas=deltas)).stop_reason == reason


async def test_arguments_that_are_no_json_are_kept_as_text(
    model: WireModel, server: FakeServer, deltas: bool, wire: str
) -> None:
    if wire == "anthropic" and not deltas:
        # A body holds the input as an object, so it cannot be broken there.
        server.answers.append(Reply(calls=(ScriptedCall(name="multiply"),)))
        assert (await answer(model, deltas=False)).tool_calls[0].input == {}
        return
    broken = (ScriptedCall(name="multiply", arguments='{"a": 15, "b'),)
    server.answers.append(Reply(calls=broken))
    call = (await answer(model, deltas=deltas)).tool_calls[0]
    assert call.raw_input == '{"a": 15, "b' and call.input == {}


@pytest.mark.parametrize("reason", ["length", "filtered"])
async def test_a_call_that_was_cut_before_its_arguments_has_none_to_run_with(
    model: WireModel, server: FakeServer, deltas: bool, wire: str, reason: str
) -> None:
    # A body of Anthropic's holds the input as an object, so it is there, but empty.
    nothing = "{}" if wire == "anthropic" and not deltas else ""
    calls = (CALLS[0], ScriptedCall(name="look_up", arguments=nothing))
    server.answers.append(Reply(calls=calls, stop_reason=reason))
    whole, cut = (await answer(model, deltas=deltas)).tool_calls
    assert whole.input["a"] == 15 and not whole.raw_input
    assert cut.raw_input and cut.input == {}
    server.answers.append(Reply(calls=calls, stop_reason="tool_calls"))
    _, ended = (await answer(model, deltas=deltas)).tool_calls
    assert not ended.raw_input and ended.input == {}


async def test_reasoning_goes_back_to_its_provider_unchanged(
    model: WireModel, server: FakeServer, deltas: bool, wire: str
) -> None:
    server.answers.append(
        Reply(reasoning="Think.", signature="sig-1", encrypted="opaque", calls=CALLS[:1])
    )
    said = await answer(model, ask(tools=TOOLS), deltas=deltas)
    result = ToolPart(call_id="c1", tool="multiply", state="completed", output="345")
    results = Message(id="m3", session_id="s", role="tool", parts=(result,))
    server.answers.append(Reply(text="345"))
    await answer(model, ask(user(), said, results, tools=TOOLS), deltas=deltas)
    sent = server.requests[-1].json
    if wire == "responses":
        assert sent["input"][1] == {
            "type": "reasoning",
            "id": "sig-1",
            "summary": [{"type": "summary_text", "text": "Think."}],
            "encrypted_content": "opaque",
        }
    elif wire == "anthropic":
        assert sent["messages"][1]["content"][:2] == [
            {"type": "redacted_thinking", "data": "opaque"},
            {"type": "thinking", "thinking": "Think.", "signature": "sig-1"},
        ]
    else:
        assert "reasoning_content" not in sent["messages"][1]


async def test_reasoning_of_another_provider_stays_here(
    model: WireModel, server: FakeServer, deltas: bool
) -> None:
    thought = ReasoningPart(text="Think.", signature="sig-1", encrypted="opaque")
    said = Message(
        id="m2",
        session_id="s",
        role="assistant",
        provider="other",
        parts=(thought, TextPart(text="Hi.")),
    )
    server.answers.append(Reply(text="ok"))
    await answer(model, ask(user(), said, user("And?")), deltas=deltas)
    assert b"sig-1" not in server.requests[-1].body
    assert b"opaque" not in server.requests[-1].body


async def test_chat_sends_reasoning_back_where_the_server_wants_it(
    make_model: Callable[..., WireModel], server: FakeServer, deltas: bool
) -> None:
    server.answers.append(Reply(text="Hi.", reasoning="Think."))
    model = make_model(reasoning_back=True)
    said = await answer(model, deltas=deltas)
    server._check = False
    server.answers.append(Reply(text="ok"))
    await answer(model, ask(user(), said, user("And?")), deltas=deltas)
    has_it = b"reasoning_content" in server.requests[-1].body
    assert has_it == (model.endpoint.api == "chat")


async def test_files_go_out_in_the_words_of_each_api(
    model: WireModel, server: FakeServer, deltas: bool, wire: str
) -> None:
    parts = (
        TextPart(text="Look:"),
        FilePart(media_type="image/png", data=b"png"),
        FilePart(media_type="image/png", url="https://example.com/a.png"),
        FilePart(media_type="application/pdf", data=b"%PDF", name="a.pdf"),
        FilePart(media_type="text/plain", data="Grüße".encode(), name="a.txt"),
    )
    server.answers.append(Reply(text="ok"))
    message = Message(id="m1", session_id="s", role="user", parts=parts)
    await answer(model, ask(message), deltas=deltas)
    sent = server.requests[-1].json
    content = sent["input" if wire == "responses" else "messages"][0]["content"]
    text = '<file name="a.txt">\nGrüße\n</file>'
    if wire == "chat":
        assert content[1:] == [
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}},
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
            {
                "type": "file",
                "file": {
                    "filename": "a.pdf",
                    "file_data": "data:application/pdf;base64,JVBERg==",
                },
            },
            {"type": "text", "text": text},
        ]
    elif wire == "responses":
        assert [part["type"] for part in content] == [
            "input_text",
            "input_image",
            "input_image",
            "input_file",
            "input_text",
        ]
        assert content[1]["image_url"] == "data:image/png;base64,cG5n"
    else:
        assert content[1:] == [
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": "cG5n"},
            },
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
            {
                "type": "document",
                "source": {
                    "type": "base64",
                    "media_type": "application/pdf",
                    "data": "JVBERg==",
                },
                "title": "a.pdf",
            },
            {"type": "text", "text": text},
        ]


async def test_attachments_of_tool_results_reach_the_model(
    model: WireModel, server: FakeServer, deltas: bool
) -> None:
    server.answers.append(Reply(calls=CALLS))
    said = await answer(model, ask(tools=TOOLS), deltas=deltas)
    image = FilePart(media_type="image/png", data=b"png")
    first = ToolPart(
        call_id="c1", tool="multiply", state="completed", output="345", attachments=(image,)
    )
    second = ToolPart(call_id="c2", tool="look_up", state="error", error="not found")
    results = [
        Message(id=f"m{n}", session_id="s", role="tool", parts=(part,))
        for n, part in enumerate((first, second))
    ]
    server.answers.append(Reply(text="ok"))
    await answer(model, ask(user(), said, *results, tools=TOOLS), deltas=deltas)
    assert b"cG5n" in server.requests[-1].body
    assert b"not found" in server.requests[-1].body


async def test_a_file_without_content_is_refused_before_anything_is_sent(
    model: WireModel, server: FakeServer, deltas: bool
) -> None:
    for bad in (
        FilePart(media_type="image/png"),
        FilePart(media_type="image/png", data=b"x", url="https://example.com/x.png"),
        FilePart(media_type="image/png", url="file:///etc/passwd"),
    ):
        message = Message(id="m1", session_id="s", role="user", parts=(bad,))
        with pytest.raises(LLMBadRequest):
            await answer(model, ask(message), deltas=deltas)
    assert server.requests == []


async def test_a_text_that_cannot_be_sent_is_refused_before_anything_is(
    model: WireModel, server: FakeServer, deltas: bool
) -> None:
    with pytest.raises(LLMBadRequest) as caught:
        await collect(model, ask(user("half \ud800")), deltas=deltas)
    assert caught.value.code == "llm.bad_request"
    assert server.requests == []


async def test_settings_reach_the_provider_under_its_names(
    model: WireModel, server: FakeServer, deltas: bool, wire: str
) -> None:
    server.answers.append(Reply(text="ok"))
    stop = () if wire == "responses" else ("END",)
    request = ask(
        system="Be brief.",
        tools=TOOLS,
        tool_choice="multiply",
        temperature=0.5,
        top_p=0.9,
        max_output_tokens=2048,
        stop=stop,
        reasoning_effort="low",
        options={"metadata": {"a": "b"}},
    )
    await answer(model, request, deltas=deltas)
    sent = server.requests[-1].json
    assert sent["temperature"] == 0.5 and sent["top_p"] == 0.9
    assert sent["metadata"] == {"a": "b"} and sent["stream"] is deltas
    if wire == "chat":
        assert sent["messages"][0] == {"role": "system", "content": "Be brief."}
        assert sent["max_completion_tokens"] == 2048 and sent["stop"] == ["END"]
        assert sent["reasoning_effort"] == "low"
        assert sent["tool_choice"] == {"type": "function", "function": {"name": "multiply"}}
    elif wire == "responses":
        assert sent["instructions"] == "Be brief." and sent["store"] is False
        assert sent["max_output_tokens"] == 2048 and sent["reasoning"] == {"effort": "low"}
        assert sent["tool_choice"] == {"type": "function", "name": "multiply"}
    else:
        assert sent["system"] == "Be brief." and sent["max_tokens"] == 2048
        assert sent["stop_sequences"] == ["END"] and sent["output_config"] == {"effort": "low"}
        assert sent["tool_choice"] == {"type": "tool", "name": "multiply"}


async def test_one_connection_serves_many_calls(
    model: WireModel, server: FakeServer, deltas: bool
) -> None:
    for _ in range(5):
        server.answers.append(Reply(text="Hello there."))
        await answer(model, deltas=deltas)
    assert server.connections == 1


async def test_leaving_closes_the_connection(
    model: WireModel, server: FakeServer, deltas: bool
) -> None:
    gate = HoldPoint()
    server.answers.append(Reply(text="Hello there.", gate=gate, gate_at="first"))
    task = asyncio.create_task(collect(model, ask(), deltas=deltas))
    await asyncio.wait_for(gate.reached.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(server.disconnected.wait(), 30)


async def test_a_server_that_ignores_the_wish_to_stream_is_understood(
    model: WireModel, server: FakeServer, deltas: bool, wire: str
) -> None:
    reply = Reply(text="Hello.", calls=CALLS)
    if deltas:
        body = read_whole_body(wire, reply, "m")  # type: ignore[arg-type]
        server.answers.append(RawAnswer(chunks=(body,), content_type="application/json"))
    else:
        events = stream_events(wire, reply, "m")  # type: ignore[arg-type]
        server.answers.append(RawAnswer(chunks=tuple(events)))
    message = await answer(model, deltas=deltas)
    assert message.text == "Hello." and len(message.tool_calls) == 2


async def test_a_missing_end_mark_is_forgiven_where_the_answer_is_whole(
    model: WireModel, server: FakeServer, deltas: bool, wire: str
) -> None:
    server.answers.append(Reply(text="Hello.", end_at="end"))
    if not deltas or wire == "responses":
        with pytest.raises(LLMProtocolError):
            await answer(model, deltas=deltas)
    else:
        assert (await answer(model, deltas=deltas)).text == "Hello."


async def test_two_loops_can_share_a_transport(
    transport: HttpTransport, server: FakeServer, deltas: bool
) -> None:
    here = transport.session()

    async def elsewhere() -> bool:
        other = transport.session()
        await transport.close()
        return other is not here and other.closed

    assert await asyncio.to_thread(asyncio.run, elsewhere())
    assert transport.session() is here and not here.closed


async def test_usage_that_the_server_does_not_report_is_counted_and_marked(
    model: WireModel, transport: HttpTransport, server: FakeServer, deltas: bool
) -> None:
    silent = Reply(text="One two three.", usage=None)
    server.answers += [silent, silent]
    assert (await answer(model, deltas=deltas)).usage is None
    counter = TokenCounter("openai", "gpt-4o")
    counting = WireModel(model.endpoint, "fake-model", transport, counter=counter)
    message = await answer(counting, deltas=deltas)
    assert message.usage == counter.usage(ask(), message)
    assert message.usage.output > 0
    assert message.metadata["usage"] == "estimate"


async def test_usage_of_nothing_at_all_is_counted_as_well(
    model: WireModel, transport: HttpTransport, server: FakeServer, deltas: bool
) -> None:
    server.answers += [Reply(text="One two three.", usage=TokenUsage())]
    counter = TokenCounter("openai", "gpt-4o")
    counting = WireModel(model.endpoint, "fake-model", transport, counter=counter)
    message = await answer(counting, deltas=deltas)
    assert message.usage == counter.usage(ask(), message)
    assert message.metadata["usage"] == "estimate"
