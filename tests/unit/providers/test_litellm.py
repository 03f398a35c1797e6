"""Against LiteLLM itself, with its own offline answers and against our fake server."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from holdfast.errors import LLMContextTooLong, LLMError, LLMOverloaded, LLMRateLimited, MissingExtra
from holdfast.messages import Message, TextPart, ToolSpec
from holdfast.providers.litellm import LiteLLMModel
from holdfast.providers.model import Delta, Finished, ModelRequest, TextDelta, ToolCallDelta
from holdfast.providers.registry import ProviderRegistry
from holdfast.providers.wire import Secret
from holdfast.testing.fake_server import Failure, FakeServer, Reply, ScriptedCall

pytestmark = pytest.mark.filterwarnings("ignore")
GOAL = Message(id="m", session_id="s", role="user", parts=(TextPart(text="Hi"),))
ADD = ToolSpec(
    name="add",
    description="Add",
    parameters={"type": "object", "properties": {"a": {"type": "integer"}}},
)


def model(**options: Any) -> LiteLLMModel:
    return LiteLLMModel("openai/gpt-4o-mini", key=Secret("test-key"), options=options)


async def collect(asked: LiteLLMModel, *, deltas: bool = True, **fields: Any) -> list[Delta]:
    request = ModelRequest(messages=(GOAL,), **fields)
    return [delta async for delta in asked.stream(request, deltas=deltas)]


@pytest.mark.parametrize("deltas", [True, False])
async def test_a_text_comes_through(deltas: bool) -> None:
    found = await collect(model(mock_response="hello there"), deltas=deltas)
    assert isinstance(found[-1], Finished)
    message = found[-1].message
    assert (message.text, message.stop_reason, message.provider) == (
        "hello there",
        "stop",
        "litellm",
    )
    assert message.usage is not None
    assert message.usage.total > 0
    shown = "".join(delta.text for delta in found if isinstance(delta, TextDelta))
    assert shown == ("hello there" if deltas else "")


@pytest.mark.parametrize("deltas", [True, False])
async def test_tools_and_calls_come_through(deltas: bool) -> None:
    call = ScriptedCall(name="add", arguments='{"a": 1}')
    async with FakeServer([Reply(calls=(call,))], key="test-key") as server:
        found = await collect(model(api_base=server.base_url), deltas=deltas, tools=(ADD,))
        sent = server.requests[0].json
    assert isinstance(found[-1], Finished)
    assert [(c.tool, c.input) for c in found[-1].message.tool_calls] == [("add", {"a": 1})]
    assert found[-1].message.stop_reason == "tool_calls"
    assert sent["tools"][0]["function"]["name"] == "add"
    assert any(isinstance(delta, ToolCallDelta) for delta in found) is deltas


@pytest.mark.parametrize(
    ("mock", "wanted"),
    [
        ("litellm.RateLimitError", LLMRateLimited),
        ("litellm.ContextWindowExceededError", LLMContextTooLong),
        ("litellm.InternalServerError", LLMOverloaded),
    ],
)
async def test_errors_become_ours(mock: str, wanted: type[LLMError]) -> None:
    with pytest.raises(wanted) as raised:
        await collect(model(mock_response=mock))
    assert raised.value.__cause__ is None
    assert "test-key" not in f"{raised.value.to_dict()}"


async def test_a_wait_that_the_vendor_asks_for_is_known() -> None:
    limited = Failure(status=429, headers={"Retry-After": "7"})
    async with FakeServer([limited], key="test-key") as server:
        with pytest.raises(LLMRateLimited) as raised:
            await collect(model(api_base=server.base_url), deltas=False)
    assert raised.value.context["retry_after_s"] == 7.0


@pytest.mark.parametrize("deltas", [True, False])
async def test_a_call_that_was_cut_before_its_arguments_has_none_to_run_with(deltas: bool) -> None:
    reply = Reply(calls=(ScriptedCall(name="add", arguments=""),), stop_reason="length")
    async with FakeServer([reply], key="test-key") as server:
        found = await collect(model(api_base=server.base_url), deltas=deltas, tools=(ADD,))
    assert isinstance(found[-1], Finished)
    assert found[-1].message.tool_calls[0].raw_input


async def test_a_package_that_litellm_misses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = model(mock_response=Exception("No module named 'mcp'"))
    with pytest.raises(MissingExtra) as raised:
        await collect(asked)
    assert raised.value.context["package"] == "mcp"


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(MissingExtra) as raised:
        model()
    assert "holdfast[litellm]" in raised.value.hint


async def test_a_check_asks_a_named_model_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = ProviderRegistry(None, keys=lambda name: "")
    config = await registry.get_provider("litellm")
    assert (await registry.check_provider(config)).checked == "package"
    monkeypatch.setenv("OPENAI_API_KEY", "test-key")
    async with FakeServer([Reply(text="hello")], key="test-key") as server:
        monkeypatch.setenv("OPENAI_API_BASE", server.base_url)
        asked = await registry.check_provider(config, model="openai/fake-model")
        assert (asked.is_ok, asked.checked, len(server.requests)) == (True, "answer", 1)
        monkeypatch.setenv("OPENAI_API_KEY", "wrong-key")
        refused = await registry.check_provider(config, model="openai/fake-model")
        assert (refused.is_ok, refused.checked, refused.code) == (False, "", "llm.auth")
    await registry.close()


async def test_a_check_without_the_package_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "litellm", None)
    registry = ProviderRegistry(None, keys=lambda name: "")
    check = await registry.check_provider(await registry.get_provider("litellm"))
    assert (check.is_ok, check.code) == (False, MissingExtra.code)
    await registry.close()
