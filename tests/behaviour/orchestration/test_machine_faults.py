"""A machine that fails in a child interrupts its parent: nothing is decided, and both go on."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from holdfast import Agent, AsyncClient
from holdfast.errors import RunInterrupted
from holdfast.orchestration.delegation import AgentTask
from holdfast.orchestration.loop import LoopAgents, LoopSetup
from holdfast.testing import FunctionModel, ScriptedModel, tool_call

ALLOWED = [{"permission": "*", "pattern": "*", "action": "allow"}]


class FullDisk:
    """A model whose machine is out of space for the first questions."""

    def __init__(self, faults: int, answer: object = "the child's report") -> None:
        self.asked = 0
        self._faults = faults
        self._answer = answer

    def model(self) -> FunctionModel:
        def answer(request):
            self.asked += 1
            if self.asked <= self._faults:
                raise OSError(errno.ENOSPC, "No space left on device")
            return self._answer(request) if callable(self._answer) else self._answer

        return FunctionModel(answer)


@pytest.fixture
async def client(tmp_path: Path):
    async with AsyncClient(tmp_path / "state") as opened:
        yield opened


@pytest.mark.parametrize("way", ["task", "as_tool"])
async def test_a_fault_in_a_child_interrupts_its_parent_and_both_go_on(
    client: AsyncClient, way: str
) -> None:
    disk = FullDisk(2)
    helper = Agent("helper", model=disk.model(), mode="subagent", description="Helps")
    asked: list[str] = []

    def answer(request):
        if request.messages[-1].role == "tool":
            return f"told: {request.messages[-1].tool_calls[0].output[:18]}"
        asked.append("once")
        if way == "task":
            return tool_call("task", prompt="Help", subagent_type="helper")
        return tool_call("helper", task="Help")

    tools = None if way == "task" else [helper.as_tool()]
    if way == "task":
        await client.agents.register(helper)
    boss = Agent("boss", model=FunctionModel(answer), permission=ALLOWED, tools=tools)
    for _ in range(2):
        with pytest.raises(RunInterrupted) as stopped:
            await client.runs.execute(boss, "", "Go", run_id="run_boss")
        assert stopped.value.context["run_id"] == "run_boss"
        run = await client.runs.get("run_boss")
        assert not run.has_ended and run.status != "parked"
    result = await client.runs.execute(boss, "", "Go", run_id="run_boss")
    assert (result.status, result.response) == ("completed", "told: the child's report")
    assert (asked, disk.asked) == (["once"], 3)


async def test_a_fault_in_one_of_several_children_cancels_no_other(client: AsyncClient) -> None:
    disk, other = FullDisk(1), FullDisk(0, "sound")
    await client.agents.register(Agent("helper", model=disk.model(), mode="subagent"))
    await client.agents.register(Agent("sound", model=other.model(), mode="subagent"))
    session = await client.sessions.create("all")
    tasks = [AgentTask(agent_name=name, description="Help") for name in ("helper", "sound")]
    with pytest.raises(RunInterrupted):
        await (await client.runs.orchestrator()).run_parallel_agents(tasks, session.id)
    status = {run.agent: run.status for run in await client.runs.list()}
    assert status["sound"] == "completed" and status["helper"] == "running"


async def test_a_fault_in_an_agent_of_a_loop_interrupts_the_loop(client: AsyncClient) -> None:
    disk = FullDisk(1, ScriptedModel)
    plan = '{"steps": [{"id": "a", "title": "A", "instruction": "A.", "depends_on": [], '
    plan += '"checks": [{"kind": "answer_contains", "text": "a"}]}]}'

    def answer(request):
        names = (request.output_schema or {}).get("properties", {})
        if "steps" in names:
            return plan
        return '{"verdict": "accept", "reason": "good"}' if "verdict" in names else "a"

    disk._answer = answer
    model = disk.model()
    agents = {role: Agent(role, model=model) for role in ("planner", "executor", "reviewer")}
    setup = LoopSetup(agents=LoopAgents(**agents))
    with pytest.raises(RunInterrupted):
        await client.loops.run("Do a", run_id="job", options=setup)
    assert not (await client.runs.get("job")).has_ended
    report = await client.loops.run("", run_id="job", options=setup)
    assert report.outcome == "done"
