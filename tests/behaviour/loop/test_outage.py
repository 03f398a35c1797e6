"""A model that cannot be reached destroys no loop: it spends no attempt and repeats no effect."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from loop_models import crew_model, options, role_of, step

from holdfast import AsyncClient
from holdfast.errors import LLMCircuitOpen, LLMConnectionError
from holdfast.messages import TokenUsage
from holdfast.orchestration.loop import LoopLimits
from holdfast.orchestration.loop import driver as loop_driver
from holdfast.runtime import recovery
from holdfast.settings import load_settings
from holdfast.testing import FunctionModel, ModelReply, tool_call
from holdfast.tools.gate import AutoConfirm

MCP_SERVER = """
import os
from mcp.server.mcpserver import MCPServer

server = MCPServer("box")

@server.tool()
def open(name: str) -> str:
    if os.path.exists("broken"):
        os._exit(1)
    return name

server.run("stdio")
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    place.mkdir()
    return place


@pytest.fixture
async def client(tmp_path: Path, workspace: Path):
    settings = load_settings(overrides={"workspace": str(workspace)}).settings
    async with AsyncClient(tmp_path / "state", settings=settings) as opened:
        yield opened


class Provider:
    """A model that can be switched off, for some of the agents or all."""

    def __init__(self, *roles: str) -> None:
        self.is_down = False
        self.roles = roles or ("planner", "executor", "reviewer")
        self.refused = 0
        self.back_after = 0
        self.was_asked = asyncio.Event()
        self.effects: list[str] = []
        self.inner = crew_model([step("a"), step("b", "a")], self.work)

    def work(self, request):
        done = [m for m in request.messages if m.role == "tool"]
        asked = [m for m in request.messages if m.role == "user"][-1].text
        name = "a" if asked.startswith("Do a.") else "b"
        if request.messages[-1].role != "tool":
            if name == "b":
                # The server dies after it has asked for the effect of step two.
                self.is_down = True
            self.effects.append(name)
            return tool_call("write", file_path=f"{name}.txt", content=f"{len(done)} {name}\n")
        return f"done {name}"

    def model(self) -> FunctionModel:
        def answer(request):
            if self.is_down and role_of(request) in self.roles:
                self.refused += 1
                self.was_asked.set()
                self.is_down = self.refused != self.back_after
                if self.refused % 2:
                    raise LLMConnectionError(provider="p", model="m", detail="refused")
                raise LLMCircuitOpen(provider="p", failures=5, retry_after_s=30.0)
            return self.inner._function(request)

        return FunctionModel(answer)


def limits(**more: float) -> LoopLimits:
    return LoopLimits(**{"model_wait_s": 0.0, **more})


async def test_a_loop_waits_for_its_model_and_goes_on_when_it_is_resumed(client, workspace) -> None:
    provider = Provider()
    chosen = options(provider.model(), limits=limits())
    report = await client.loops.run("Do both", run_id="job", options=chosen)
    assert report.outcome == "waiting_for_model", report.reason
    assert [(one.id, one.status, one.attempts) for one in report.steps] == [
        ("a", "done", 1),
        ("b", "working", 1),
    ]
    run = await client.runs.get("job")
    assert (run.status, run.reason.split(":")[0]) == ("parked", "waiting_for_model")
    # Still down: it waits on, and nothing is spent.
    again = await client.loops.run("", run_id="job", options=chosen)
    assert (again.outcome, again.steps[1].attempts) == ("waiting_for_model", 1)
    provider.is_down = False
    done = await client.loops.run("", run_id="job", options=chosen)
    assert done.outcome == "done", done
    assert [one.attempts for one in done.steps] == [1, 1]
    assert provider.effects == ["a", "b"]
    assert (workspace / "b.txt").read_text() == "0 b\n"


@pytest.mark.parametrize("role", ["planner", "reviewer"])
async def test_the_outcome_has_the_right_name_whoever_is_asked(client, role) -> None:
    provider = Provider(role)
    provider.is_down = True
    report = await client.loops.run(
        "Do both", run_id="job", options=options(provider.model(), limits=limits())
    )
    assert report.outcome == "waiting_for_model"
    provider.is_down = False
    provider.roles = ("nobody",)
    done = await client.loops.run("", run_id="job", options=options(provider.model()))
    assert done.outcome == "done"
    assert done.revisions == 0


async def test_a_loop_goes_on_by_itself_when_the_model_answers_again(client, monkeypatch) -> None:
    provider = Provider()
    provider.back_after = 3
    monkeypatch.setattr(loop_driver, "_FIRST_WAIT_S", 0.001)
    chosen = options(provider.model(), limits=limits(model_wait_s=600))
    news = [item async for item in client.loops.stream("Do both", run_id="job", options=chosen)]
    assert news[-1].outcome == "done"
    waits = [item.fact for item in news[:-1] if getattr(item.fact, "kind", "") == "loop.waited"]
    assert [(wait.role, wait.step_id, wait.tries) for wait in waits] == [
        ("executor", "b", 1),
        ("executor", "b", 2),
        ("executor", "b", 3),
    ]
    assert all(wait.next_try > 0 for wait in waits)
    assert provider.effects == ["a", "b"]


async def test_what_failed_runs_used_is_reported(client) -> None:
    def answer(request):
        usage = TokenUsage(input=100, output=50)
        return ModelReply(text="no plan at all", usage=usage)

    report = await client.loops.run("Do", run_id="job", options=options(FunctionModel(answer)))
    assert report.outcome == "no_plan"
    # One answer, and two corrections that were no better.
    assert report.tokens == 450


async def test_a_parked_loop_goes_on_by_itself_in_a_process_that_attends_it(
    client, workspace, monkeypatch
) -> None:
    monkeypatch.setattr(recovery, "FIRST_TRY_S", 0.02)
    provider = Provider()
    chosen = options(provider.model(), limits=limits())
    for role in ("planner", "executor", "reviewer"):
        await client.agents.register(getattr(chosen.agents, role))
    report = await client.loops.run("Do both", run_id="job", options=chosen)
    assert report.outcome == "waiting_for_model", report.reason
    provider.was_asked.clear()
    stop = asyncio.Event()
    attending = asyncio.create_task(client.triggers.run(stop))  # a server does the same
    async with asyncio.timeout(30):
        await provider.was_asked.wait()  # by itself, and it still refuses
        provider.is_down = False
        async for event in client.events.watch(after=0):
            if event.kind == "run.completed" and event.run_id == "job":
                break
    stop.set()
    await attending
    done = await client.loops.report("job")
    assert (done.outcome, [one.attempts for one in done.steps]) == ("done", [1, 1])
    assert provider.effects == ["a", "b"]


async def test_attempts_that_an_mcp_server_was_missing_in_do_not_count(
    tmp_path: Path, workspace: Path, monkeypatch
) -> None:
    """The server dies with the first call and comes back later: one attempt is all there is."""
    monkeypatch.setattr(loop_driver, "_FIRST_WAIT_S", 0.5)
    broken = workspace / "broken"
    broken.touch()
    program = workspace / "server.py"
    program.write_text(MCP_SERVER)
    calls: list[str] = []

    def work(request):
        if request.messages[-1].role == "tool":
            part = request.messages[-1].tool_calls[0]
            return "a" if part.state == "completed" else "it does not work"
        calls.append("asked")
        if len(calls) == 2:
            broken.unlink()
        return tool_call("mcp__box__open", name="x")

    endpoint = {
        "transport": "stdio",
        "command": sys.executable,
        "args": [str(program)],
        "readable": sorted({sys.prefix, sys.base_prefix}),
        "connect_timeout_s": 120,
    }
    overrides = {"workspace": str(workspace), "mcp_endpoints": {"box": endpoint}}
    settings = load_settings(overrides=overrides).settings
    async with AsyncClient(tmp_path / "state", settings=settings) as client:
        client.approver = AutoConfirm()
        await client.mcp.accept("box")
        chosen = options(
            crew_model([step("a")], work),
            limits=LoopLimits(model_wait_s=60.0, max_attempts=1, max_replans=0),
        )
        report = await client.loops.run("Open it", run_id="job", options=chosen)
    assert report.outcome == "done", report.reason
    assert len(calls) >= 2
