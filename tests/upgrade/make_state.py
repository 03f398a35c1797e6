"""Make the state directory that the upgrade test starts from; run once per release, with its code.

    PYTHONPATH=SRC_OF_THE_RELEASE python tests/upgrade/make_state.py PLACE

writes `PLACE/state` and `PLACE/work`: what was done, what waits for a person, and what was killed
in its midst. Packed with `tar cJf golden/state_<release>.tar.xz -C PLACE state work`, it is never
changed again: it stands for directories that people have.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from holdfast import Agent, AsyncClient, tool
from holdfast.settings import load_settings
from holdfast.testing import FunctionModel, tool_call


@tool(effect="idempotent")
def note(line: str) -> str:
    """Note a line in the workspace; where it says so, the process dies right after."""
    with open(os.environ["NOTES"], "a") as file:
        file.write(line + "\n")
    if line == "two" and os.environ.get("DIES"):
        os.kill(os.getpid(), signal.SIGKILL)
    return line


def answer(request: Any) -> Any:
    """Note one, two and three, then say that it is done."""
    done = sum(message.role == "tool" for message in request.messages)
    return tool_call("note", line=("one", "two", "three")[done]) if done < 3 else "All is noted."


def make_agent(action: str = "allow") -> Agent:
    """The agent whose runs are killed and wait, as the application that goes on has it too."""
    rules = [{"permission": "note", "action": action}]
    return Agent("noter", model=FunctionModel(answer), tools=[note], permission=rules)


async def build(place: Path) -> None:
    """Do something of each kind."""
    work = place / "work"
    work.mkdir(parents=True)
    (work / "plan.txt").write_text("Tea is made at four.\n")
    settings = load_settings(overrides={"workspace": str(work)}).settings
    async with AsyncClient(place / "state", settings=settings) as client:
        session = await client.sessions.create("Sums")
        await client.runs.execute("build", session.id, "What is 15 times 23?", run_id="done")
        await client.memory.store(session.id, "The gate is green")
        await client.loops.run("Describe this workspace", run_id="loop")
    async with open_client(place) as client:
        asking = make_agent("ask")
        result = await client.execute_agent(asking, "", "Note", run_id="asks", on_ask="park")
        assert result.status == "parked", result


async def die(place: Path) -> None:
    """Be killed in the midst of a run."""
    async with open_client(place) as client:
        await client.execute_agent(make_agent(), "", "Note it", run_id="killed")


def open_client(place: Path) -> AsyncClient:
    """A client whose sessions work where they can on every machine: their directory is kept."""
    settings = load_settings(overrides={"workspace": "/tmp", "sessions.lease_ttl_s": 1.0}).settings
    return AsyncClient(place / "state", settings=settings)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    if len(sys.argv) == 3:
        asyncio.run(die(target))
    asyncio.run(build(target))
    around = {**os.environ, "NOTES": str(target / "work/notes.txt"), "DIES": "1"}
    ended = subprocess.run([sys.executable, __file__, str(target), "die"], env=around, check=False)
    assert ended.returncode == -signal.SIGKILL, ended
