"""Responses in the background are waited for, taken up again, and cancelled when unwanted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from wire_kit import KEY, answer, ask, collect

from holdfast.errors import LLMError, LLMOverloaded, LLMProtocolError, LLMTimeout
from holdfast.messages import TokenUsage
from holdfast.providers.model import TextDelta, ToolCallDelta
from holdfast.providers.wire import Endpoint, HttpTransport, Secret, Timeouts, WireModel
from holdfast.testing.fake_server import Failure, FakeServer, HoldPoint, RawAnswer, Reply
from holdfast.testing.fake_server import ScriptedCall as Call

BACKGROUND = ask(options={"background": True})
REPLY = Reply(
    text="Grüße aus 東京 🦀, at last",
    reasoning="Long thoughts",
    calls=(Call(name="multiply", arguments='{"a": 15}', id="c1"),),
    usage=TokenUsage(input=3, output=2, reasoning=1),
    piece_chars=4,
    open_for=3,
)
HEARD = pytest.mark.parametrize("deltas", [True, False], ids=["heard", "quiet"])


@pytest.fixture
def waits() -> list[float]:
    """How long was waited between two questions."""
    return []


@pytest.fixture
def make(server: FakeServer, transport: HttpTransport, waits: list[float]) -> Callable[..., Any]:
    async def wait(seconds: float) -> None:
        waits.append(seconds)

    def make(**changes: Any) -> WireModel:
        limits = Timeouts(connect_s=5, first_token_s=5, idle_s=5, total_s=10)
        given = {"provider": "fake", "base_url": server.base_url, "timeouts": limits, **changes}
        endpoint = Endpoint(api="responses", key=Secret(KEY), **given)
        return WireModel(endpoint, "fake-model", transport, sleep=wait)

    return make


@pytest.fixture
def model(make: Callable[..., WireModel]) -> WireModel:
    return make()


def said(message: Any) -> Any:
    return message.parts, message.stop_reason, message.usage, message.metadata


async def plain(model: WireModel, server: FakeServer, reply: Reply = REPLY) -> Any:
    """What the same answer is when it does not come in the background."""
    server.answers.append(reply)
    return said(await answer(model, deltas=False))


@HEARD
async def test_an_answer_in_the_background_is_the_same_message(
    model: WireModel, server: FakeServer, deltas: bool, waits: list[float]
) -> None:
    server.answers.append(REPLY)
    found = await answer(model, BACKGROUND, deltas=deltas)
    assert said(found) == await plain(model, server)
    assert server.requests[0].json["store"] is True
    assert len(waits) == (0 if deltas else 4) and waits == sorted(waits)
    assert not server.cancelled.is_set()


@pytest.mark.parametrize("broken", [{"break_at": "middle"}, {"end_at": "middle"}], ids=str)
async def test_a_stream_that_breaks_is_taken_up_where_it_was(
    model: WireModel, server: FakeServer, broken: dict[str, Any]
) -> None:
    server.answers.append(Reply(text=REPLY.text * 9, calls=REPLY.calls, **broken))
    found = await collect(model, BACKGROUND)
    text = "".join(delta.text for delta in found if isinstance(delta, TextDelta))
    arguments = "".join(d.arguments for d in found if isinstance(d, ToolCallDelta))
    assert text == REPLY.text * 9 and arguments == REPLY.calls[0].arguments
    assert found[-1].message.text == text  # type: ignore[union-attr]
    _, again = server.requests
    assert again.query["stream"] == "true" and int(again.query["starting_after"]) > 3


async def test_a_stream_that_cannot_be_taken_up_is_asked_for(
    model: WireModel, server: FakeServer
) -> None:
    server.answers += [
        Reply(text="Hello there.", break_at="middle", open_for=2),
        Failure(status=400, message="stream is not supported here"),
    ]
    assert (await answer(model, BACKGROUND)).text == "Hello there."
    assert [request.query.get("stream") for request in server.requests] == [
        None,
        "true",
        None,
        None,
        None,
    ]


async def test_what_no_stream_told_is_told_in_the_end(transport: HttpTransport) -> None:
    """A server that answers in one body although a stream was asked for."""
    item = {"type": "message", "content": [{"type": "output_text", "text": "Hi."}]}
    bodies = [
        msgspec.json.encode({"id": "resp_1", "status": status, "output": output})
        for status, output in (("queued", []), ("completed", [item]))
    ]
    opened, whole = (RawAnswer(chunks=(b,), content_type="application/json") for b in bodies)
    async with FakeServer([opened], unknown=whole) as server:
        endpoint = Endpoint(provider="fake", base_url=server.base_url, api="responses")
        found = await collect(WireModel(endpoint, "m", transport, sleep=asyncio.sleep), BACKGROUND)
    assert [d.text for d in found if isinstance(d, TextDelta)] == ["Hi."]
    assert found[-1].message.text == "Hi."  # type: ignore[union-attr]


async def test_a_failed_answer_is_its_failure(model: WireModel, server: FakeServer) -> None:
    error = {"code": "server_error", "message": "broke"}
    failed = msgspec.json.encode({"id": "r", "status": "failed", "output": [], "error": error})
    server.answers += [REPLY, RawAnswer(chunks=(failed,), content_type="application/json")]
    with pytest.raises(LLMOverloaded) as caught:
        await answer(model, BACKGROUND, deltas=False)
    assert caught.value.context["detail"] == "broke"
    event = msgspec.json.encode(
        {"type": "response.failed", "sequence_number": 99, "response": {"error": error}}
    )
    broken = RawAnswer(chunks=(b"data: %b\n\n" % event,))
    server.answers += [Reply(text="Hello there.", break_at="middle"), broken]
    with pytest.raises(LLMOverloaded) as caught:
        await answer(model, BACKGROUND)
    assert caught.value.context["detail"] == "broke"


async def test_failed_questions_are_asked_again_but_not_for_ever(
    model: WireModel, server: FakeServer, waits: list[float]
) -> None:
    busy = Failure(status=503, headers={"retry-after": "7"})
    server.answers += [REPLY, *[busy] * 4]
    assert (await answer(model, BACKGROUND, deltas=False)).text == REPLY.text
    assert 7.0 in waits
    server.answers += [REPLY, *[busy] * 5]
    with pytest.raises(LLMOverloaded):
        await answer(model, BACKGROUND, deltas=False)
    assert server.cancelled.is_set()


async def test_a_refused_question_is_no_refused_request(
    model: WireModel, server: FakeServer
) -> None:
    """Not found would make the chat API be asked instead, for an answer that is under way."""
    server.answers += [REPLY, Failure(status=404, message="no such response")]
    with pytest.raises(LLMProtocolError):
        await answer(model, BACKGROUND, deltas=False)


@HEARD
async def test_an_answer_that_is_not_whole_in_time_is_cancelled(
    make: Callable[..., WireModel], server: FakeServer, deltas: bool
) -> None:
    model = make(timeouts=Timeouts(connect_s=1, first_token_s=1, idle_s=1, total_s=0.2))
    gate = HoldPoint()
    server.answers.append(Reply(text="x", open_for=10**9, gate=gate, gate_at="end"))
    with pytest.raises(LLMTimeout) as caught:
        await answer(model, BACKGROUND, deltas=deltas)
    assert caught.value.context["phase"] == "the whole answer"
    assert server.cancelled.is_set()


async def test_a_caller_who_leaves_a_stream_cancels_it_at_the_provider(
    model: WireModel, server: FakeServer
) -> None:
    server.answers.append(Reply(text="Hello there.", gate=HoldPoint(), gate_at="end"))
    stream = model.stream(BACKGROUND)
    assert isinstance(await anext(stream), TextDelta)
    await stream.aclose()
    assert server.cancelled.is_set()
    assert server.requests[-1].path == "/v1/responses/resp_1/cancel"


async def test_a_cancelled_task_that_waits_cancels_it_at_the_provider(
    server: FakeServer, transport: HttpTransport
) -> None:
    waiting = asyncio.Event()

    async def wait(seconds: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    endpoint = Endpoint(provider="fake", base_url=server.base_url, api="responses", key=Secret(KEY))
    model = WireModel(endpoint, "fake-model", transport, sleep=wait)
    server.answers.append(Reply(text="Hello there.", open_for=9))
    task = asyncio.create_task(collect(model, BACKGROUND, deltas=False))
    await asyncio.wait_for(waiting.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert server.cancelled.is_set()


@pytest.mark.parametrize("bad", ["../files", "a/b", "", "x" * 600, "..", "a?b", "a b"])
async def test_an_id_that_would_lead_elsewhere_is_not_asked_for(
    model: WireModel, server: FakeServer, bad: str
) -> None:
    body = b'{"id":"%b","status":"queued","output":[]}' % bad.encode()
    server.answers.append(RawAnswer(chunks=(body,), content_type="application/json"))
    with pytest.raises(LLMError) as caught:
        await answer(model, BACKGROUND, deltas=False)
    assert caught.value.code == "llm.protocol" and len(server.requests) == 1
