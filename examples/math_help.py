"""The usage example of the SDK: an agent of one's own, a session, a result.

Runs without a key: the built-in offline model calls the calculator.
"""

import asyncio

from holdfast import Agent
from holdfast import AsyncClient as OpenCodeAsyncClient


async def main() -> None:
    """Make an agent, run it, print what it says."""
    # Create custom agent
    my_agent = Agent(
        name="calculator_bot",
        description="Helps with math calculations",
        mode="subagent",
        permission=[
            {"permission": "calculator", "pattern": "*", "action": "allow"},
        ],
    )

    # Register and use
    client = OpenCodeAsyncClient()
    await client.register_agent(my_agent)

    session = await client.create_session("Math Help")

    result = await client.execute_agent(
        agent_name="calculator_bot",
        session_id=session.id,
        user_message="What is 15 times 23?",
    )

    print(result.response)  # "15 * 23 = 345"

    # Store memory
    await client.store_memory(
        session_id=session.id,
        content="User is working on math homework",
        metadata={"type": "context"},
    )
    await client.close()


asyncio.run(main())
