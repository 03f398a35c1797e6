"""What runs on a machine that fails: too few descriptors, a disk that is full or has errors.

    python fault_scenarios.py NAME DIRECTORY WORDS...

Each scenario prints one JSON object.
"""

from __future__ import annotations

import asyncio
import collections
import json
import os
import re
import resource
import signal
import sys
from pathlib import Path
from typing import Any

from holdfast import Agent, AsyncClient, tool
from holdfast.errors import HoldfastError
from holdfast.journal import verify
from holdfast.providers.model import ModelRequest
from holdfast.settings import load_settings
from holdfast.testing import FunctionModel, tool_call
from holdfast.tools import ToolContext

LEASE_S = 1.0
STEPS = 6
_MOST_ATTEMPTS = 400
_MOST_INTERRUPTIONS = 40
"""After so many the disk is well again: whatever injects its faults is let go."""


@tool(effect="idempotent")
def note(number: int, context: ToolContext) -> str:
    """Write one line per call that really ran."""
    with open(os.environ["NOTES"], "a") as file:
        file.write(f"{context.idempotency_key}\n")
    return f"noted {number}"


def take_notes(request: ModelRequest) -> Any:
    """Ask for two calls at a time, a few times, then say that it is done."""
    done = sum(message.role == "tool" for message in request.messages)
    return (
        "done"
        if done >= STEPS
        else [tool_call("note", number=done), tool_call("note", number=-done)]
    )


def look(request: ModelRequest) -> Any:
    has_looked = any(message.role == "tool" for message in request.messages)
    return "done" if has_looked else tool_call("look_around")


@tool(effect="unsafe")
async def look_around(context: ToolContext) -> str:
    """Hold the workspace open for a moment."""
    await asyncio.sleep(0.02)
    return "seen"


async def many_runs(directory: str, count: str, files: str) -> dict[str, Any]:
    """Start many runs at once where only few files may be open."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(files), int(files)))
    agent = Agent("looker", model=FunctionModel(look), tools=[look_around])
    async with AsyncClient(directory) as client:

        async def one(number: int) -> str:
            try:
                result = await agent.run("look", run_id=f"run-{number}", client=client)
                return str(result.status)
            except HoldfastError as error:
                return f"{error.code}: {error}"

        ended = await asyncio.gather(*[one(number) for number in range(int(count))])
    return {"ended": collections.Counter(ended)}


def stop_faults() -> None:
    """End the tracer of this process, if it has one; a tracer that is told to end lets go."""
    [tracer] = re.findall(r"^TracerPid:\s+(\d+)$", Path("/proc/self/status").read_text(), re.M)
    if int(tracer):
        os.kill(int(tracer), signal.SIGTERM)


async def run_again_until_done(directory: str) -> dict[str, Any]:
    """Execute a run, and go on with it whenever the machine has interrupted it."""
    agent = Agent("noter", model=FunctionModel(take_notes), tools=[note])
    settings = load_settings(overrides={"sessions.lease_ttl_s": LEASE_S}).settings
    interruptions: list[str] = []
    for _ in range(_MOST_ATTEMPTS):
        try:
            async with AsyncClient(directory, settings=settings) as client:
                result = await agent.run("take notes", run_id="job", client=client)
                journal = await client.storage.journal()
                errors = [
                    event.payload.decode()
                    for event in await journal.read_all(result.session_id)
                    if b"not recorded" in event.payload or b'"state":"error"' in event.payload
                ]
                return {
                    "status": result.status,
                    "interruptions": interruptions,
                    "errors": errors,
                    "problems": [str(one) for one in await verify(journal.store)],
                }
        except HoldfastError as error:
            interruptions.append(f"{error.code}: {error}")
            if len(interruptions) == _MOST_INTERRUPTIONS:
                stop_faults()
            ballast = Path(directory, "ballast")
            if ballast.exists():
                ballast.unlink()
            else:
                await asyncio.sleep(0.05)
    return {"status": "never", "interruptions": interruptions[-5:]}


if __name__ == "__main__":
    name, *words = sys.argv[1:]
    sys.stdout.write(json.dumps(asyncio.run(globals()[name](*words))) + "\n")
