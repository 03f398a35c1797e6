"""A program for tests: an agent whose one call needs consent; says how its run ended.

janitor.py STATE EFFECTS first|again
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from holdfast import Agent, AsyncClient, tool
from holdfast.testing import ScriptedModel, tool_call


async def main(state: str, effects: Path, how: str) -> None:
    @tool(permission="ask", target="path")
    async def delete(path: str) -> str:
        """Delete a file."""
        with effects.open("a") as file:
            file.write(f"{path}\n")
        return "gone"

    script = [tool_call("delete", path="a.txt")] if how == "first" else ["done"]
    agent = Agent("janitor", model=ScriptedModel(*script), tools=[delete])
    async with AsyncClient(state) as client:
        result = await client.execute_agent(agent, "", "go", run_id="job", on_ask="park")
        sys.stdout.write(f"{result.status} {os.getpid()}\n")
        sys.stdout.flush()
        if how == "first":
            await asyncio.Event().wait()


asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
