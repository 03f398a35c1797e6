"""An application with agents of its own: tools, three agents, a skill, callbacks, memory.

It runs without a key: what the models say is scripted here. Give the agents a real `model`
(`model="openai:gpt-5.2"`) and the rest stays as it is.
"""

import asyncio
import tempfile
from pathlib import Path

from holdfast import Agent, AsyncClient, tool
from holdfast.hooks import Callbacks
from holdfast.sessions import Session, SessionLifecycle
from holdfast.settings import load_settings
from holdfast.testing import ScriptedModel, tool_call

# --- tools ------------------------------------------------------------------------------

WEATHER = {"Oslo": "rain, 4 °C", "Rome": "sun, 19 °C"}


@tool(effect="read")
def custom_calculator(operation: str, a: float, b: float) -> str:
    """Add, subtract, multiply or divide two numbers."""
    results = {"add": a + b, "subtract": a - b, "multiply": a * b}
    if operation == "divide" and b:
        results["divide"] = a / b
    return f"{results[operation]:g}"


@tool(effect="read")
async def custom_weather(city: str) -> str:
    """Say what the weather is in a city."""
    return WEATHER.get(city, "nobody knows")


# --- agents -----------------------------------------------------------------------------

accountant = Agent(
    "accountant",
    description="Calculates",
    prompt="You calculate with the calculator, never in your head.",
    permission=[{"permission": "custom_calculator", "pattern": "*", "action": "allow"}],
    allowed_tools=["custom_calculator"],
    model=ScriptedModel(
        tool_call("custom_calculator", operation="multiply", a=15, b=23), "15 × 23 = 345"
    ),
)
forecaster = Agent(
    "forecaster",
    description="Knows the weather",
    prompt="You say what the weather is, and what to wear.",
    permission=[{"permission": "custom_weather", "pattern": "*", "action": "allow"}],
    allowed_tools=["custom_weather", "skill"],
    model=ScriptedModel(
        tool_call("skill", name="what-to-wear"),
        tool_call("custom_weather", city="Oslo"),
        "Rain in Oslo: take a coat.",
    ),
)
secretary = Agent(
    "secretary",
    description="Remembers what people said",
    prompt="You answer from what you remember.",
    model=ScriptedModel("You are planning a trip to Oslo."),
)

SKILL = """\
---
name: what-to-wear
description: What to wear in which weather. Use it before you give advice about clothes.
---
Rain: a coat. Sun: a hat. Snow: both.
"""


# --- callbacks --------------------------------------------------------------------------


def before_tool(name: str, arguments: dict[str, object]) -> None:
    """See every call before it is made; a text would be the result instead of it."""
    print(f"  {name} {arguments}")


def after_agent(agent: str, response: str) -> str:
    """Sign every answer."""
    return f"{response} ({agent})"


class Diary(SessionLifecycle):
    """Hears what becomes of sessions; there are five such methods."""

    async def on_session_created(self, session: Session) -> None:
        """A session begins."""
        print(f"  begun: {session.title}")

    async def on_session_archived(self, session: Session) -> None:
        """It is put away."""
        print(f"  put away: {session.title}")


# --- the application --------------------------------------------------------------------


async def main(folder: Path) -> None:
    """Ask each agent something, in one session."""
    skill = folder / ".agents" / "skills" / "what-to-wear" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(SKILL)
    settings = load_settings(overrides={"workspace": str(folder)}).settings
    async with AsyncClient(folder / "state", settings=settings) as client:
        await client.use_callbacks(Callbacks(before_tool=before_tool, after_agent=after_agent))
        await client.events.follow_sessions(Diary())
        # A project's skill reaches agents when a person has vouched for it.
        await client.skills.trust("what-to-wear")
        for own in (custom_calculator, custom_weather):
            await client.register_tool(own)

        session = await client.create_session("A day at the office")
        await client.events.settle()
        await client.store_memory(
            session_id=session.id,
            content="The user is planning a trip to Oslo",
            metadata={"type": "context"},
        )
        questions = [
            (accountant, "What is 15 times 23?"),
            (forecaster, "What do I wear in Oslo?"),
            (secretary, "Where am I going?"),
        ]
        for agent, question in questions:
            result = await client.execute_agent(agent, session.id, question)
            print(result.response)

        [memory] = await client.search_memory(session.id, "trip", limit=1)
        print(f"remembered: {memory.content}")
        for row in await client.get_execution_history(session.id):
            print(f"used: {row.tool} ({row.state})")
        await client.archive_session(session.id)
        await client.events.settle()


with tempfile.TemporaryDirectory() as place:
    asyncio.run(main(Path(place)))
