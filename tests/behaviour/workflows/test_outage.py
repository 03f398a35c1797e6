"""A model that cannot be reached parks a workflow; the step goes on where it was."""

from __future__ import annotations

from pathlib import Path

from holdfast import Agent, AsyncClient
from holdfast.errors import LLMConnectionError
from holdfast.orchestration.workflows import Workflow
from holdfast.testing import FunctionModel


async def test_an_agents_step_waits_for_its_model_and_spends_no_attempt(tmp_path: Path) -> None:
    asked: list[bool] = []
    is_down = True

    def answer(request: object) -> str:
        asked.append(is_down)
        if is_down:
            raise LLMConnectionError(provider="p", model="m", detail="refused")
        return "here"

    agent = Agent("writer", model=FunctionModel(answer))
    flow = Workflow("outage").step("ask", agent=agent, message="Go", retry={"attempts": 2})
    async with AsyncClient(tmp_path / "state") as client:
        first = await client.workflows.run(flow, run_id="run_flow")
        assert (first.status, first.reason.split(":")[0]) == ("parked", "waiting_for_model")
        assert len(asked) == 1
        is_down = False
        again = await client.workflows.run(flow, run_id="run_flow")
        assert (again.status, again.output) == ("completed", "here")
