"""How a model calls tools is found out with real cases, and the best mode wins."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import LLMAuthError, LLMBadRequest
from holdfast.messages import Message, TextPart, ToolSpec
from holdfast.providers.endpoint_memory import EndpointMemory
from holdfast.providers.model import Delta, Model, ModelRequest, ToolMode
from holdfast.providers.tool_probe import CASES, ProbedToolModel, probe_tool_mode
from holdfast.testing import FunctionModel, tool_call

URL = "http://127.0.0.1:1/v1"
SAY = ToolSpec(name="say", description="Say", parameters={"type": "object", "properties": {}})
GOAL = Message(id="m", session_id="s", role="user", parts=(TextPart(text="Add 1 and 2"),))
RIGHT: dict[str, tuple[str, dict[str, Any]]] = {
    "report_number": ("report_number", {"value": 7}),
    "weather": ("get_weather", {"city": "Paris"}),
    "note": ("save_note", {"text": "Buy milk."}),
}


def request(**fields: Any) -> ModelRequest:
    return ModelRequest(**{"messages": (GOAL,), "tools": (SAY,), **fields})


async def collect(model: Model, asked: ModelRequest) -> list[Delta]:
    return [delta async for delta in model.stream(asked)]


def find_mode(asked: ModelRequest) -> ToolMode:
    if asked.tools:
        return "native"
    return "json_schema" if asked.output_schema is not None else "prompted"


def solve(asked: ModelRequest) -> tuple[str, dict[str, Any]] | None:
    text = asked.messages[0].text
    return next((call for word, call in RIGHT.items() if word in text), None)


def write(call: tuple[str, dict[str, Any]] | None) -> str:
    if call is None:
        return '{"answer": "Hello."}'
    return json.dumps({"tool": call[0], "arguments": call[1]})


def pretend(*can: ToolMode) -> FunctionModel:
    """A model that can call tools in some ways only."""

    def react(asked: ModelRequest) -> Any:
        mode = find_mode(asked)
        if asked.messages[0] is GOAL:
            return "3"
        if mode not in can:
            return LLMBadRequest(provider="x", detail="no tools") if can else "Hm."
        call = solve(asked)
        if mode == "native":
            return tool_call(call[0], **call[1]) if call is not None else "Hello."
        return write(call)

    return FunctionModel(react)


@pytest.mark.parametrize("mode", ["native", "json_schema", "prompted"])
async def test_a_probe_finds_the_mode_that_works(mode: ToolMode) -> None:
    found = await probe_tool_mode(pretend(mode))
    assert (found.mode, found.is_working) == (mode, True)


async def test_a_model_that_calls_natively_is_asked_two_things() -> None:
    model = pretend("native", "json_schema", "prompted")
    assert (await probe_tool_mode(model)).mode == "native"
    assert len(model.requests) == 2


async def test_a_mode_that_is_worse_on_the_cases_does_not_win() -> None:
    """A schema that forces some call is worse than calls that are rescued from the text."""

    def react(asked: ModelRequest) -> Any:
        mode = find_mode(asked)
        if mode == "native":
            return f"```json\n{write(solve(asked))}\n```" if solve(asked) else "Hello."
        return '{"tool": "report_number", "arguments": {"value": 7}}'

    found = await probe_tool_mode(FunctionModel(react))
    assert found.mode == "native"
    assert found.scores["native"] == len(CASES) > found.scores["json_schema"]


async def test_a_probe_of_a_model_that_cannot_says_so() -> None:
    found = await probe_tool_mode(pretend())
    assert (found.mode, found.is_working, len(found.failures)) == ("prompted", False, 3)


async def test_a_model_that_calls_something_for_everything_does_not_meet_a_greeting() -> None:
    def react(asked: ModelRequest) -> Any:
        call = solve(asked) or ("report_number", {"value": 1})
        return write(call) if find_mode(asked) == "prompted" else "Hm."

    found = await probe_tool_mode(FunctionModel(react))
    assert (found.mode, found.scores["prompted"]) == ("prompted", len(CASES) - 1)


async def test_a_probe_that_cannot_reach_the_model_finds_nothing_out() -> None:
    failing = FunctionModel(lambda asked: LLMAuthError(provider="x", detail="no", key_env="X"))
    with pytest.raises(LLMAuthError):
        await probe_tool_mode(failing)


async def test_the_mode_is_found_out_once_and_remembered(tmp_path: Path) -> None:
    path = tmp_path / "endpoints.json"
    inner = pretend("json_schema")
    model = ProbedToolModel(inner, EndpointMemory(path), URL)
    await collect(model, request(tools=()))
    assert len(inner.requests) == 1
    await asyncio.gather(*(collect(model, request(tool_choice="none")) for _ in range(3)))
    probed = len(inner.requests) - 1 - 3
    assert probed <= 3 * len(CASES)
    assert model.info.tool_mode == "json_schema"
    again = pretend("json_schema")
    fresh = ProbedToolModel(again, EndpointMemory(path), URL)
    await collect(fresh, request(tool_choice="none"))
    assert len(again.requests) == 1


async def test_a_model_that_cannot_is_probed_again_by_the_next_process(tmp_path: Path) -> None:
    memory = EndpointMemory(tmp_path / "endpoints.json")
    model = ProbedToolModel(pretend(), memory, URL)
    await collect(model, request(tool_choice="none"))
    assert model.info.tool_mode == "prompted"
    assert memory.tool_mode(URL, "scripted") is None


async def test_the_window_of_a_server_is_asked_once_and_counts(tmp_path: Path) -> None:
    asked: list[tuple[str, str]] = []

    async def find(base_url: str, model: str) -> int:
        asked.append((base_url, model))
        return 4_096

    memory = EndpointMemory(tmp_path / "endpoints.json")
    for _ in range(2):
        model = ProbedToolModel(pretend("native"), memory, URL, find_window=find)
        await collect(model, request(tools=()))
        assert model.info.context_window == 4_096
        await collect(model, request(tool_choice="none"))
        assert model.info.context_window == 4_096
    assert asked == [(URL, "scripted")]
