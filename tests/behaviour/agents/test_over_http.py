"""An agent over real HTTP: tools in every API, retries that are kept, keys that are not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Agent, AsyncClient, tool
from holdfast.messages import TokenUsage
from holdfast.policy.budgets import Budget
from holdfast.providers import RetryPolicy, use_retry_policy
from holdfast.providers.config import make_config
from holdfast.providers.events import ModelFellBack
from holdfast.providers.rate_limits import RateLimiter
from holdfast.providers.rate_rules import RateLimitRule
from holdfast.providers.registry import ProviderRegistry
from holdfast.testing.fake_server import Failure, FakeServer, Recorded, Reply, ScriptedCall

KEY = "sk-test-3f9a8b7c6d5e4f3a2b1c"
USED = TokenUsage(input=1_000, output=100)


@tool(effect="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture(autouse=True)
def _no_waiting() -> Iterator[None]:
    with use_retry_policy(RetryPolicy(attempts=3, wait_max_s=0)):
        yield


@pytest.fixture(params=["openai", "openai-chat", "anthropic"])
def wire(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return str(request.param)


def _point_to(server: FakeServer, wire: str, monkeypatch: pytest.MonkeyPatch) -> str:
    if wire == "anthropic":
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        monkeypatch.setenv("HOLDFAST_MODEL__ANTHROPIC_BASE_URL", server.base_url)
        return "anthropic:claude-sonnet-4-5"
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    monkeypatch.setenv("AGENT_FORCE_CHAT_COMPLETIONS", str(wire == "openai-chat"))
    return "openai:gpt-4o-mini"


async def test_tool_round_trip_with_a_failure_in_between(
    wire: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    answers = [
        Reply(calls=(ScriptedCall(name="add", arguments='{"a": 2, "b": 3}'),)),
        Failure(status=503),
        Reply(text="It is 5."),
    ]
    async with FakeServer(answers, key=KEY) as server:
        model = _point_to(server, wire, monkeypatch)
        async with AsyncClient(tmp_path) as client:
            session = await client.create_session("http")
            agent = Agent("adder", tools=[add], model=model)
            result = await agent.run("2 + 3?", session=session.id, client=client)
            kinds = [event.kind for event in await client.events.list(session.id)]
    assert (result.response, result.tools_used) == ("It is 5.", ("add",))
    assert kinds.count("model.retried") == 1
    assert result.tokens_used.total > 0
    assert capfd.readouterr().out == ""


async def test_key_is_nowhere_in_the_state_directory(
    wire: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeServer([Failure(status=401)], key=KEY) as server:
        model = _point_to(server, wire, monkeypatch)
        async with AsyncClient(tmp_path) as client:
            result = await Agent("a", model=model).run(
                "hello", client=client, raise_on_failure=False
            )
    assert result.metadata["error"]["code"] == "llm.auth"
    assert not any(KEY.encode() in content for content in _contents(tmp_path))


def _contents(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in folder.rglob("*") if file.is_file()]


async def test_fallback_model_answers_and_the_reason_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(request: Recorded) -> Failure | Reply:
        is_good = request.json["model"] == "good"
        return Reply(text="from the other one") if is_good else Failure(status=503)

    async with FakeServer(script=answer) as server:
        _point_to(server, "openai-chat", monkeypatch)
        async with AsyncClient(tmp_path) as client:
            client.fallback_models = ("openai:good",)
            session = await client.create_session("fall back")
            agent = Agent("a", model="openai:bad")
            result = await agent.run("hello", session=session.id, client=client)
            events = await client.events.list(session.id)
    assert result.response == "from the other one"
    [fell_back] = [event for event in events if event.kind == "model.fallback"]
    assert fell_back.expect(ModelFellBack).error_code == "llm.overloaded"


async def test_runs_that_begin_together_look_for_their_model_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeServer() as server:
        _point_to(server, "openai-chat", monkeypatch)
        async with AsyncClient(tmp_path) as client:
            found = await asyncio.gather(*(client.providers.model() for _ in range(5)))
    assert len({id(ready.model) for ready in found}) == 1


async def test_rate_rules_of_the_client_hold_for_its_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = RateLimitRule(name="two", max_calls=2, window_seconds=3600, scope="global")
    async with FakeServer([Reply(text="one"), Reply(text="two")]) as server:
        _point_to(server, "openai-chat", monkeypatch)
        async with AsyncClient(tmp_path) as client:
            client.rate_limiter = RateLimiter([rule], on_exhausted="refuse")
            agent = Agent("a", model="openai:gpt-4o-mini")
            results = [
                await agent.run("hello", client=client, raise_on_failure=False) for _ in range(3)
            ]
    assert [result.status for result in results] == ["completed", "completed", "failed"]
    assert results[2].metadata["error"]["code"] == "rate.limited"


async def test_rate_rules_count_for_each_agent_and_tenant_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = [
        RateLimitRule(name="agent", max_calls=1, window_seconds=3600, scope="agent"),
        RateLimitRule(name="tenant", max_calls=2, window_seconds=3600, scope="tenant"),
    ]
    limiter = RateLimiter(rules, on_exhausted="refuse")
    async with FakeServer(script=lambda _: Reply(text="yes")) as server:
        _point_to(server, "openai-chat", monkeypatch)
        refused = []
        for tenant, names in (("acme", ("ann", "ann", "bob", "eve")), ("zeta", ("ann",))):
            monkeypatch.setenv("HOLDFAST_TENANT", tenant)
            async with AsyncClient(tmp_path) as client:
                client.rate_limiter = limiter
                for name in names:
                    result = await Agent(name, model="openai:m").run(
                        "hello", client=client, raise_on_failure=False
                    )
                    error = result.metadata.get("error", {})
                    refused.append(error.get("context", {}).get("rule", error.get("code")))
    # Each window is of its own: ann's call is the only one of hers, wherever she calls from.
    assert refused == [None, "agent", None, "tenant", "agent"]


async def test_an_answer_costs_what_the_model_that_gave_it_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(request: Recorded) -> Failure | Reply:
        is_good = request.json["model"] == "gpt-4o-mini"
        return Reply(text="paid", usage=USED) if is_good else Failure(status=503)

    async with FakeServer(script=answer) as server:
        _point_to(server, "openai-chat", monkeypatch)
        near = make_config(
            name="near",
            base_url=server.base_url,
            api="chat",
            is_local=True,
            tool_modes={"*": "native"},
        )
        await ProviderRegistry(tmp_path, keys=lambda _: "").add_provider(near)
        async with AsyncClient(tmp_path) as client:
            client.fallback_models = ("openai:gpt-4o-mini",)
            agent = Agent("a", model="near:free")
            result = await agent.run("hello", client=client)
            # Somebody dearer may have to answer: that is what has to fit.
            poor = Budget(max_cost_usd=0.000001)
            asked = len(server.requests)
            refused = await Agent("b", model="near:free", budget=poor).run(
                "hi", client=client, raise_on_failure=False
            )
            assert len(server.requests) == asked
    assert result.cost_usd == pytest.approx(USED.input * 0.15e-6 + USED.output * 0.6e-6)
    assert refused.metadata["error"]["code"] == "budget.exceeded"


async def test_an_answer_that_is_no_object_is_asked_for_as_the_api_takes_it(
    wire: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeServer([Reply(text='{"value": ["Rome", "Oslo"]}')]) as server:
        model = _point_to(server, wire, monkeypatch)
        async with AsyncClient(tmp_path) as client:
            agent = Agent("cities", model=model, output=list[str])
            result = await agent.run("Name two cities.", client=client)
    assert (result.status, result.output) == ("completed", ["Rome", "Oslo"])


@pytest.mark.parametrize("first", ["assistant", "system", "tool"])
async def test_a_conversation_may_begin_with_somebody_else_than_the_user(
    wire: str, first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeServer([Reply(text="Rome.")]) as server:
        model = _point_to(server, wire, monkeypatch)
        async with AsyncClient(tmp_path) as client:
            session = await client.create_session("talk")
            await client.add_message(session.id, first, "How can I help you?")
            agent = Agent("guide", model=model)
            result = await agent.run("Where to?", session=session.id, client=client)
    assert (result.status, result.response) == ("completed", "Rome.")
