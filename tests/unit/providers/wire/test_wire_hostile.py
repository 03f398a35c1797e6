"""Broken, mixed-up and hostile answers: a clear error, never a hang or a half message."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import traceback
from collections.abc import Callable

import msgspec
import pytest
from wire_kit import KEY, answer, ask, collect

from holdfast.errors import (
    LLMAuthError,
    LLMBadRequest,
    LLMConnectionError,
    LLMError,
    LLMOverloaded,
    LLMProtocolError,
    LLMRateLimited,
    LLMTimeout,
)
from holdfast.providers import RetryPolicy
from holdfast.providers.model import Finished
from holdfast.providers.wire import Endpoint, Timeouts, WireModel
from holdfast.providers.wire.responses_stream import ResponsesDecoder
from holdfast.testing.fake_server import (
    Failure,
    FakeServer,
    HoldPoint,
    RawAnswer,
    Reply,
    ScriptedCall,
)
from holdfast.testing.fake_wires import read_whole_body, stream_events

SHORT = 0.05


def events(wire: str, reply: Reply) -> list[bytes]:
    return stream_events(wire, reply, "fake-model")  # type: ignore[arg-type]


async def fails(model: WireModel, kind: type[LLMError], *, deltas: bool = True) -> LLMError:
    found = []
    with pytest.raises(kind) as caught:
        async for delta in model.stream(ask(), deltas=deltas):
            found.append(delta)
    assert not any(isinstance(delta, Finished) for delta in found)
    assert type(caught.value) is kind
    shown = [repr(caught.value), str(caught.value.to_dict()), caught.value.hint]
    assert KEY not in "".join([*shown, *traceback.format_exception(caught.value)])
    return caught.value


@pytest.mark.parametrize(
    "chunks",
    [
        (b"data: {broken\n\n",),
        (b"data: 17\n\n",),
        (b"data: []\n\n",),
        (b"data: null\n\n",),
        (b'data: "\xff\xfe"\n\n',),
        (b"data: " + b'{"a":' * 5000 + b"\n\n",),
        (b'data: {"choices": 5}\n\n',),
        (b'data: {"type": 5}\n\n',),
        (b"\x00\x01\x02\xff",),
        (b"",),
        (b": only a comment\n\n",),
        (b"data: [DONE]\n\n",),
        (b"event: nothing\n\n" * 50,),
        (b'data: {"object":"unknown"}\n\n',),
    ],
    ids=range(14),
)
@pytest.mark.parametrize("deltas", [True, False])
async def test_garbage_is_a_protocol_error(
    make_model: Callable[..., WireModel],
    server: FakeServer,
    chunks: tuple[bytes, ...],
    deltas: bool,
) -> None:
    server.answers.append(RawAnswer(chunks=chunks))
    await fails(make_model(quiet="stream"), LLMProtocolError, deltas=deltas)


@pytest.mark.parametrize("place", ["first", "middle"])
@pytest.mark.parametrize("deltas", [True, False])
async def test_an_answer_that_ends_early_is_a_protocol_error(
    make_model: Callable[..., WireModel], server: FakeServer, place: str, deltas: bool
) -> None:
    server.answers.append(Reply(text="A longer answer than one piece.", end_at=place))
    await fails(make_model(quiet="stream"), LLMProtocolError, deltas=deltas)


@pytest.mark.parametrize("place", ["first", "middle", "end"])
@pytest.mark.parametrize("quiet", ["body", "stream"])
async def test_a_lost_connection_is_a_connection_error(
    make_model: Callable[..., WireModel], server: FakeServer, place: str, quiet: str
) -> None:
    server.answers.append(Reply(text="A longer answer than one piece.", break_at=place))
    await fails(make_model(quiet=quiet), LLMConnectionError, deltas=False)


@pytest.mark.parametrize("content_type", ["text/html", "text/plain", "image/png", ""])
async def test_a_page_with_status_200_is_a_protocol_error(
    model: WireModel, server: FakeServer, content_type: str
) -> None:
    page = b"<html><title>Log in</title></html>"
    for deltas in (True, False):
        server.answers.append(RawAnswer(chunks=(page,), content_type=content_type))
        await fails(model, LLMProtocolError, deltas=deltas)


@pytest.mark.parametrize("content_type", ["text/plain; charset=utf-8", "application/octet-stream"])
async def test_a_stream_under_a_wrong_but_harmless_name_is_read(
    model: WireModel, server: FakeServer, wire: str, content_type: str
) -> None:
    chunks = tuple(events(wire, Reply(text="Hello.")))
    server.answers.append(RawAnswer(chunks=chunks, content_type=content_type))
    assert (await answer(model)).text == "Hello."


async def test_line_ends_comments_and_marks_of_all_kinds_are_read(
    model: WireModel, server: FakeServer, wire: str
) -> None:
    whole = b"".join(events(wire, Reply(text="Grüße 🦀 東京", reasoning="ja")))
    for end in (b"\n", b"\r\n", b"\r"):
        text = b"\xef\xbb\xbf: hi" + end + b"retry: 10" + end + end + whole.replace(b"\n", end)
        for size in (1, 7):
            chunks = tuple(text[at : at + size] for at in range(0, len(text), size))
            server.answers.append(RawAnswer(chunks=chunks))
            assert (await answer(model)).text == "Grüße 🦀 東京"


async def test_a_huge_line_is_refused_without_being_kept(
    make_model: Callable[..., WireModel], server: FakeServer
) -> None:
    model = make_model(max_event_bytes=100_000)
    server.answers.append(RawAnswer(chunks=(b"data: ",) + (b"x" * 50_000,) * 40))
    await fails(model, LLMProtocolError)


async def test_an_endless_stream_is_cut(
    make_model: Callable[..., WireModel], server: FakeServer, wire: str
) -> None:
    model = make_model(max_response_bytes=200_000, quiet="stream")
    for deltas in (True, False):
        first = events(wire, Reply(text="x" * 8000, piece_chars=4))
        pieces = tuple(first[:-3]) + (b": waiting\n\n" * 1000,) * 100
        server.answers.append(RawAnswer(chunks=pieces))
        await fails(model, LLMProtocolError, deltas=deltas)
    server.answers.append(RawAnswer(chunks=(b" " * 1000,) * 400, content_type="application/json"))
    await fails(model, LLMProtocolError, deltas=False)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"type": "overloaded_error", "message": "busy"}, LLMOverloaded),
        ({"type": "server_error", "message": "oops"}, LLMOverloaded),
        ({"code": "rate_limit_exceeded", "message": "slow down"}, LLMRateLimited),
        ({"code": 502, "message": "upstream"}, LLMOverloaded),
        ({"type": "authentication_error", "message": f"bad key {KEY}"}, LLMAuthError),
        ({"type": "invalid_request_error", "message": "no"}, LLMBadRequest),
    ],
)
@pytest.mark.parametrize("named", [True, False])
async def test_an_error_inside_the_stream_is_that_error(
    model: WireModel, server: FakeServer, wire: str, error: dict, kind: type[LLMError], named: bool
) -> None:
    body = {"error": error} if wire == "chat" else {"type": "error", "error": error}
    begun = events(wire, Reply(text="A longer answer than one piece."))[:4]
    line = (b"event: error\n" if named else b"") + b"data: " + msgspec.json.encode(body) + b"\n\n"
    server.answers.append(RawAnswer(chunks=(*begun, line)))
    await fails(model, kind)


async def test_an_error_body_with_status_200_is_that_error(
    model: WireModel, server: FakeServer
) -> None:
    body = b'{"error": "model is loading", "code": 503}'
    for deltas in (True, False):
        server.answers.append(RawAnswer(chunks=(body,), content_type="application/json"))
        await fails(model, LLMOverloaded, deltas=deltas)


async def test_a_tool_call_without_name_is_a_protocol_error(
    model: WireModel, server: FakeServer
) -> None:
    for deltas in (True, False):
        server.answers.append(Reply(calls=(ScriptedCall(name="", id="c1"),)))
        await fails(model, LLMProtocolError, deltas=deltas)


async def test_a_tool_call_without_id_gets_one(model: WireModel, server: FakeServer) -> None:
    calls = (ScriptedCall(name="a", id=""), ScriptedCall(name="b", id=""))
    for deltas in (True, False):
        server.answers.append(Reply(calls=calls))
        found = (await answer(model, deltas=deltas)).tool_calls
        assert [call.tool for call in found] == ["a", "b"]
        assert all(call.call_id for call in found)
        assert found[0].call_id != found[1].call_id


async def test_too_many_tool_calls_are_refused(model: WireModel, server: FakeServer) -> None:
    calls = tuple(ScriptedCall(name="a", id=f"c{n}") for n in range(600))
    server.answers.append(Reply(calls=calls))
    await fails(model, LLMProtocolError)


async def test_a_redirect_is_not_followed(model: WireModel, server: FakeServer) -> None:
    async with FakeServer([Reply(text="stolen")]) as other:
        for status in (301, 302, 307, 308):
            headers = {"Location": f"{other.base_url}/chat/completions"}
            server.answers.append(Failure(status=status, headers=headers))
            await fails(model, LLMBadRequest)
        assert other.requests == []


async def test_a_wrong_key_is_named_nowhere(
    make_model: Callable[..., WireModel], server: FakeServer
) -> None:
    server._key = "sk-another-key-0123456789"
    error = await fails(make_model(key_env="FAKE_KEY"), LLMAuthError)
    assert "FAKE_KEY" in error.hint
    assert "sk-another-key-0123456789" not in str(error)


# --- time ----------------------------------------------------------------------------


def limits(**changes: float) -> Timeouts:
    given = {"connect_s": 5.0, "first_token_s": 5.0, "idle_s": 5.0, "total_s": 10.0, **changes}
    return Timeouts(**given)


@pytest.mark.parametrize("place", ["head", "first"])
async def test_a_first_token_that_does_not_come_is_a_timeout(
    make_model: Callable[..., WireModel], server: FakeServer, place: str
) -> None:
    gate = HoldPoint()
    model = make_model(timeouts=limits(first_token_s=SHORT))
    async with asyncio.timeout(60):
        # On a busy machine the limit may pass before the server has begun with the request.
        while not gate.reached.is_set():
            server.answers.append(Reply(text="Hello.", gate=gate, gate_at=place))
            error = await fails(model, LLMTimeout)
            assert error.context["phase"] == "the first token"
            assert error.context["limit_s"] == SHORT
        await server.disconnected.wait()


async def test_comments_do_not_count_as_a_first_token(
    make_model: Callable[..., WireModel], server: FakeServer
) -> None:
    server.answers.append(RawAnswer(chunks=(b": wait\n\n", b""), gate=HoldPoint()))
    error = await fails(make_model(timeouts=limits(first_token_s=SHORT)), LLMTimeout)
    assert error.context["phase"] == "the first token"


async def test_a_stream_that_falls_silent_is_a_timeout(
    make_model: Callable[..., WireModel], server: FakeServer
) -> None:
    gate = HoldPoint()
    reply = Reply(text="A longer answer than one piece.", gate=gate, gate_at="middle")
    server.answers.append(reply)
    error = await fails(make_model(timeouts=limits(idle_s=SHORT)), LLMTimeout)
    assert error.context["phase"] == "the next piece"
    await asyncio.wait_for(server.disconnected.wait(), 30)


@pytest.mark.parametrize("deltas", [True, False])
async def test_the_total_limit_ends_everything(
    make_model: Callable[..., WireModel], server: FakeServer, deltas: bool
) -> None:
    gate = HoldPoint()
    reply = Reply(text="A longer answer than one piece.", gate=gate, gate_at="first")
    server.answers.append(reply)
    model = make_model(timeouts=limits(total_s=SHORT))
    error = await fails(model, LLMTimeout, deltas=deltas)
    assert error.context["limit_s"] == SHORT


async def test_a_slow_listener_is_no_silent_server(
    make_model: Callable[..., WireModel], server: FakeServer
) -> None:
    gate = HoldPoint()
    reply = Reply(text="A longer answer than one piece.", gate=gate, gate_at="middle")
    server.answers.append(reply)
    model = make_model(timeouts=limits(idle_s=0.5))
    stream = model.stream(ask())
    first = await anext(stream)
    # The listener lets more than the idle limit pass before it asks for more.
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    loop.call_later(0.6, over.set_result, None)
    await over
    gate.release.set()
    rest = [delta async for delta in stream]
    assert first and isinstance(rest[-1], Finished)


async def test_a_server_that_keeps_the_line_open_after_the_end_does_not_hold_us(
    make_model: Callable[..., WireModel], server: FakeServer, wire: str
) -> None:
    model = make_model(timeouts=limits(idle_s=120, total_s=120))
    chunks = (*events(wire, Reply(text="Hello.")), b"")
    server.answers.append(RawAnswer(chunks=chunks, gate=HoldPoint()))
    found = await asyncio.wait_for(collect(model, ask()), 30)
    assert isinstance(found[-1], Finished)


async def test_nobody_listening_at_the_port_is_a_connection_error(
    make_model: Callable[..., WireModel], server: FakeServer
) -> None:
    await server.stop()
    for deltas in (True, False):
        await fails(make_model(), LLMConnectionError, deltas=deltas)


async def test_a_server_that_hangs_up_after_each_stream_does_no_harm(
    model: WireModel, server: FakeServer
) -> None:
    for _ in range(20):
        server.answers.append(Reply(text="Hello.", hang_up=True))
        assert (await answer(model)).text == "Hello."
        server.answers.append(Reply(text="Bye."))
        assert (await answer(model, deltas=False)).text == "Bye."


async def test_a_fresh_connection_that_breaks_is_not_tried_again(
    model: WireModel, server: FakeServer
) -> None:
    gate = HoldPoint()
    server.answers.append(Reply(text="Hello.", gate=gate, gate_at="head"))
    task = asyncio.create_task(collect(model, ask()))
    await asyncio.wait_for(gate.reached.wait(), 30)
    await server.stop()
    with pytest.raises(LLMConnectionError):
        await asyncio.wait_for(task, 30)
    assert len(server.requests) == 1


async def test_a_broken_line_does_not_show_the_address(
    make_model: Callable[..., WireModel], server: FakeServer
) -> None:
    await server.stop()
    model = make_model(base_url=server.base_url + "?key=very-secret-value")
    error = await fails(model, LLMConnectionError)
    assert "very-secret-value" not in str(error) and "?key" not in str(error)


async def test_a_server_that_does_not_take_the_connection_is_a_timeout(
    make_model: Callable[..., WireModel],
) -> None:
    with socket.socket() as deaf, contextlib.ExitStack() as waiting:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        # The queue of the listener is full, so the next one is left standing.
        for _ in range(4):
            other = waiting.enter_context(socket.socket())
            other.setblocking(False)
            other.connect_ex(deaf.getsockname())
        base_url = f"http://127.0.0.1:{deaf.getsockname()[1]}/v1"
        model = make_model(base_url=base_url, timeouts=limits(connect_s=SHORT))
        error = await fails(model, LLMTimeout)
        assert error.context["phase"] == "connecting"


async def test_a_refusal_whose_body_never_ends_is_still_that_refusal(
    make_model: Callable[..., WireModel], server: FakeServer
) -> None:
    chunks = (b'{"error": {"message": "', *(b"x" * 10_000,) * 30, b"")
    server.answers.append(RawAnswer(chunks=chunks, status=503, gate=HoldPoint()))
    await fails(make_model(max_response_bytes=20_000), LLMOverloaded)


@pytest.mark.parametrize("is_heard", [True, False])
def test_a_closing_event_that_holds_nothing_of_what_was_said_is_refused(is_heard: bool) -> None:
    endpoint = Endpoint(provider="fake", base_url="http://127.0.0.1/v1", api="responses")
    decoder = ResponsesDecoder(endpoint, "m")
    said = b'{"type":"response.output_text.delta","delta":"half"}'
    closing = b'{"type":"response.completed","response":{"status":"completed","output":[]}}'
    decoder.feed([said, closing], [] if is_heard else None)
    with pytest.raises(LLMProtocolError) as caught:
        decoder.finish()
    assert caught.value.code == "llm.protocol"


async def test_a_hang_before_the_head_of_an_answer_in_one_body_is_a_timeout(
    make_model: Callable[..., WireModel], server: FakeServer
) -> None:
    model = make_model(timeouts=limits(first_token_s=SHORT, total_s=60.0))
    gate = HoldPoint()
    async with asyncio.timeout(30):
        server.answers.append(Reply(text="Hello.", gate=gate, gate_at="head"))
        error = await fails(model, LLMTimeout, deltas=False)
    assert error.context["phase"] == "the first token"
    assert error.context["limit_s"] == SHORT


async def test_after_a_hang_the_next_attempt_asks_for_a_stream(
    make_model: Callable[..., WireModel], server: FakeServer
) -> None:
    model = make_model(timeouts=limits(first_token_s=0.5, total_s=60.0))
    server.answers.append(Reply(text="Never.", gate=HoldPoint(), gate_at="head"))
    await fails(model, LLMTimeout, deltas=False)
    server.answers.append(Reply(text="Here."))
    found = [delta async for delta in model.stream(ask(), deltas=False)]
    assert found[-1].message.text == "Here."  # type: ignore[union-attr]
    assert [request.json.get("stream", False) for request in server.requests][-2:] == [False, True]


async def test_a_body_that_comes_slowly_behind_its_head_is_not_late(
    wire: str, make_model: Callable[..., WireModel], server: FakeServer
) -> None:
    model = make_model(timeouts=limits(first_token_s=0.3, total_s=60.0))
    gate = HoldPoint()
    body = read_whole_body(wire, Reply(text="Slow."), "fake-model")  # type: ignore[arg-type]
    chunks = (body[:20], b"", body[20:])
    server.answers.append(RawAnswer(chunks=chunks, gate=gate, content_type="application/json"))
    asking = asyncio.ensure_future(anext(model.stream(ask(), deltas=False)))
    await asyncio.wait_for(gate.reached.wait(), 30)
    # Longer than the limit for the head, which is here.
    done, _ = await asyncio.wait((asking,), timeout=0.6)
    assert not done
    gate.release.set()
    assert (await asyncio.wait_for(asking, 30)).message.text == "Slow."  # type: ignore[union-attr]


def test_the_default_limits_leave_time_to_try_again_after_a_hang() -> None:
    attempts = RetryPolicy()
    assert attempts.total_s > 2 * Timeouts().first_token_s
