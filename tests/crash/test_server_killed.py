"""A server is killed in the midst of runs: every run ends, no effect twice, every event once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest
from served import until

from holdfast import AsyncClient
from holdfast.client import find_token

APP = """
import asyncio, os
from holdfast import Agent, tool
from holdfast.testing import FunctionModel, tool_call

@tool
async def note(line: str) -> str:
    '''Note a line.'''
    file = os.open("effects.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, (line + "\\n").encode())
    os.close(file)
    await asyncio.sleep(0.01)
    return line

def answer(request):
    said = [m.text for m in request.messages if m.role == "user"][-1]
    done = sum(len(m.tool_calls) for m in request.messages if m.role == "assistant")
    return tool_call("note", line=f"{said}-{done}") if done < 4 else "done"

agents = [Agent("noter", model=FunctionModel(answer), tools=[note])]
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Served:
    """`holdfast serve` as a process that can be killed and started again."""

    def __init__(
        self, directory: Path, *, lease_s: float = 1, environment: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory
        self.environment = environment or {}
        self.lease_s = lease_s
        self.port = free_port()
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        words = ["--state-dir", "state", "--workspace", ".", "serve", "app:agents"]
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "holdfast", "--json", *words, "--port", str(self.port),
            cwd=self.directory, stdout=asyncio.subprocess.PIPE,
            env={
                **os.environ, **self.environment,
                "HOLDFAST_SESSIONS__LEASE_TTL_S": str(self.lease_s),
            },
        )  # fmt: skip
        assert self.process.stdout is not None
        async with asyncio.timeout(60):
            assert b"url" in await self.process.stdout.read(200)

    async def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()

    def client(self) -> AsyncClient:
        url = f"http://127.0.0.1:{self.port}"
        return AsyncClient(url, api_key=find_token(self.directory / "state"))

    def effects(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return (self.directory / "effects.txt").read_text().splitlines()
        return []


async def see_through(served: Served, client: AsyncClient, number: int) -> list[int]:
    """Run one run to its end, as a client does that loses its connection; returns its events."""
    run = await client.runs.start("noter", "", f"run{number}", on_ask="park")
    seen: list[int] = []
    while True:
        # Asked for first: what a run that has ended then is followed to is its end.
        state = await run.state()
        async for event in run.events(after=seen[-1] if seen else 0):
            seen.append(event.session_seq)
        if state.status == "completed":
            return seen
        if state.status in ("running", "queued"):  # it goes on already
            await asyncio.sleep(0.02)
            continue
        assert state.status == "parked", state
        # A call was under way when the process died: whoever can look says what became of it.
        for one in await client.approvals.questions():
            if one.session_id == run.session_id:
                calls = await client.tools.history(one.session_id)
                [call] = [call for call in calls if call.id == one.call_id]
                happened = call.args["line"] in served.effects()
                verdict = "happened" if happened else "not_happened"
                await client.approvals.decide_outcome(
                    one.session_id, one.call_id, verdict, by="test", result="noted"
                )


async def test_a_killed_server_loses_and_repeats_nothing(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    runs, kills = (100, 3) if request.config.getoption("--crash-all") else (12, 2)
    (tmp_path / "app.py").write_text(textwrap.dedent(APP))
    served = Served(tmp_path)
    await served.start()
    async with served.client() as client:
        client._channel._patience_s = 90.0
        tasks = [asyncio.create_task(see_through(served, client, n)) for n in range(runs)]
        for count in range(kills):
            wanted = (count + 1) * runs
            await until(lambda: len(served.effects()) >= wanted, timeout_s=60)  # noqa: B023
            await served.kill()
            await served.start()
        async with asyncio.timeout(120):
            everything = await asyncio.gather(*tasks)
        listed = {run.id: run for run in await client.runs.list(limit=runs)}
        assert {run.status for run in listed.values()} == {"completed"}
        assert all(seen == sorted(set(seen)) for seen in everything), "an event came twice"
        stored = []
        for run in listed.values():
            kept = await client.events.list(run.session_id)
            stored.append([event.session_seq for event in kept if event.run_id == run.id])
        assert sorted(everything) == sorted(stored), "an event was missed"
    effects = served.effects()
    assert sorted(effects) == sorted(f"run{n}-{step}" for n in range(runs) for step in range(4))
    assert served.process is not None
    served.process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(30):
        assert await served.process.wait() == 0
