"""Turns that Anthropic pauses are sent back until they are whole."""

from __future__ import annotations

import pytest
from wire_kit import KEY, answer, ask, collect, user

from holdfast.errors import LLMOverloaded
from holdfast.messages import Message, TokenUsage, ToolSpec
from holdfast.providers.model import TextDelta
from holdfast.providers.wire import Endpoint, HttpTransport, Secret, WireModel
from holdfast.providers.wire.paused import MOST_PAUSES
from holdfast.testing.fake_server import Failure, FakeServer, Reply, ScriptedCall

SEARCH = ScriptedCall(name="web_search", arguments='{"query": "tide in Gdańsk"}', id="srvtoolu_1")
PAUSED = Reply(
    text="Let me look: ",
    reasoning="Hm",
    encrypted="b3BhcXVl",
    searches=(SEARCH,),
    stop_reason="paused",
    usage=TokenUsage(input=10, output=5, cache_read=2),
    container="container_1",
)
WHOLE = Reply(text="It is high at noon.", usage=TokenUsage(input=30, output=7))
HEARD = pytest.mark.parametrize("deltas", [True, False], ids=["heard", "quiet"])


@pytest.fixture
def model(server: FakeServer, transport: HttpTransport) -> WireModel:
    endpoint = Endpoint(provider="fake", base_url=server.base_url, api="anthropic", key=Secret(KEY))
    return WireModel(endpoint, "fake-model", transport)


@HEARD
async def test_a_paused_turn_is_sent_back_as_it_came(
    model: WireModel, server: FakeServer, deltas: bool
) -> None:
    server.answers += [PAUSED, PAUSED, WHOLE]
    found = await collect(model, ask(system="Be brief."), deltas=deltas)
    message = found[-1].message  # type: ignore[union-attr]
    assert message.text == "Let me look: \nLet me look: \nIt is high at noon."
    assert message.stop_reason == "stop"
    assert message.usage == TokenUsage(input=50, output=17, cache_read=4)
    first, second, third = (request.json for request in server.requests)
    assert second["messages"][:-1] == first["messages"]
    kinds = [block["type"] for block in second["messages"][-1]["content"]]
    assert kinds == [
        "redacted_thinking",
        "thinking",
        "text",
        "server_tool_use",
        "web_search_tool_result",
    ]
    used = second["messages"][-1]["content"][3]
    assert used["input"] == {"query": "tide in Gdańsk"} and used["id"] == "srvtoolu_1"
    assert third["messages"][-1]["content"] == second["messages"][-1]["content"] * 2
    assert second["container"] == third["container"] == "container_1"
    assert "container" not in first and second["system"] == "Be brief."
    if deltas:
        said = "".join(delta.text for delta in found if isinstance(delta, TextDelta))
        assert said == message.text.replace("\n", "")


async def test_heard_or_not_it_is_the_same_message(model: WireModel, server: FakeServer) -> None:
    messages = []
    for deltas in (True, False):
        server.answers += [PAUSED, WHOLE]
        made = await answer(model, deltas=deltas)
        messages.append((made.parts, made.stop_reason, made.usage, made.metadata))
    assert messages[0] == messages[1]


@HEARD
async def test_a_turn_that_never_ends_is_cut_off(
    model: WireModel, server: FakeServer, deltas: bool
) -> None:
    server.answers += [PAUSED] * (MOST_PAUSES + 9)
    message = await answer(model, deltas=deltas)
    assert message.stop_reason == "length"
    assert len(server.requests) == MOST_PAUSES + 1


@HEARD
async def test_a_paused_turn_that_calls_is_answered_first(
    model: WireModel, server: FakeServer, deltas: bool
) -> None:
    call = ScriptedCall(name="look", id="c1")
    server.answers.append(Reply(calls=(call,), stop_reason="paused"))
    tools = (ToolSpec(name="look", description="d", parameters={"type": "object"}),)
    message = await answer(model, ask(tools=tools), deltas=deltas)
    assert message.stop_reason == "tool_calls" and len(server.requests) == 1


@HEARD
async def test_a_turn_that_fails_when_it_goes_on_is_no_answer(
    model: WireModel, server: FakeServer, deltas: bool
) -> None:
    server.answers += [PAUSED, Failure(status=529)]
    with pytest.raises(LLMOverloaded):
        await answer(model, deltas=deltas)


@HEARD
async def test_an_empty_pause_ends_the_turn(
    model: WireModel, server: FakeServer, deltas: bool
) -> None:
    server.answers.append(Reply(stop_reason="paused"))
    message: Message = await answer(model, ask(user("Hi")), deltas=deltas)
    assert message.parts == () and message.stop_reason == "stop"
