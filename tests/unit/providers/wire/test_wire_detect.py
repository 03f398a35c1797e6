"""Responses or chat is found out by the first real call, which is never lost."""

from __future__ import annotations

from typing import Any

import pytest
from wire_kit import answer, ask

from holdfast.errors import LLMAuthError, LLMNotFound, LLMOverloaded
from holdfast.messages import ToolSpec
from holdfast.providers.wire import Endpoint, HttpTransport, RememberedApis, ResponsesOrChat
from holdfast.testing.fake_server import Failure, FakeServer, RawAnswer, Reply, ScriptedCall

TOOL = ToolSpec(name="t", description="d", parameters={"type": "object", "properties": {}})


def detect(server: FakeServer, transport: HttpTransport, **more: Any) -> ResponsesOrChat:
    endpoint = Endpoint(provider="fake", base_url=server.base_url.replace("//", "//u:pw22@"))
    given = {"memory": RememberedApis(), **more}
    return ResponsesOrChat(endpoint, "m", transport, **given)


def paths(server: FakeServer) -> list[str]:
    return [request.path.rpartition("/v1")[2] for request in server.requests]


@pytest.mark.parametrize(
    "unknown",
    [
        Failure(status=404),
        Failure(status=405),
        Failure(status=501),
        Failure(status=400, message="Unknown request URL: POST /v1/responses"),
        RawAnswer(
            chunks=(b'{"error": "Unexpected endpoint or method. (POST /v1/responses)"}',),
            content_type="application/json",
        ),
        RawAnswer(chunks=(b"<html>app</html>",), content_type="text/html"),
    ],
    ids=["404", "405", "501", "400", "error-with-200", "page-with-200"],
)
@pytest.mark.parametrize("deltas", [True, False])
async def test_a_server_without_responses_gets_the_same_request_as_chat(
    transport: HttpTransport, unknown: Any, deltas: bool
) -> None:
    memory = RememberedApis()
    calls = (ScriptedCall(name="t", arguments='{"a": 1}'),)
    answers = [Reply(calls=calls), Reply(text="again")]
    async with FakeServer(answers, wires=("chat",), unknown=unknown) as server:
        model = detect(server, transport, memory=memory)
        assert model.api is None
        said = await answer(model, ask(tools=(TOOL,)), deltas=deltas)
        assert said.tool_calls[0].input == {"a": 1}
        assert model.api == "chat"
        assert (await answer(model, deltas=deltas)).text == "again"
        assert paths(server) == ["/responses", "/chat/completions", "/chat/completions"]
        # What is remembered holds no credentials.
        assert list(memory._known) == [(server.base_url, "m")]


async def test_a_server_with_responses_keeps_it(transport: HttpTransport) -> None:
    async with FakeServer([Reply(text="a"), Reply(text="b")]) as server:
        model = detect(server, transport)
        await answer(model)
        await answer(model)
        assert model.api == "responses"
        assert paths(server) == ["/responses", "/responses"]


async def test_force_chat_settles_it(transport: HttpTransport) -> None:
    async with FakeServer([Reply(text="a")]) as server:
        model = detect(server, transport, force_chat=True)
        await answer(model)
        assert model.api == "chat" and paths(server) == ["/chat/completions"]


async def test_stop_sequences_go_to_chat_and_settle_nothing(transport: HttpTransport) -> None:
    async with FakeServer([Reply(text="a")]) as server:
        model = detect(server, transport)
        await answer(model, ask(stop=("END",)))
        assert model.api is None and paths(server) == ["/chat/completions"]


@pytest.mark.parametrize(("status", "kind"), [(401, LLMAuthError), (503, LLMOverloaded)])
async def test_any_other_failure_is_that_failure(
    transport: HttpTransport, status: int, kind: type[Exception]
) -> None:
    async with FakeServer([Failure(status=status)]) as server:
        model = detect(server, transport)
        with pytest.raises(kind):
            await answer(model)
        assert model.api is None and paths(server) == ["/responses"]


async def test_a_model_that_nobody_knows_is_not_found(transport: HttpTransport) -> None:
    refused = [Failure(status=404, code="model_not_found") for _ in range(2)]
    async with FakeServer(refused) as server:
        model = detect(server, transport)
        with pytest.raises(LLMNotFound):
            await answer(model)
        assert model.api is None


async def test_a_server_that_lost_responses_is_learned_again(transport: HttpTransport) -> None:
    memory = RememberedApis()
    async with FakeServer([Reply(text="a")], wires=("chat",)) as server:
        memory.set(server.base_url, "m", "responses")
        model = detect(server, transport, memory=memory)
        assert (await answer(model)).text == "a"
        assert model.api == "chat"


async def test_it_is_a_model_like_any_other(transport: HttpTransport) -> None:
    async with FakeServer() as server:
        model = detect(server, transport)
        assert model.info.model == "m" and model.count_tokens(ask()) > 0
        await model.close()
