"""What letting agents work for each other costs, against the same runs without it.

A hundred sub-agents with scripted models, each with a tool call and an answer, as many at a time
as `AgentOrchestrator` lets work unless told otherwise. The baselines are `asyncio.gather` over the
same runs in sessions of their own, all at once, and with a semaphore that lets as many work at a
time: same client, journal and gate. Runs that work side by side share commits, so how many do so
matters by itself. The figures are CPU time of the process, in turns.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from statistics import median

from _report import Result, arguments, interleave, report

from holdfast import Agent, AsyncClient, tool
from holdfast.messages import ToolPart
from holdfast.orchestration.delegation import AgentTask, DelegationLimits
from holdfast.providers import ModelRequest
from holdfast.testing import FunctionModel, tool_call

AGENTS = 100
SHIPPED = DelegationLimits()
FEW = 8
"""So many at a time are shown too: what a lower setting costs."""


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

    async def plain(self, at_a_time: int) -> None:
        """The runs alone, so many at a time."""
        places = asyncio.Semaphore(at_a_time)

        async def one(number: int) -> None:
            async with places:
                # A new session that begins with its run, as that of a child does.
                result = await self.client.execute_agent("worker", "", f"task {number}")
                assert result.response == "done"

        await asyncio.gather(*(one(number) for number in range(AGENTS)))

    async def orchestrated(self, limits: DelegationLimits | None = None) -> None:
        """The same runs, as children of a session; within the client's own limits unless told."""
        session = await self.client.create_session("Above")
        orchestrator = await self.client.runs.orchestrator(limits=limits)
        tasks = [
            AgentTask(agent_name="worker", description=f"task {number}") for number in range(AGENTS)
        ]
        results = await orchestrator.run_parallel_agents(tasks, session.id)
        assert [one.response for one in results] == ["done"] * AGENTS

    def cpu(self, runs: Callable[[], Coroutine[None, None, None]]) -> float:
        """CPU seconds of one round."""
        gc.collect()
        begin = time.process_time()
        self.loop.run_until_complete(runs())
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
        rounds: dict[str, Callable[[], Coroutine[None, None, None]]] = {
            "gathered": lambda: company.plain(AGENTS),
            "alone": lambda: company.plain(SHIPPED.parallel),
            "orchestrated": company.orchestrated,
            "few": lambda: company.orchestrated(DelegationLimits(parallel=FEW)),
        }
        cases: dict[str, Callable[[], float]] = {
            name: partial(company.cpu, runs) for name, runs in rounds.items()
        }
        # A round is short, and the median of a few scatters by a tenth.
        found = interleave(cases, 11 if options.quick else 25)
        company.most = 0
        memory = company.memory()
        most = company.most
        loop.run_until_complete(company.client.close())
    loop.close()
    return report(_results(found, most, memory), options.json)


def _results(found: dict[str, list[float]], most: int, memory: float) -> list[Result]:
    def ratio(one: str, other: str) -> float:
        return median(a / b for a, b in zip(found[one], found[other], strict=True))

    parallel = SHIPPED.parallel
    all_at_once, as_many = ratio("orchestrated", "gathered"), ratio("orchestrated", "alone")
    each = median(found["orchestrated"]) / AGENTS * 1e3
    return [
        Result(
            metric=f"{AGENTS} sub-agents, CPU ÷ gather of the same runs",
            value=all_at_once,
            goal="<= 1.3",
            ok=all_at_once <= 1.3,
            note=f"the shipped limit of {parallel} at a time ÷ all at once",
        ),
        Result(
            metric=f"{AGENTS} sub-agents, CPU ÷ the same runs, as many at a time",
            value=as_many,
            goal="<= 1.3",
            ok=as_many <= 1.3,
            note=f"both {parallel} at a time",
        ),
        Result(
            metric=f"{AGENTS} sub-agents, {FEW} at a time, CPU ÷ gather of the same runs",
            value=ratio("few", "gathered"),
            note="for information: fewer runs share a commit",
        ),
        Result(metric="CPU of one sub-agent", value=each, note="ms; a call and an answer"),
        Result(
            metric="sub-agents at the same time",
            value=most,
            goal=f"<= {parallel}",
            ok=most <= parallel,
        ),
        Result(
            metric=f"memory of {AGENTS} sub-agents at its peak",
            value=memory,
            goal="<= 20",
            ok=memory <= 20,
            note="MB",
        ),
    ]


if __name__ == "__main__":
    sys.exit(main())
