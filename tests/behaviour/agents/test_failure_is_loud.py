"""A run that fails raises, where its caller asked for an answer. (5.1, 5.5)"""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, AgentResult, AsyncClient, Client, RunFailed
from holdfast.errors import (
    BudgetExceeded,
    LLMBadRequest,
    RunIdReused,
    RunInterrupted,
    StorageFull,
    StorageLocked,
)
from holdfast.orchestration.delegation import AgentTask
from holdfast.policy import Budget
from holdfast.providers import ModelRequest
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


# --- the same run id ----------------------------------------------------------------------


async def test_the_same_run_id_with_another_message_is_refused(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        agent = Agent("a", model=ScriptedModel("fine"))
        await agent.run("pay A", run_id="job", client=client)
        again = Agent("a", model=ScriptedModel())
        assert (await again.run("pay A", run_id="job", client=client)).response == "fine"
        assert (await again.run("", run_id="job", client=client)).response == "fine"
        with pytest.raises(RunIdReused) as raised:
            await again.run("pay B", run_id="job", client=client)
        assert raised.value.context["run_id"] == "job"
        with pytest.raises(RunIdReused):
            await client.execute_agent(again, "", "pay B", run_id="job")
        with pytest.raises(RunIdReused):
            await client.runs.start(again, "", "pay B", run_id="job")
        with pytest.raises(RunIdReused):
            _ = [item async for item in again.stream("pay B", run_id="job", client=client)]


async def test_a_secret_in_the_message_does_not_make_it_another(tmp_path: Path) -> None:
    said = "use the key sk-ant-api03-" + "Ab1" * 31
    async with AsyncClient(tmp_path) as client:
        await Agent("a", model=ScriptedModel("fine")).run(said, run_id="job", client=client)
        again = Agent("a", model=ScriptedModel())
        assert (await again.run(said, run_id="job", client=client)).response == "fine"


async def test_a_wrapped_agent_is_known_by_the_message_that_it_was_given(tmp_path: Path) -> None:
    count = iter(range(9))
    agent = Agent("a", model=ScriptedModel("fine")).wrapped(before=lambda m: f"{next(count)} {m}")
    async with AsyncClient(tmp_path) as client:
        for _ in range(2):
            assert (await agent.run("pay A", run_id="job", client=client)).response == "fine"
        with pytest.raises(RunIdReused):
            await agent.run("pay B", run_id="job", client=client)


# --- machine faults -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        StorageFull(path="journal.db"),
        StorageLocked(path="journal.db", waited_s=1),
        MemoryError(),
        OSError(errno.EMFILE, "Too many open files"),
    ],
    ids=lambda fault: type(fault).__name__,
)
async def test_a_machine_fault_interrupts_and_the_same_run_id_goes_on(
    tmp_path: Path, fault: Exception
) -> None:
    calls: list[str] = []

    @tool
    async def charge(order: str) -> str:
        """Charge once."""
        calls.append(order)
        return "charged"

    class Breaks(ScriptedModel):
        async def stream(self, request: ModelRequest, *, deltas: bool = True) -> Any:
            if len(self.requests) == 1 and not broken:
                broken.append(True)
                raise fault
            async for delta in super().stream(request, deltas=deltas):
                yield delta

    broken: list[bool] = []
    agent = Agent("a", model=Breaks(tool_call("charge", order="A"), "sold"), tools=[charge])
    async with AsyncClient(tmp_path) as client:
        with pytest.raises(RunInterrupted) as raised:
            await agent.run("go", run_id="job", client=client)
        error = raised.value
        assert (error.run_id, error.error, error.is_retryable) == ("job", fault, True)
        assert "run_id='job'" in error.hint
        assert not (await client.runs.get("job")).has_ended
        result = await agent.run("go", run_id="job", client=client)
    assert (result.response, calls) == ("sold", ["A"])


@pytest.mark.parametrize("beside", [0, 1], ids=["alone", "beside another"])
async def test_a_tool_that_finds_no_descriptor_interrupts_the_run(
    tmp_path: Path, beside: int
) -> None:
    faults = [OSError(errno.EMFILE, "Too many open files")]

    @tool(effect="read")
    async def look() -> str:
        """Look."""
        if faults:
            raise faults.pop()
        return "seen"

    calls = [tool_call("look") for _ in range(1 + beside)]
    agent = Agent("a", model=ScriptedModel(calls, "done"), tools=[look])
    async with AsyncClient(tmp_path) as client:
        with pytest.raises(RunInterrupted):
            await agent.run("go", run_id="job", client=client)
        assert not (await client.runs.get("job")).has_ended
        assert (await agent.run("go", run_id="job", client=client)).response == "done"


async def test_every_way_to_run_tells_an_interruption(tmp_path: Path) -> None:
    class Broken(ScriptedModel):
        async def stream(self, request: ModelRequest, *, deltas: bool = True) -> Any:
            raise StorageFull(path="journal.db")
            yield

    agent = Agent("a", model=Broken())
    async with AsyncClient(tmp_path) as client:
        with pytest.raises(RunInterrupted):
            await agent.run("go", client=client, raise_on_failure=False)
        with pytest.raises(RunInterrupted):
            await client.execute_agent(agent, "", "go")
        with pytest.raises(RunInterrupted):
            _ = [item async for item in agent.stream("go", client=client)]
        run = await client.runs.start(agent, "", "go")
        with pytest.raises(RunInterrupted):
            await run.result()
    with Client(tmp_path) as blocking, pytest.raises(RunInterrupted):
        agent.run_sync("go", client=blocking)


# --- which model, and what to do next -------------------------------------------------------


async def test_the_model_that_answered_stands_in_the_result(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        result = await Agent("a", model="offline").run("hello", client=client)
        assert result.model.startswith("offline")
        assert (await client.execute_agent(Agent("a"), "", "x", model="offline")).model


def test_which_model_answers_is_said_once_per_process(tmp_path: Path) -> None:
    code = (
        "from holdfast import Agent, Client\n"
        f"with Client({str(tmp_path)!r}) as client:\n"
        "    for _ in range(2):\n"
        "        Agent('a').run_sync('hello', client=client)\n"
        f"with Client({str(tmp_path)!r}) as client:\n"
        "    Agent('b').run_sync('hello', client=client)\n"
    )
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OPENAI", "ANTHROPIC", "AGENT_"))
    }
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=clean, check=True
    )
    assert done.stdout == ""
    assert done.stderr.count("Using the built-in offline model") == 1


async def test_the_hint_of_used_up_steps_names_what_there_is(tmp_path: Path) -> None:
    model = ScriptedModel(tool_call("careful"))
    agent = Agent("a", model=model, tools=[careful], steps=1)
    async with AsyncClient(tmp_path) as client:
        with pytest.raises(RunFailed) as raised:
            await agent.run("go", client=client)
    assert "`steps`" in raised.value.hint
    assert BudgetExceeded(kind="token", scope="run", used=1, limit=1).hint.startswith("Raise")


async def test_delegation_returns_results(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path) as client:
        session = await client.create_session("s")
        doomed = Agent("doomed", mode="subagent", model=ScriptedModel(REFUSED, REFUSED))
        await client.register_agent(doomed)
        orchestrator = await client.runs.orchestrator()
        alone = await orchestrator.delegate_task(Agent("boss"), "doomed", "go", session.id)
        [beside] = await orchestrator.run_parallel_agents(
            [AgentTask(agent_name="doomed", description="go")], session.id
        )
    assert [alone.status, beside.status] == ["failed", "failed"]
    assert isinstance(alone.error, LLMBadRequest)
