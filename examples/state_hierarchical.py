"""Hierarchical: a leader's workers report upwards, and reach no more than the leader may."""

import asyncio

from holdfast import Agent, AsyncClient, tool
from holdfast.testing import ScriptedModel, tool_call
from holdfast.tools import ToolContext


@tool(effect="idempotent")
async def report(what: str, context: ToolContext) -> str:
    """Report to the leader, below a key of one's own."""
    name = context.agent_path[-1]
    await context.state.scope("agent", "leader").set(f"reports/{name}", what)
    return "reported"


@tool(effect="idempotent")
async def announce(text: str, context: ToolContext) -> str:
    """Tell everybody something."""
    await context.state.scope("global").set("news", text)
    return "told"


@tool(effect="read")
async def read_reports(context: ToolContext) -> str:
    """Read what the workers have reported."""
    page = await context.state.scope("agent").list("reports/")
    return "; ".join(f"{one.key.removeprefix('reports/')}: {one.value}" for one in page.entries)


def worker(name: str, found: str) -> Agent:
    """Return an agent that reports, and tries more than it may."""
    model = ScriptedModel(
        tool_call("report", what=found), tool_call("announce", text="I am the leader now"), "Done."
    )
    # A worker may be given everything: below the leader it has only what the leader has.
    rules = [{"permission": "state", "pattern": "*", "action": "allow"}]
    return Agent(name, tools=[report, announce], permission=rules, model=model)


async def main() -> None:
    """Let a leader start two workers."""
    workers = [worker("mole", "the ground is wet"), worker("owl", "the night is clear")]
    leader = Agent(
        "leader",
        tools=[read_reports, *[one.as_tool() for one in workers]],
        permission=[{"permission": "state_write", "pattern": "agent:leader/*", "action": "allow"}],
        model=ScriptedModel(
            [tool_call("mole", task="Dig."), tool_call("owl", task="Look.")],
            tool_call("read_reports"),
            "All reported.",
        ),
    )
    async with AsyncClient() as client:
        result = await leader.run("Find out.", client=client)
        [call] = await client.get_execution_history(result.session_id, 1)
        print(call.output)
        print("news:", await client.state.get("global/news"))


asyncio.run(main())
