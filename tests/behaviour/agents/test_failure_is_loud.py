"""A run that fails raises, where its caller asked for an answer. (5.1, 5.5)"""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from holdfast import Agent, AgentResult, AsyncClient, Client, RunFailed
from holdfast.errors import BudgetExceeded, LLMBadRequest
from holdfast.policy import Budget
from holdfast.testing import ScriptedModel, tool_call
from holdfast.tools import tool

REFUSED = LLMBadRequest(provider="scripted", detail="no such thing")


def failing(*more: str) -> Agent:
    return Agent("doomed", model=ScriptedModel(REFUSED, *more))


@tool(effect="read", permission="ask")
async def careful() -> str:
    """Ask first."""
    return "done"


async def test_run_raises_what_went_wrong_with_the_partial_result(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        with pytest.raises(RunFailed) as raised:
            await failing().run("go", run_id="job", client=client)
    error = raised.value
    assert (error.code, error.run_id, error.status) == ("run.failed", "job", "failed")
    assert isinstance(error.error, LLMBadRequest)
    assert isinstance(error.result, AgentResult)
    assert error.result.error is not None and error.result.error.code == LLMBadRequest.code
    assert error.hint == error.error.hint
    assert pickle.loads(pickle.dumps(error)).run_id == "job"


async def test_the_same_run_id_raises_the_stored_failure_and_asks_nobody(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        with pytest.raises(RunFailed):
            await failing().run("go", run_id="job", client=client)
        silent = ScriptedModel()
        with pytest.raises(RunFailed) as again:
            await Agent("doomed", model=silent).run("go", run_id="job", client=client)
        assert isinstance(again.value.error, LLMBadRequest)
        assert silent.requests == []


async def test_whoever_wants_the_result_gets_it(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        result = await failing().run("go", client=client, raise_on_failure=False)
        assert (result.status, result.response) == ("failed", "")
        assert isinstance(result.error, LLMBadRequest)
        returned = await client.execute_agent(failing(), "", "go")
        assert returned.status == "failed"


async def test_a_stream_raises_at_its_end(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        seen: list[object] = []
        with pytest.raises(RunFailed):
            async for item in failing().stream("go", client=client):
                seen.append(item)
        assert not any(isinstance(item, AgentResult) for item in seen)
        last = [i async for i in failing().stream("go", client=client, raise_on_failure=False)][-1]
        assert isinstance(last, AgentResult) and last.status == "failed"


async def test_the_handle_of_a_run_raises_too(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        run = await client.runs.start(failing(), "", "go")
        with pytest.raises(RunFailed):
            await run.result()
        with pytest.raises(RunFailed):
            _ = [item async for item in run.stream()]
        assert (await run.result(raise_on_failure=False)).status == "failed"


def test_the_blocking_client_raises_as_well(tmp_path: Path) -> None:
    with Client(tmp_path) as client:
        with pytest.raises(RunFailed):
            failing().run_sync("go", client=client)
        assert failing().run_sync("go", client=client, raise_on_failure=False).status == "failed"


async def test_a_spent_budget_is_told_as_such(tmp_path: Path) -> None:
    poor = Agent("poor", model=ScriptedModel("x"), budget=Budget(max_tokens=1))
    async with AsyncClient(tmp_path) as client:
        with pytest.raises(RunFailed) as raised:
            await poor.run("go", client=client)
        assert isinstance(raised.value.error, BudgetExceeded)


async def test_parked_and_cancelled_are_results(tmp_path: Path) -> None:
    agent = Agent("a", model=ScriptedModel(tool_call("careful"), "fine"), tools=[careful])
    async with AsyncClient(tmp_path) as client:
        run = await client.runs.start(agent, "", "go", on_ask="park")
        assert (await run.result()).status == "parked"
        await run.cancel(reason="enough")
        assert (await run.result()).status == "cancelled"


async def test_an_answer_has_no_error(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        result = await Agent("a", model=ScriptedModel("fine")).run("go", client=client)
        assert (result.error, result.raise_if_failed()) == (None, result)
