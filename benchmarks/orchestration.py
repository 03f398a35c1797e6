"""What letting agents work for each other costs, against the same runs without it.

A hundred sub-agents with scripted models, each with a tool call and an answer. The baseline is
`asyncio.gather` over the same runs in sessions of their own: same client, journal and gate. The
figures are CPU time of the process, in turns.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from _report import Result, arguments, interleave, report

from holdfast import Agent, AsyncClient, tool
from holdfast.messages import ToolPart
from holdfast.orchestration.delegation import AgentTask, DelegationLimits
from holdfast.providers.model import ModelRequest
from holdfast.testing import FunctionModel, tool_call

AGENTS = 100
PARALLEL = 50
_numbers = itertools.count()


@tool(effect="read")
async def look(at: str) -> str:
    """Look."""
    return f"seen {at}"


class Company:
    """A client with one worker that everybody sends, and how many work at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop, folder: Path) -> None:
        """Open the client."""
        self.loop = loop
        self.busy = 0
        self.most = 0
        self.client = AsyncClient(folder)
        only = {"permission": "look", "action": "allow"}
        self.worker = Agent(
            "worker",
            mode="subagent",
            model=FunctionModel(self._think),
            tools=[look],
            permission=[{"permission": "*", "action": "deny"}, only],
        )
        loop.run_until_complete(self.client.register_agent(self.worker))

    async def _think(self, request: ModelRequest) -> str | ToolPart:
        self.busy += 1
        self.most = max(self.most, self.busy)
        await asyncio.sleep(0)
        self.busy -= 1
        return "done" if request.messages[-1].role == "tool" else tool_call("look", at="x")

    async def plain(self) -> None:
        """The runs alone, all at once."""

        async def one(number: int) -> None:
            session = await self.client.create_session(f"Task {number}")
            result = await self.client.execute_agent(
                "worker", session.id, f"task {number}", run_id=f"run_{next(_numbers)}"
            )
            assert result.response == "done"

        await asyncio.gather(*(one(number) for number in range(AGENTS)))

    async def orchestrated(self) -> None:
        """The same runs, as children of a session."""
        session = await self.client.create_session("Above")
        limits = DelegationLimits(parallel=PARALLEL, breadth=AGENTS, total=AGENTS)
        orchestrator = await self.client.orchestrator(limits=limits)
        tasks = [
            AgentTask(agent_name="worker", description=f"task {number}") for number in range(AGENTS)
        ]
        results = await orchestrator.run_parallel_agents(tasks, session.id)
        assert [one.response for one in results] == ["done"] * AGENTS

    def cpu(self, name: str) -> float:
        """CPU seconds of one round."""
        gc.collect()
        begin = time.process_time()
        self.loop.run_until_complete(getattr(self, name)())
        return time.process_time() - begin

    def memory(self) -> float:
        """Most memory that one round of children takes at a time, in MB."""
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        self.loop.run_until_complete(self.orchestrated())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return (peak - before) / 1e6


def main() -> int:
    """Measure and report."""
    options = arguments(__doc__ or "")
    loop = asyncio.new_event_loop()
    with tempfile.TemporaryDirectory() as folder:
        company = Company(loop, Path(folder))
        cases: dict[str, Callable[[], float]] = {
            name: partial(company.cpu, name) for name in ("plain", "orchestrated")
        }
        found = interleave(cases, 5 if options.quick else 15)
        company.most = 0
        memory = company.memory()
        most = company.most
        loop.run_until_complete(company.client.close())
    loop.close()
    ratio = median(o / p for o, p in zip(found["orchestrated"], found["plain"], strict=True))
    each = median(found["orchestrated"]) / AGENTS * 1e3
    results = [
        Result(
            metric=f"{AGENTS} sub-agents, CPU ÷ the same runs alone",
            value=ratio,
            goal="<= 1.3",
            ok=ratio <= 1.3,
        ),
        Result(metric="CPU of one sub-agent", value=each, note="ms; a call and an answer"),
        Result(
            metric="sub-agents at the same time",
            value=most,
            goal=f"<= {PARALLEL}",
            ok=most <= PARALLEL,
        ),
        Result(
            metric=f"memory of {AGENTS} sub-agents at its peak",
            value=memory,
            goal="<= 20",
            ok=memory <= 20,
            note="MB",
        ),
    ]
    return report(results, options.json)


if __name__ == "__main__":
    sys.exit(main())
