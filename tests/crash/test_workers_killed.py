"""Workers on Postgres are killed in the midst of runs: others go on, no effect twice."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from postgres_server import PostgresServer

from holdfast import Agent, AsyncClient
from holdfast.runtime.trace_spans import build_trace
from holdfast.settings import load_settings

PATIENCE_S = 90
APP = """
import asyncio, os
from holdfast import Agent, tool
from holdfast.testing import FunctionModel, tool_call

def write(name, line):
    file = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, (line + "\\n").encode())
    os.close(file)

@tool(effect="read")
async def note(line: str) -> str:
    '''Note a line; the first worker never comes back from the second one.'''
    write("effects.txt", f"{os.environ['WORKER']} {line}")
    if os.environ["WORKER"] == "doomed" and line.endswith("-1"):
        await asyncio.Event().wait()
    return line

def answer(request):
    said = [m.text for m in request.messages if m.role == "user"][-1]
    done = sum(len(m.tool_calls) for m in request.messages if m.role == "assistant")
    return tool_call("note", line=f"{said}-{done}") if done < 3 else "done"

agents = [Agent("noter", model=FunctionModel(answer), tools=[note])]
"""


class Fleet:
    """Worker processes on one database."""

    def __init__(self, directory: Path, url: str) -> None:
        self.directory = directory
        self.url = url
        self.processes: list[asyncio.subprocess.Process] = []
        (directory / "app.py").write_text(APP)

    async def start(self, name: str) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holdfast", "--json", "--state-dir", "state"),
            *("--workspace", ".", "worker", "app:agents", "--name", name),
            cwd=self.directory,
            env={
                **os.environ,
                "WORKER": name,
                "HOLDFAST_STORAGE__URL": self.url,
                "HOLDFAST_SESSIONS__LEASE_TTL_S": "2",
                "HOLDFAST_SERVER__GRACE_S": "0.2",
                "PYTHONPATH": os.pathsep.join([str(self.directory), *sys.path]),
            },
            stdout=asyncio.subprocess.PIPE,
        )
        self.processes.append(process)
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            assert b"pid" in await process.stdout.readuntil(b"}")
        return process

    async def end(self) -> None:
        for process in self.processes:
            if process.returncode is None:
                process.kill()
                await process.wait()

    @property
    def effects(self) -> list[str]:
        path = self.directory / "effects.txt"
        return path.read_text().splitlines() if path.exists() else []

    async def until_effect(self, line: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while line not in self.effects:  # noqa: ASYNC110 - a file of other processes
                await asyncio.sleep(0.05)


@pytest.fixture
async def fleet(postgres: PostgresServer, tmp_path: Path):
    made = Fleet(tmp_path, postgres.url(postgres.make_database()))
    yield made
    await made.end()


def open_client(fleet: Fleet) -> AsyncClient:
    overrides = {"storage.url": fleet.url, "workspace": str(fleet.directory)}
    settings = load_settings(overrides=overrides).settings
    return AsyncClient(fleet.directory / "client", settings=settings)


async def test_runs_of_a_killed_worker_go_on_in_another_and_no_step_is_repeated(fleet) -> None:
    async with open_client(fleet) as client:
        await client.agents.register(Agent("noter"))
        doomed = await fleet.start("doomed")
        run = await client.runs.submit("noter", "", "a")
        await fleet.until_effect("doomed a-1")
        async with asyncio.timeout(PATIENCE_S):
            while not (found := await client.workers.list()):  # noqa: ASYNC110 - a row of a worker
                await asyncio.sleep(0.02)
        [status] = found
        assert (status.name, status.sessions) == ("doomed", (run.session_id,))
        await fleet.start("heir")
        doomed.send_signal(signal.SIGKILL)
        await doomed.wait()
        async with asyncio.timeout(PATIENCE_S):
            ended = await client.runs.wait(run.id)
        assert ended.status == "completed"
        # What was finished is not done again; the call that was cut off is a read, and is.
        assert fleet.effects == ["doomed a-0", "doomed a-1", "heir a-1", "heir a-2"]
        assert await client.workers.list_dead() == []
        # What two workers did is one trace, and every span in it has its parent.
        journal = await client.storage.journal()
        trace = await build_trace(journal, ended, tenant="default")
        names = [span.name for span in trace.spans]
        assert (names.count("execute_tool note"), names.count("invoke_agent noter")) == (3, 1)
        assert sum(name.startswith("chat") for name in names) == 4
        known = {span.key for span in trace.spans}
        assert [span for span in trace.spans if span.parent and span.parent not in known] == []
        root = trace.spans[0]
        assert root.attributes["holdfast.run.status"] == "completed"
        assert all(root.start <= span.start <= span.end <= root.end for span in trace.spans)
        assert [one.name for one in await client.workers.list()] == ["heir"]


async def test_a_worker_that_stood_still_writes_nothing_when_it_wakes(fleet) -> None:
    async with open_client(fleet) as client:
        await client.agents.register(Agent("noter"))
        zombie = await fleet.start("doomed")
        run = await client.runs.submit("noter", "", "a")
        await fleet.until_effect("doomed a-1")
        zombie.send_signal(signal.SIGSTOP)
        await fleet.start("heir")
        async with asyncio.timeout(PATIENCE_S):
            assert (await client.runs.wait(run.id)).status == "completed"
        before = await client.events.list(run.session_id)
        zombie.send_signal(signal.SIGCONT)
        second = await client.runs.submit("noter", "", "b")
        # Either of them may take it; whatever the zombie holds, it hands over.
        zombie.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            await zombie.wait()
            assert (await client.runs.wait(second.id)).status == "completed"
        assert await client.events.list(run.session_id) == before


async def test_a_worker_that_is_told_to_stop_hands_over(fleet) -> None:
    async with open_client(fleet) as client:
        await client.agents.register(Agent("noter"))
        leaving = await fleet.start("doomed")
        run = await client.runs.submit("noter", "", "a")
        await fleet.until_effect("doomed a-1")
        leaving.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            assert await leaving.wait() == 0
        assert (await client.runs.get(run.id)).status == "running"
        await fleet.start("heir")
        async with asyncio.timeout(PATIENCE_S):
            assert (await client.runs.wait(run.id)).status == "completed"
        # The call that was cut off has an outcome, so the heir goes on behind it.
        assert fleet.effects[:2] == ["doomed a-0", "doomed a-1"]
        assert fleet.effects[-1] == "heir a-2"
