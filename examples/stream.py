"""Stream: show an answer while it arrives."""

import asyncio

from holdfast import Agent
from holdfast.providers import TextDelta
from holdfast.testing import ScriptedModel


async def main() -> None:
    """Print the pieces as they come."""
    agent = Agent("helper", model=ScriptedModel("Holdfast keeps every step."))
    async for item in agent.stream("What do you do?"):
        if isinstance(item, TextDelta):
            print(item.text, end="", flush=True)
    print()


asyncio.run(main())
