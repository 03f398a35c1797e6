"""Collaborative: several agents change one document; nobody's change is lost."""

import asyncio

from holdfast import Agent, AsyncClient, tool
from holdfast.errors import StateConflict
from holdfast.testing import ScriptedModel, tool_call
from holdfast.tools import ToolContext

RULES = [{"permission": "state_write", "pattern": "project/*", "action": "allow"}]


@tool(effect="idempotent")
async def write_section(name: str, text: str, context: ToolContext) -> str:
    """Write a section of the shared document."""
    state = context.state.scope("project")
    seen = await state.entry("document")
    document = seen.value if seen is not None else {}
    # Both may have read the same version; their changes are joined field by field.
    entry = await state.set(
        "document",
        {**document, name: text},
        expected=seen.version if seen is not None else 0,
        on_conflict="merge",
    )
    return f"version {entry.version}"


def author(name: str, text: str) -> Agent:
    """Return an agent that writes one section."""
    model = ScriptedModel(tool_call("write_section", name=name, text=text), "Written.")
    return Agent(f"author-{name}", tools=[write_section], permission=RULES, model=model)


async def main() -> None:
    """Let three write at once."""
    authors = [author("summary", "Short."), author("risks", "None."), author("costs", "Low.")]
    async with AsyncClient() as client:
        await asyncio.gather(*[one.run("Write your part.", client=client) for one in authors])
        print(dict(sorted((await client.state.get("project/document")).items())))
        # Whoever does not name a strategy is told that somebody else was faster.
        try:
            await client.state.set("project/document", {}, expected=1)
        except StateConflict as error:
            print(error.code)


asyncio.run(main())
