"""The OpenAI-compatible face, with the stock client as the peer."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from served import Running, running

from holdfast import Agent, tool
from holdfast.errors import LLMAuthError, ScriptExhausted
from holdfast.providers import ModelRequest
from holdfast.testing import FunctionModel, tool_call

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "strict": True,
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(permission="ask")
def erase(name: str) -> str:
    """Erase something."""
    return f"erased {name}"


def script(*answers: Any) -> FunctionModel:
    """A model that gives these answers in order; a function makes one from the request."""
    left = list(answers)

    async def reply(request: ModelRequest) -> Any:
        if not left:
            raise ScriptExhausted(answers=len(answers), asked="")
        answer = left.pop(0)
        answer = answer(request) if callable(answer) else answer
        return await answer if inspect.isawaitable(answer) else answer

    return FunctionModel(reply)


def make_agents(**models: FunctionModel) -> list[Agent]:
    return [Agent(name, model=model, tools=[add, erase]) for name, model in models.items()]


def connect(server: Running, key: str = "") -> openai.AsyncOpenAI:
    url = f"{server.url}/openai/v1"
    return openai.AsyncOpenAI(base_url=url, api_key=key or server.token, max_retries=0)


@pytest.fixture
async def talk(tmp_path: Path) -> AsyncIterator[Any]:
    """Serve agents with scripted models, and return the stock client."""
    async with contextlib.AsyncExitStack() as stack:

        async def begin(**models: FunctionModel) -> tuple[openai.AsyncOpenAI, Running]:
            served = running(tmp_path, agents=make_agents(**models))
            server = await stack.enter_async_context(served)
            return await stack.enter_async_context(connect(server)), server

        yield begin


async def test_each_agent_is_a_model(talk: Any) -> None:
    client, _ = await talk(helper=script("hi"))
    names = [model.id async for model in client.models.list()]
    assert "helper" in names
    assert (await client.models.retrieve("helper")).object == "model"
    with pytest.raises(openai.NotFoundError) as refused:
        await client.models.retrieve("nobody")
    assert refused.value.code == "model_not_found"


async def test_a_chat_takes_its_whole_conversation_along(talk: Any) -> None:
    seen: list[ModelRequest] = []
    model = script(lambda request: seen.append(request) or "Bern.")
    client, _ = await talk(helper=model)
    answer = await client.chat.completions.create(
        model="helper",
        messages=[
            {"role": "system", "content": "Answer in one word."},
            {"role": "user", "content": "Do you know capitals?"},
            {"role": "assistant", "content": "Yes."},
            {"role": "user", "content": "That of Switzerland?"},
        ],
        temperature=0.25,
        max_completion_tokens=77,
    )
    assert answer.choices[0].message.content == "Bern."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    [request] = seen
    assert [m.text for m in request.messages] == [
        "Do you know capitals?", "Yes.", "That of Switzerland?",
    ]  # fmt: skip
    assert request.system.endswith("Answer in one word.")
    assert (request.temperature, request.max_output_tokens) == (0.25, 77)


async def test_a_chat_streams_and_tells_its_usage_last(talk: Any) -> None:
    client, _ = await talk(helper=script(tool_call("add", a=1, b=2), "It is three."))
    stream = await client.chat.completions.create(
        model="helper",
        messages=[{"role": "user", "content": "1 + 2?"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "It is three."
    assert chunks[-1].usage.total_tokens > 0
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert len({chunk.id for chunk in chunks}) == 1


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_tools_of_the_client_are_executed_by_the_client(talk: Any, is_streamed: bool) -> None:
    model = script(
        tool_call("weather", city="Bern"), lambda r: f"Told: {r.messages[-1].tool_calls[0].output}"
    )
    client, _ = await talk(helper=model)
    messages: list[Any] = [{"role": "user", "content": "Weather in Bern?"}]
    if is_streamed:
        async with client.chat.completions.stream(
            model="helper", messages=messages, tools=[WEATHER]
        ) as stream:
            first = await stream.get_final_completion()
    else:
        first = await client.chat.completions.create(
            model="helper", messages=messages, tools=[WEATHER]
        )
    choice = first.choices[0]
    assert choice.finish_reason == "tool_calls"
    [call] = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == (
        "weather", {"city": "Bern"},
    )  # fmt: skip
    messages += [
        choice.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "rain"},
    ]
    second = await client.chat.completions.create(
        model="helper", messages=messages, tools=[WEATHER]
    )
    assert second.choices[0].message.content == "Told: rain"
    again = await client.chat.completions.create(model="helper", messages=messages, tools=[WEATHER])
    assert again.choices[0].message.content == "Told: rain"  # sent again, it changes nothing
    messages += [
        {"role": "assistant", "content": "Told: rain"},
        {"role": "user", "content": "And now?"},
    ]
    with pytest.raises(openai.APIStatusError):  # the script is at its end, not the conversation
        await client.chat.completions.create(model="helper", messages=messages, tools=[WEATHER])


async def test_results_for_a_call_that_nobody_made_are_refused(talk: Any) -> None:
    client, _ = await talk(helper=script("hi"))
    with pytest.raises(openai.BadRequestError):
        await client.chat.completions.create(
            model="helper",
            messages=[
                {"role": "user", "content": "x"},
                {
                    "role": "assistant",
                    "tool_calls": [
                        {
                            "id": "run_0123.call_1",
                            "type": "function",
                            "function": {"name": "weather", "arguments": "{}"},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": "run_0123.call_1", "content": "rain"},
            ],
        )


async def test_a_tool_of_the_client_cannot_take_the_place_of_the_agents(talk: Any) -> None:
    client, _ = await talk(helper=script("hi"))
    stolen = {"type": "function", "function": {"name": "add", "parameters": {}}}
    with pytest.raises(openai.BadRequestError) as refused:
        await client.chat.completions.create(
            model="helper", messages=[{"role": "user", "content": "x"}], tools=[stolen]
        )
    assert "another one" in refused.value.message


async def test_errors_come_in_their_form(talk: Any) -> None:
    client, server = await talk(helper=script(LLMAuthError(provider="p", detail="no")))
    async with connect(server, "wrong") as stranger:
        with pytest.raises(openai.AuthenticationError) as refused:
            await stranger.models.list()
    assert refused.value.code == "invalid_api_key"
    with pytest.raises(openai.NotFoundError) as missing:
        await client.chat.completions.create(
            model="nobody", messages=[{"role": "user", "content": "x"}]
        )
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError) as wrong:
        await client.chat.completions.create(model="helper", messages=[])
    assert wrong.value.param == "messages"
    with pytest.raises(openai.APIStatusError) as failed:
        await client.chat.completions.create(
            model="helper", messages=[{"role": "user", "content": "x"}]
        )
    assert failed.value.response.headers["x-should-retry"] == "false"
    with pytest.raises(openai.NotFoundError):
        await client.files.list()


async def test_a_retry_with_the_same_key_runs_once(talk: Any) -> None:
    client, server = await talk(helper=script("only once"))
    headers = {"Idempotency-Key": "k1"}
    texts = []
    for _ in range(2):
        answer = await client.chat.completions.create(
            model="helper", messages=[{"role": "user", "content": "x"}], extra_headers=headers
        )
        texts.append(answer.choices[0].message.content)
    assert texts == ["only once", "only once"]
    _, found = await server.ask("GET", "/v1/runs")
    assert len(found["items"]) == 1


@pytest.mark.parametrize("change", ["earlier message", "temperature", "tools"])
async def test_a_key_stands_for_the_whole_request(talk: Any, change: str) -> None:
    client, server = await talk(helper=script("first", "second"))
    headers = {"Idempotency-Key": "k1"}

    def ask(first: str, **more: Any) -> Any:
        messages: Any = [
            {"role": "user", "content": first},
            {"role": "assistant", "content": "well"},
            {"role": "user", "content": "the same end"},
        ]
        return client.chat.completions.create(
            model="helper", messages=messages, extra_headers=headers, **more
        )

    await ask("one")
    other: dict[str, Any] = {"earlier message": {}, "temperature": {"temperature": 0.5}}
    with pytest.raises(openai.BadRequestError) as refused:
        changed = "two" if change == "earlier message" else "one"
        await ask(changed, **other.get(change, {"tools": [WEATHER]}))
    assert refused.value.code == "request.key_reused"
    _, found = await server.ask("GET", "/v1/runs")
    assert len(found["items"]) == 1


async def test_an_answer_that_takes_too_long_is_given_up_and_its_run_ends(tmp_path: Path) -> None:
    asked, never = asyncio.Event(), asyncio.Event()

    async def wait(_: ModelRequest) -> str:
        asked.set()
        await never.wait()
        return "late"

    agents = make_agents(helper=FunctionModel(wait))
    async with running(tmp_path, agents=agents, request_timeout_s=0.3) as server:
        client = connect(server)
        for work in (
            client.chat.completions.create(
                model="helper", messages=[{"role": "user", "content": "x"}]
            ),
            client.responses.create(model="helper", input="x"),
        ):
            with pytest.raises(openai.APIStatusError) as late:
                await work
            assert late.value.code == "request.timeout"
        await client.close()
        assert asked.is_set()
        async with asyncio.timeout(10):
            while True:
                _, found = await server.ask("GET", "/v1/runs")
                if [one["status"] for one in found["items"]] == ["cancelled", "cancelled"]:
                    break


async def test_a_key_for_one_agent_needs_no_right_to_look_at_agents(tmp_path: Path) -> None:
    agents = make_agents(helper=script("hello"), other=script("no"))
    async with running(tmp_path, agents=agents) as server:
        scopes = ["runs:write:helper", "runs:read", "sessions:write", "sessions:read"]
        _, made = await server.ask("POST", "/v1/keys", {"name": "k", "scopes": scopes})
        client = connect(server, made["secret"])
        answer = await client.chat.completions.create(
            model="helper", messages=[{"role": "user", "content": "x"}]
        )
        assert answer.choices[0].message.content == "hello"
        for model in ("other", "nobody"):
            with pytest.raises(openai.APIStatusError) as refused:
                await client.responses.create(model=model, input="x")
            assert refused.value.status_code in (403, 404)
        await client.close()


async def test_a_response_goes_on_where_the_one_before_ended(talk: Any) -> None:
    seen: list[list[str]] = []

    def reply(request: ModelRequest) -> str:
        seen.append([m.text for m in request.messages])
        return f"answer {len(seen)}"

    client, _ = await talk(helper=script(*[reply] * 3))
    first = await client.responses.create(model="helper", input="one", metadata={"a": "b"})
    assert (first.output_text, first.status, first.metadata) == (
        "answer 1",
        "completed",
        {"a": "b"},
    )
    second = await client.responses.create(
        model="helper", input="two", previous_response_id=first.id
    )
    assert second.previous_response_id == first.id
    branch = await client.responses.create(
        model="helper", input="other", previous_response_id=first.id
    )
    assert seen == [
        ["one"],
        ["one", "answer 1", "two"],
        ["one", "answer 1", "other"],
    ]
    for one in (first, second, branch):
        stored = await client.responses.retrieve(one.id)
        assert stored.output == one.output
        assert stored.usage == one.usage
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve("resp_0000")


async def test_a_response_streams_events_that_the_stock_client_can_gather(talk: Any) -> None:
    client, _ = await talk(helper=script(tool_call("add", a=1, b=2), "It is three."))
    async with client.responses.stream(model="helper", input="1 + 2?") as stream:
        names = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert names[0] == "response.created"
    assert names[-1] == "response.completed"
    assert "response.output_text.delta" in names
    assert final.output_text == "It is three."
    [call] = [item for item in final.output if item.type == "mcp_call"]
    assert (call.name, call.output, call.server_label) == ("add", "3", "holdfast")
    stored = await client.responses.retrieve(final.id)
    assert [item.id for item in stored.output] == [item.id for item in final.output]


async def test_functions_of_the_client_work_in_responses(talk: Any) -> None:
    model = script(
        tool_call("weather", city="Bern"), lambda r: f"Told: {r.messages[-1].tool_calls[0].output}"
    )
    client, _ = await talk(helper=model)
    flat = {"type": "function", **WEATHER["function"]}
    first = await client.responses.create(model="helper", input="Weather?", tools=[flat])
    [call] = first.output
    assert call.type == "function_call"
    with pytest.raises(openai.BadRequestError) as refused:
        await client.responses.create(model="helper", input="x", previous_response_id=first.id)
    assert "No tool output found" in refused.value.message
    output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    second = await client.responses.create(
        model="helper", input=[output], previous_response_id=first.id, tools=[flat]
    )
    assert second.output_text == "Told: rain"
    assert second.id != first.id
    assert (await client.responses.retrieve(first.id)).output == first.output
    assert (await client.responses.retrieve(second.id)).output == second.output


async def test_consent_is_asked_of_a_client_that_may_give_it(talk: Any) -> None:
    client, _ = await talk(helper=script(tool_call("erase", name="disk"), "Done."))
    first = await client.responses.create(model="helper", input="Erase the disk.")
    [asked] = [item for item in first.output if item.type == "mcp_approval_request"]
    assert (asked.name, json.loads(asked.arguments)) == ("erase", {"name": "disk"})
    answer: Any = {
        "type": "mcp_approval_response", "approval_request_id": asked.id, "approve": True,
    }  # fmt: skip
    second = await client.responses.create(
        model="helper", input=[answer], previous_response_id=first.id
    )
    assert second.output_text == "Done."
    [call] = [item for item in second.output if item.type == "mcp_call"]
    assert call.output == "erased disk"


async def test_a_response_in_the_background_is_polled_and_followed(talk: Any) -> None:
    client, _ = await talk(helper=script(tool_call("add", a=1, b=2), "It is three."))
    first = await client.responses.create(model="helper", input="1 + 2?", background=True)
    assert first.background
    assert first.status in ("queued", "in_progress", "completed")
    stream = await client.responses.retrieve(first.id, stream=True)
    events = [event async for event in stream]
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == "It is three."
    rest = await client.responses.retrieve(first.id, stream=True, starting_after=3)
    assert [e.sequence_number async for e in rest] == [e.sequence_number for e in events[4:]]
    assert (await client.responses.retrieve(first.id)).output_text == "It is three."


async def test_a_response_in_the_background_can_be_cancelled(talk: Any, tmp_path: Path) -> None:
    reached = asyncio.Event()

    async def hang(_: ModelRequest) -> str:
        reached.set()
        await asyncio.Event().wait()
        return ""

    client, _ = await talk(helper=script(hang))
    first = await client.responses.create(model="helper", input="x", background=True)
    await reached.wait()
    assert (await client.responses.retrieve(first.id)).status == "in_progress"
    assert (await client.responses.cancel(first.id)).status == "cancelled"


async def test_a_client_that_leaves_a_stream_ends_its_run(talk: Any) -> None:
    reached = asyncio.Event()

    async def hang(_: ModelRequest) -> str:
        reached.set()
        await asyncio.Event().wait()
        return ""

    client, server = await talk(helper=script(tool_call("add", a=1, b=2), hang))
    stream = await client.responses.create(model="helper", input="x", stream=True)
    await reached.wait()
    await stream.close()
    state: dict[str, Any] = {}

    async def look() -> None:
        _, found = await server.ask("GET", "/v1/runs")
        state.update(found["items"][0])

    async with asyncio.timeout(10):
        while state.get("status") != "cancelled":
            await look()


async def test_what_belongs_to_others_does_not_exist(tmp_path: Path) -> None:
    model = script("mine", tool_call("weather", city="x"), "yours")
    async with running(tmp_path, agents=make_agents(helper=model)) as server:
        keys = []
        for subject in ("ann", "bob"):
            body = {"name": subject, "subject": subject, "scopes": ["runs:*", "agents:read"]}
            status, made = await server.ask("POST", "/v1/keys", body)
            assert status in (200, 201), made
            keys.append(made["secret"])
        ann, bob = (connect(server, key) for key in keys)
        mine = await ann.responses.create(model="helper", input="x")
        with pytest.raises(openai.NotFoundError):
            await bob.responses.retrieve(mine.id)
        with pytest.raises(openai.BadRequestError):
            await bob.responses.create(model="helper", input="x", previous_response_id=mine.id)
        parked = await ann.chat.completions.create(
            model="helper", messages=[{"role": "user", "content": "x"}], tools=[WEATHER]
        )
        message = parked.choices[0].message
        call = message.tool_calls[0]
        with pytest.raises(openai.BadRequestError):
            await bob.chat.completions.create(
                model="helper",
                messages=[
                    {"role": "user", "content": "x"},
                    message.model_dump(exclude_none=True),
                    {"role": "tool", "tool_call_id": call.id, "content": "mine now"},
                ],
            )
        await ann.close()
        await bob.close()
