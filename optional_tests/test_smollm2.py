"""A real model of 135 million parameters, in this process; run by scripts/test-local-model."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
from scored_models import find_smollm2

from holdfast.messages import Message, TextPart, ToolSpec
from holdfast.providers.gguf import GgufModel
from holdfast.providers.json_schema import fits
from holdfast.providers.model import Finished, Model, ModelRequest, TextDelta
from holdfast.providers.tool_modes import ToolModeModel
from holdfast.providers.tool_probe import probe_tool_mode
from holdfast.providers.wire import HttpTransport

CALCULATOR = ToolSpec(
    name="calculator",
    description="Calculate with two numbers",
    parameters={
        "type": "object",
        "properties": {
            "operation": {"type": "string", "enum": ["add", "subtract", "multiply", "divide"]},
            "a": {"type": "number"},
            "b": {"type": "number"},
        },
        "required": ["operation", "a", "b"],
        "additionalProperties": False,
    },
)


@pytest.fixture
async def model() -> AsyncIterator[GgufModel]:
    transport = HttpTransport()
    model = GgufModel(find_smollm2(), transport, context_window=2048)
    yield model
    await model.close()
    await transport.close()


def asking(text: str, **fields: object) -> ModelRequest:
    goal = Message(id="m", session_id="s", role="user", parts=(TextPart(text=text),))
    return ModelRequest(messages=(goal,), temperature=0, max_output_tokens=120, **fields)  # type: ignore[arg-type]


async def answer(model: Model, request: ModelRequest) -> Message:
    deltas = [delta async for delta in model.stream(request)]
    assert isinstance(deltas[-1], Finished)
    return deltas[-1].message


async def test_it_streams_text(model: GgufModel) -> None:
    deltas = [delta async for delta in model.stream(asking("Say hello."))]
    assert isinstance(deltas[-1], Finished)
    shown = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    assert shown == deltas[-1].message.text != ""


async def test_it_calls_a_tool_with_the_right_numbers(model: GgufModel) -> None:
    request = asking("What is 15 times 23?", tools=(CALCULATOR,), tool_choice="required")
    message = await answer(ToolModeModel(model, "json_schema"), request)
    [call] = message.tool_calls
    assert call.tool == "calculator"
    assert fits(call.input, CALCULATOR.parameters)
    assert (call.input["a"], call.input["b"]) == (15, 23)


async def test_the_probe_finds_the_mode_that_works(model: GgufModel) -> None:
    found = await probe_tool_mode(model)
    assert (found.mode, found.is_working) == ("json_schema", True)


async def test_the_server_wants_its_key(model: GgufModel) -> None:
    await answer(model, asking("Hi"))
    address = model._server.listening_address
    assert address.startswith("http://127.0.0.1:")
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{address}/v1/chat/completions", json={"messages": []}) as response,
    ):
        assert response.status == 401
