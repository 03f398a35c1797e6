"""Broadcast: one agent announces, all others watch; each hears every announcement once."""

import asyncio

from holdfast import Agent, AsyncClient, tool
from holdfast.testing import ScriptedModel, tool_call
from holdfast.tools import ToolContext

BOARD = "news"


@tool(effect="idempotent")
async def announce(text: str, context: ToolContext) -> str:
    """Tell everybody something."""
    entry = await context.state.scope("project").set(f"{BOARD}/latest", text)
    return f"announced as number {entry.version}"


async def listen(client: AsyncClient, name: str, heard: list[str]) -> None:
    """Note what is announced."""
    async for change in client.state.watch(f"project/{BOARD}/", after=0):
        heard.append(f"{name} heard {change.value!r} from {change.agent_path}")
        if change.version == 2:
            return


async def main() -> None:
    """Let one speak and two listen."""
    speaker = Agent(
        "speaker",
        tools=[announce],
        # What is shared is written only by agents whose rules say so.
        permission=[{"permission": "state_write", "pattern": "project/news/*", "action": "allow"}],
        model=ScriptedModel(
            tool_call("announce", text="The build is red"),
            tool_call("announce", text="The build is green"),
            "Done.",
        ),
    )
    async with AsyncClient() as client:
        heard: dict[str, list[str]] = {"ann": [], "bob": []}
        listening = [listen(client, name, lines) for name, lines in heard.items()]
        await asyncio.gather(speaker.run("Tell the team.", client=client), *listening)
        for lines in heard.values():
            print("\n".join(lines))


asyncio.run(main())
