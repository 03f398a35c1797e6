"""Ctrl-C in what runs long: workflows and triggers end in order, and say so in the journal."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from holdfast import Agent, AsyncClient
from holdfast.sessions import Run
from holdfast.testing.fake_server import FakeServer, HoldPoint, Reply

SOURCE = Path(__file__).resolve().parents[3] / "src"
KEY = "sk-test-3f9a8b7c6d5e4f3a2b1c"
WAIT_S = 60
# Whoever starts the tests in the background of a script has Ctrl-C ignored, and so have we.
LISTENING = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from holdfast.cli import main
main()
"""
FLOW = """name: flow
steps:
  - {id: first, value: done}
  - {id: second, agent: build, message: Talk.}
  - {id: third, value: never}
"""
GREET = {
    "name": "greet",
    "on": {"kinds": ["session.created"], "where": "event.data.title == 'Order'"},
    "agent": "build",
    "message": "Greet.",
}


async def start(server: FakeServer, home: Path, *words: str) -> Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", LISTENING, *words),
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "PYTHONPATH": str(SOURCE),
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": server.base_url,
            "AGENT_MODEL": "openai:gpt-4o-mini",
            "AGENT_STATE_DIR": str(home / "state"),
            "AGENT_WORKSPACE": str(home),
        },
        cwd=home,
        stdout=PIPE,
        stderr=PIPE,
    )


async def leaves(process: Process) -> tuple[int, str]:
    """Wait for the end; returns exit code and what was said last."""
    assert process.stderr is not None
    told = (await process.stderr.read()).decode()
    code = await process.wait()
    assert "Traceback" not in told
    return code, told


async def only_firing(client: AsyncClient) -> Run:
    [firing] = await client.triggers.firings()
    return await client.runs.get(firing.run_id)


async def test_ctrl_c_in_a_workflow_cancels_it_with_the_step_under_way(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(FLOW)
    gate = HoldPoint()
    async with FakeServer([Reply(text="x", gate=gate)], key=KEY) as server, asyncio.timeout(WAIT_S):
        words = ("workflows", "run", "flow.yaml", "--run-id", "job")
        process = await start(server, tmp_path, *words)
        await gate.reached.wait()
        process.send_signal(signal.SIGINT)
        code, told = await leaves(process)
        assert (code, "Stopping" in told) == (130, True)
    async with AsyncClient(tmp_path / "state") as client:
        result = await client.workflows.get("job")
        assert result.status == "cancelled"
        steps = {state.path: state for state in result.steps}
        assert steps["first"].status == "completed" and "third" not in steps
        child = await client.runs.get(steps["second"].child_run)
        assert child.status == "cancelled"
        # What is left can be used: the session of the step takes another turn.
        agent = Agent("next", model="offline")
        again = await client.execute_agent(agent, child.session_id, "Are you there?")
        assert again.status == "completed"


async def triggers_running(server: FakeServer, home: Path, gate: HoldPoint) -> Process:
    """Start `triggers run` and return it when the run that it has started asks its model."""
    async with AsyncClient(home / "state") as client:
        await client.triggers.add(GREET)
        await client.create_session("Order")
    process = await start(server, home, "triggers", "run")
    await gate.reached.wait()
    return process


async def test_first_ctrl_c_lets_what_a_trigger_started_come_to_its_end(tmp_path: Path) -> None:
    gate = HoldPoint()
    async with FakeServer([Reply(text="x", gate=gate)], key=KEY) as server, asyncio.timeout(WAIT_S):
        process = await triggers_running(server, tmp_path, gate)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        await process.stderr.readuntil(b"Waiting for what is under way")
        gate.release.set()
        code, _ = await leaves(process)
        assert code == 0
    async with AsyncClient(tmp_path / "state") as client:
        assert (await only_firing(client)).status == "completed"


async def test_second_ctrl_c_cancels_what_a_trigger_started(tmp_path: Path) -> None:
    gate = HoldPoint()
    async with FakeServer([Reply(text="x", gate=gate)], key=KEY) as server, asyncio.timeout(WAIT_S):
        process = await triggers_running(server, tmp_path, gate)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        await process.stderr.readuntil(b"Waiting for what is under way")
        process.send_signal(signal.SIGINT)
        code, told = await leaves(process)
        assert (code, "Stopping" in told) == (130, True)
    async with AsyncClient(tmp_path / "state") as client:
        run = await only_firing(client)
        assert run.status == "cancelled"
        assert (await client.audit.verify()) == []
