"""Stream: show an answer while it arrives."""

import asyncio

from holdfast import Agent
from holdfast.testing import ScriptedModel


async def main() -> None:
    """Print the pieces as they come."""
    agent = Agent("helper", model=ScriptedModel("Holdfast keeps every step."))
    async for text in agent.stream_text("What do you do?"):
        print(text, end="", flush=True)
    print()


asyncio.run(main())
