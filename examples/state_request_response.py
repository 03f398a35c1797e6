"""Request and response: one agent leaves questions, another answers them by key."""

import asyncio

from holdfast import Agent, AsyncClient, tool
from holdfast.state import ScopedState
from holdfast.testing import ScriptedModel, tool_call
from holdfast.tools import ToolContext

RULES = [{"permission": "state_write", "pattern": "custom:desk/*", "action": "allow"}]


def desk(context: ToolContext) -> ScopedState:
    """Return where questions and answers are left."""
    return context.state.scope("custom", "desk")


@tool(effect="idempotent")
async def ask(number: int, question: str, context: ToolContext) -> str:
    """Leave a question and wait for its answer."""
    state = desk(context)
    asked = await state.set(f"request/{number}", question)
    async for change in state.watch(f"response/{number}", after=0):
        return f"{asked.value} {change.value}"
    return "nobody answered"


@tool(effect="idempotent")
async def answer(context: ToolContext) -> str:
    """Answer the next question, once, whoever else answers."""
    state = desk(context)
    async for change in state.watch("request/", after=0):
        number = change.key.removeprefix("request/")
        # Version 0: only whoever comes first answers.
        await state.set(f"response/{number}", "42", expected=0)
        return f"answered {number}"
    return "nobody asked"


async def main() -> None:
    """Let one ask and one answer."""
    asks = ScriptedModel(tool_call("ask", number=1, question="What is six times seven?"), "Thanks.")
    answers = ScriptedModel(tool_call("answer"), "Done.")
    curious = Agent("curious", tools=[ask], permission=RULES, model=asks)
    expert = Agent("expert", tools=[answer], permission=RULES, model=answers)
    async with AsyncClient() as client:
        helping = asyncio.create_task(expert.run("Help.", client=client))
        result = await curious.run("Ask the desk.", client=client)
        await helping
        [call] = await client.get_execution_history(result.session_id, 1)
        print(call.output)


asyncio.run(main())
