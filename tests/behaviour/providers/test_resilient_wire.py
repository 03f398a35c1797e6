"""Resilience, accounting and cassettes around the real wires and a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.errors import CassetteMismatch, LLMBadRequest, LLMCircuitOpen, LLMOverloaded
from holdfast.messages import Message, TextPart, ToolSpec
from holdfast.providers.breaker import BreakerModel, BreakerPolicy, CircuitBreaker
from holdfast.providers.events import ModelFellBack, ModelRetried, ProviderEvent
from holdfast.providers.fallback import FallbackModel
from holdfast.providers.model import Delta, Finished, Model, ModelRequest, Restarted, TextDelta
from holdfast.providers.rate_limits import RateLimitedModel, RateLimiter
from holdfast.providers.rate_rules import RateLimitRule
from holdfast.providers.retry import RetryingModel, RetryPolicy
from holdfast.providers.wire.endpoint import Api, Endpoint, Secret
from holdfast.providers.wire.http import HttpTransport
from holdfast.providers.wire.model import WireModel
from holdfast.testing import Cassette, FakeClock
from holdfast.testing.fake_server import Failure, FakeServer, Reply, ScriptedCall

KEY = "sk-planted-0123456789abcdef"
APIS: tuple[Api, ...] = ("chat", "responses", "anthropic")
ADD = ToolSpec(name="add", description="Add.", parameters={"type": "object", "properties": {}})


@pytest.fixture
async def transport() -> AsyncIterator[HttpTransport]:
    transport = HttpTransport()
    yield transport
    await transport.close()


def request(text: str = "What is 15 times 23?") -> ModelRequest:
    message = Message(id="m1", session_id="s1", role="user", parts=(TextPart(text=text),))
    return ModelRequest(messages=(message,), tools=(ADD,), max_output_tokens=100)


def wire(base_url: str, api: Api, transport: HttpTransport) -> WireModel:
    endpoint = Endpoint(provider="fake", base_url=base_url, api=api, key=Secret(KEY))
    return WireModel(endpoint, "fake-model", transport)


async def collect(model: Model, asked: ModelRequest, *, deltas: bool = True) -> list[Delta]:
    return [delta async for delta in model.stream(asked, deltas=deltas)]


def told(deltas: list[Delta]) -> list[object]:
    """What an answer says, without the ids and times of this run."""
    last = deltas[-1]
    assert isinstance(last, Finished)
    message = last.message
    return [deltas[:-1], message.parts, message.usage, message.stop_reason, last.request_id]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("deltas", [True, False], ids=["streamed", "whole"])
async def test_a_replayed_answer_is_the_recorded_one(tmp_path: Path, transport, api, deltas):
    path = tmp_path / "tape.yaml"
    answers = [
        Reply(text="Let me see, café ☕", calls=(ScriptedCall(name="add", arguments='{"a": 1}'),)),
        Failure(status=429, message=f"slow down, {KEY}", headers={"Retry-After": "7"}),
    ]
    outcomes = []
    async with FakeServer(answers, key=KEY) as server:
        async with Cassette(path, upstream=server.base_url, mode="record") as tape:
            model = wire(tape.base_url, api, transport)
            outcomes.append(told(await collect(model, request(), deltas=deltas)))
            with pytest.raises(Exception) as recorded:
                await collect(model, request("and again?"), deltas=deltas)
    async with Cassette(path) as tape:
        model = wire(tape.base_url, api, transport)
        outcomes.append(told(await collect(model, request(), deltas=deltas)))
        with pytest.raises(type(recorded.value)) as replayed:
            await collect(model, request("and again?"), deltas=deltas)
        assert tape.unused == 0
    assert outcomes[0] == outcomes[1]
    assert replayed.value.context["retry_after_s"] == 7
    assert KEY not in path.read_text() + str(replayed.value) + repr(replayed.value.context)


async def test_a_changed_request_is_shown_and_not_retried(tmp_path: Path, transport):
    path = tmp_path / "tape.yaml"
    async with FakeServer([Reply(text="hello")], key=KEY) as server:
        async with Cassette(path, upstream=server.base_url, mode="record") as tape:
            await collect(wire(tape.base_url, "chat", transport), request())
    events: list[ProviderEvent] = []
    with pytest.raises(CassetteMismatch) as raised:
        async with Cassette(path) as tape:
            inner = wire(tape.base_url, "chat", transport)
            await collect(RetryingModel(inner, on_event=events.append), request("Something else?"))
    assert isinstance(raised.value.__cause__, LLMBadRequest)
    assert "Something else?" in str(raised.value)
    assert events == []


@pytest.mark.parametrize("api", APIS)
async def test_a_stream_that_broke_half_way_begins_anew(transport, api):
    clock, events = FakeClock(), []
    answers = [Reply(text="half of it, no more", break_at="middle"), Reply(text="whole")]
    async with FakeServer(answers, key=KEY) as server:
        model = RetryingModel(
            wire(server.base_url, api, transport),
            on_event=events.append,
            clock=clock,
            sleep=clock.sleep,
        )
        deltas = await collect(model, request())
        assert len(server.requests) == 2
    begin = [index for index, delta in enumerate(deltas) if isinstance(delta, Restarted)]
    assert len(begin) <= 1
    shown = "".join(d.text for d in deltas[(begin or [-1])[0] + 1 :] if isinstance(d, TextDelta))
    assert shown == "whole"
    assert [type(event) for event in events] == [ModelRetried]


async def test_the_whole_stack_waits_breaks_and_falls_back(transport):
    clock, events = FakeClock(), []
    busy = Failure(status=529, message="overloaded")
    slow = Failure(status=429, message="slow down", headers={"Retry-After": "9"})
    limiter = RateLimiter(
        [RateLimitRule(name="r", max_calls=50, max_tokens=100_000)], clock=clock, sleep=clock.sleep
    )

    def stack(base_url: str, api: Api) -> RetryingModel:
        policy = BreakerPolicy(failures_in_row=2, open_s=30)
        breaker = CircuitBreaker(base_url, policy=policy, clock=clock)
        return RetryingModel(
            RateLimitedModel(
                BreakerModel(wire(base_url, api, transport), breaker), limiter, tenant="acme"
            ),
            policy=RetryPolicy(attempts=3),
            on_event=events.append,
            clock=clock,
            sleep=clock.sleep,
        )

    async with (
        FakeServer([busy, busy], key=KEY) as first,
        FakeServer([slow, Reply(text="from the second"), Reply(text="again")], key=KEY) as second,
    ):
        model = FallbackModel(
            [stack(first.base_url, "chat"), stack(second.base_url, "anthropic")],
            on_event=events.append,
        )
        begun = clock.monotonic()
        last = (await collect(model, request(), deltas=False))[-1]
        assert isinstance(last, Finished)
        assert last.message.text == "from the second"
        assert clock.monotonic() - begun >= 9
        # The circuit of the first is open now: it is passed by without a request.
        await collect(model, request(), deltas=False)
        assert len(first.requests) == 2
        with pytest.raises(LLMCircuitOpen):
            await collect(stack_of(model, 0), request())
    fell = [event for event in events if isinstance(event, ModelFellBack)]
    assert [event.error_code for event in fell] == ["llm.circuit_open", "llm.circuit_open"]
    assert KEY not in repr(events)


def stack_of(model: FallbackModel, index: int) -> Model:
    return model.models[index]


async def test_an_error_of_the_provider_tells_no_key(transport):
    clock = FakeClock()
    broken = Failure(status=503, message=f"the key {KEY} found nobody at home")
    async with FakeServer([broken] * 2, key=KEY) as server:
        events: list[ProviderEvent] = []
        model = RetryingModel(
            wire(server.base_url, "chat", transport),
            policy=RetryPolicy(attempts=2),
            on_event=events.append,
            clock=clock,
            sleep=clock.sleep,
        )
        with pytest.raises(LLMOverloaded) as raised:
            await collect(model, request())
    assert KEY not in repr(raised.value) + repr(raised.value.context) + repr(events)
