"""A run stays within its budget, and stops cleanly when the next call does not fit."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from holdfast import Agent, AsyncClient, tool
from holdfast.agents import AgentResult
from holdfast.cli.app import root
from holdfast.errors import UsageError
from holdfast.messages import Message, TokenUsage
from holdfast.policy.budgets import Budget, BudgetLedger
from holdfast.providers.model import ModelInfo
from holdfast.runs import AgentRuntime
from holdfast.runs.spending import Budgets
from holdfast.settings import load_settings
from holdfast.testing import ModelReply, ScriptedModel, run_services, tool_call
from holdfast.tools import ToolRegistry

INFO = ModelInfo(provider="test", model="scripted", max_output_tokens=100, is_llm=False)
PRICED = ModelInfo(provider="test", model="scripted", max_output_tokens=100)


@tool(effect="read")
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def answer(text: str = "", *, used: int, calls: int = 0) -> ModelReply:
    parts = tuple(tool_call("add", a=used, b=n) for n in range(calls))
    return ModelReply(text=text, calls=parts, usage=TokenUsage(input=used))


def error_of(result: AgentResult) -> str:
    return str(result.metadata["error"]["context"]["kind"])


async def pending(client: AsyncClient, session_id: str) -> list[str]:
    page = await client.list_messages(session_id)
    return [c.call_id for m in page.items for c in m.tool_calls if c.state == "pending"]


async def test_call_whose_worst_case_does_not_fit_is_not_made(tmp_path: Path) -> None:
    model = ScriptedModel(answer(used=5_000, calls=1), "never", info=INFO)
    agent = Agent("a", model=model, tools=[add], budget=Budget(max_tokens=5_010))
    async with AsyncClient(tmp_path) as client:
        result = await agent.run("go", client=client, raise_on_failure=False)
        assert (result.status, result.metadata["reason"]) == ("failed", "budget")
        assert (error_of(result), len(model.requests)) == ("token", 1)
        # The conversation can go on with another budget.
        assert await pending(client, result.session_id) == []
        free = Agent("a", model=ScriptedModel("fine"), tools=[add])
        assert (await free.run("go on", session=result.session_id, client=client)).response


async def test_output_is_cut_to_what_is_left(tmp_path: Path) -> None:
    model = ScriptedModel(answer("short", used=10), info=INFO)
    counted = 0
    async with AsyncClient(tmp_path) as client:
        first = ScriptedModel(answer("x", used=1), info=INFO)
        await Agent("a", model=first).run("go", client=client)
        counted = first.count_tokens(first.requests[0])
        agent = Agent("a", model=model, budget=Budget(max_tokens=counted + 40))
        assert (await agent.run("go", client=client)).response == "short"
    allowed = model.requests[0].max_output_tokens
    assert allowed is not None and 16 <= allowed <= 60


async def test_nothing_is_counted_where_nothing_is_limited(tmp_path: Path) -> None:
    class Uncounted(ScriptedModel):
        def count_tokens(self, request: object) -> int:
            raise AssertionError("nobody asked for it")

    model = Uncounted(ModelReply(text="fine", usage=TokenUsage(input=1)))
    async with AsyncClient(tmp_path) as client:
        assert (await Agent("a", model=model).run("go", client=client)).response == "fine"


async def test_model_calls_and_tool_calls_have_limits_of_their_own(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        calls = [answer(used=n, calls=1) for n in range(1, 5)]
        model = ScriptedModel(*calls)
        agent = Agent("a", model=model, tools=[add])
        result = await client.execute_agent(agent, "", "go", budget=Budget(max_calls=2))
        assert (error_of(result), len(model.requests)) == ("call", 2)
        model = ScriptedModel(answer(used=1, calls=3), "never")
        agent = Agent("a", model=model, tools=[add], budget=Budget(max_tool_calls=2))
        result = await agent.run("go", client=client, raise_on_failure=False)
        assert (error_of(result), len(model.requests)) == ("tool call", 1)
        page = await client.list_messages(result.session_id)
        states = [part.state for m in page.items for part in m.tool_calls]
        assert sorted(states) == ["completed", "completed", "error"]


async def test_sessions_budget_holds_over_runs_restarts_and_reverts(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        session = await client.create_session("s", metadata={"budget": {"max_tokens": 10_000}})
        model = ScriptedModel(answer("one", used=9_990), info=INFO)
        await Agent("a", model=model).run("go", session=session.id, client=client)
        await client.revert_session(session.id, to=1)
    async with AsyncClient(tmp_path) as client:
        agent = Agent("a", model=ScriptedModel("never", info=INFO))
        result = await agent.run("go", session=session.id, client=client, raise_on_failure=False)
        assert error_of(result) == "token"
        # New limits, and what was spent stays spent.
        metadata = {"budget": {"max_tokens": 20_000}}
        await client.update_session(session.id, metadata=metadata)
        assert (await client.get_session(session.id)).total_tokens == 9_990
        agent = Agent("a", model=ScriptedModel("more", info=INFO))
        assert (await agent.run("go", session=session.id, client=client)).response == "more"


async def test_budget_that_cannot_be_read_runs_nothing(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        session = await client.create_session("s", metadata={"budget": {"max_token": 5}})
        model = ScriptedModel("never")
        result = await Agent("a", model=model).run(
            "go", session=session.id, client=client, raise_on_failure=False
        )
        assert result.metadata["error"]["code"] == "usage.invalid"
        assert model.requests == []
    with pytest.raises(UsageError):
        Budget(max_tokens=-1)


async def test_settings_limit_all_sessions_of_a_state_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_BUDGET__MAX_CALLS", "10")
    settings = load_settings().settings

    async def run(client: AsyncClient, number: int) -> str:
        agent = Agent("a", model=ScriptedModel(answer("ok", used=1)))
        return (await agent.run(f"go {number}", client=client, raise_on_failure=False)).status

    async with (
        AsyncClient(tmp_path, settings=settings) as one,
        AsyncClient(tmp_path, settings=settings) as two,
    ):
        ended = await asyncio.gather(*[run((one, two)[n % 2], n) for n in range(50)])
    assert sorted(ended) == ["completed"] * 10 + ["failed"] * 40
    async with AsyncClient(tmp_path, settings=settings) as later:
        assert await run(later, 51) == "failed"


async def test_resumed_run_remembers_what_it_spent(tmp_path: Path) -> None:
    @tool(permission="ask")
    async def act() -> str:
        """Act."""
        return "done"

    limit = Budget(max_calls=1, max_tool_calls=1)
    async with AsyncClient(tmp_path) as client:
        agent = Agent("a", model=ScriptedModel(tool_call("act")), tools=[act], budget=limit)
        await client.execute_agent(agent, "", "go", run_id="job", on_ask="park")
        [approval] = await client.approvals.list()
        await client.approvals.approve(approval.id, by="ann")
    async with AsyncClient(tmp_path) as client:
        agent = Agent("a", model=ScriptedModel("never"), tools=[act], budget=limit)
        result = await client.execute_agent(agent, "", "go", run_id="job")
        assert error_of(result) == "call"
        assert await pending(client, result.session_id) == []
        page = await client.list_messages(result.session_id)
        assert [p.output for m in page.items for p in m.tool_calls] == ["done"]


class _Prices:
    """A million tokens cost a dollar, or nobody knows."""

    def __init__(self, *, is_known: bool) -> None:
        self._is_known = is_known

    def __call__(self, message: Message) -> Message:
        if not self._is_known:
            return msgspec.structs.replace(message, metadata={"cost": "unknown"})
        total = message.usage.total if message.usage is not None else 0
        return msgspec.structs.replace(message, cost_usd=total / 1_000_000)


async def _run_priced(
    client: AsyncClient, model: ScriptedModel, budget: Budget, *, is_known: bool
) -> AgentResult:
    runtime = AgentRuntime(
        run_services(
            await client.sessions.manager(),
            await client.runs.turns(),
            budgets=Budgets(ledger=BudgetLedger(), run=budget),
        ),
        model=model,
        charge=_Prices(is_known=is_known),
    )
    session = await client.create_session("priced")
    return await runtime.execute_agent(Agent("a", tools=[add]), session, "go", ToolRegistry())


async def test_dollars_are_reserved_at_the_price_of_the_model(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        model = ScriptedModel(answer(used=900, calls=1), "never", info=PRICED)
        result = await _run_priced(client, model, Budget(max_cost_usd=0.001), is_known=True)
        assert (error_of(result), len(model.requests)) == ("cost", 1)
        assert result.cost_usd == pytest.approx(0.0009)


@pytest.mark.parametrize(("way", "status"), [("refuse", "failed"), ("ignore", "completed")])
async def test_unknown_price_is_refused_unless_told_otherwise(
    tmp_path: Path, way: str, status: str
) -> None:
    async with AsyncClient(tmp_path) as client:
        budget = Budget(max_cost_usd=5, on_unknown_price=way)  # type: ignore[arg-type]
        model = ScriptedModel("fine", info=PRICED)
        result = await _run_priced(client, model, budget, is_known=False)
        assert result.status == status
        if status == "failed":
            assert "on_unknown_price" in result.metadata["error"]["message"]
        # A model object of somebody's own has no price that we know.
        agent = Agent("a", model=ScriptedModel("fine", info=PRICED), budget=budget)
        assert (await agent.run("go", client=client, raise_on_failure=False)).status == status


async def test_time_ends_a_run_between_calls_and_while_a_model_thinks(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        model = ScriptedModel("never")
        agent = Agent("a", model=model, budget=Budget(max_wall_s=0))
        assert error_of(await agent.run("go", client=client, raise_on_failure=False)) == "time"
        assert model.requests == []
        model = ScriptedModel(ModelReply(text="half", hold=asyncio.Event()))
        agent = Agent("a", model=model, budget=Budget(max_wall_s=0.05))
        result = await asyncio.wait_for(agent.run("go", client=client, raise_on_failure=False), 30)
        assert (error_of(result), model.open_streams) == ("time", 0)


async def test_time_ends_a_call_that_does_not_end_by_itself(tmp_path: Path) -> None:
    @tool(effect="read")
    async def wait_for_ever() -> str:
        """Wait for what never comes."""
        await asyncio.Event().wait()
        return "never"

    async with AsyncClient(tmp_path) as client:
        model = ScriptedModel(tool_call("wait_for_ever"), "never")
        agent = Agent("a", model=model, tools=[wait_for_ever], budget=Budget(max_wall_s=0.05))
        result = await asyncio.wait_for(agent.run("go", client=client, raise_on_failure=False), 30)
        assert error_of(result) == "time"
        *_, last = (await client.list_messages(result.session_id)).items
        assert [call.state for call in last.tool_calls] == ["error"]


def test_command_line_ends_with_code_7(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AGENT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("HOLDFAST_BUDGET__MAX_CALLS", "1")
    ended = CliRunner().invoke(root, ["run", "--model", "offline", "Describe this workspace"])
    assert ended.exit_code == 7, ended.output
