"""A researcher who works every night, and keeps its notes from one night to the next.

python main.py --once      one night, now
python main.py             every night at two, until Ctrl-C; start it again after a crash
"""

from __future__ import annotations

import argparse

from holdfast import Agent, Client, tool
from holdfast.orchestration.workflows import Workflow
from holdfast.providers import ModelRequest
from holdfast.testing import FunctionModel, ModelReply, tool_call
from holdfast.tools import ToolContext

PAPERS = ("Leases without clocks", "Journals that do not lie", "Gates for agents")


async def read_notes(context: ToolContext) -> list[str]:
    """Return what was read in the nights before."""
    entry = await context.state.scope("user").entry("read")
    return [str(title) for title in entry.value] if entry is not None else []


@tool(effect="read")
async def read_next_paper(context: ToolContext) -> str:
    """Return the first paper that is not in the notes."""
    read = await read_notes(context)
    left = [paper for paper in PAPERS if paper not in read]
    return left[0] if left else "Nothing is left."


@tool(effect="idempotent")
async def note_paper(title: str, context: ToolContext) -> str:
    """Put a paper into the notes."""
    read = await read_notes(context)
    if title not in read:
        await context.state.scope("user").set("read", [*read, title])
    return f"{title} is noted."


def rehearse(request: ModelRequest) -> str | ModelReply:
    """Read the next paper, note it, say so."""
    last = request.messages[-1]
    if last.role != "tool":
        return ModelReply(calls=(tool_call("read_next_paper"),))
    said = last.tool_calls[0].output
    if said in PAPERS:
        return ModelReply(calls=(tool_call("note_paper", title=said),))
    return said


def main() -> None:
    """Work one night, or every night."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--once", action="store_true", help="one night, now")
    parser.add_argument("--model", default="", help="a real model, such as openai:gpt-5.2")
    chosen = parser.parse_args()
    researcher = Agent(
        "researcher",
        model=chosen.model or FunctionModel(rehearse),
        tools=[read_next_paper, note_paper],
        permission=[{"permission": "state_write", "pattern": "user/*", "action": "allow"}],
        prompt="Read the next paper, note it, and say in a sentence what it is about.",
    )
    night = (
        Workflow("night")
        .step("read", agent="researcher", message="Read the next paper.")
        .returns("${steps.read.output}")
    )
    with Client() as client:
        client.agents.register(researcher)
        client.workflows.register(night)
        if chosen.once:
            print(client.workflows.run("night").output)
            return
        client.triggers.add({"name": "nightly", "cron": "0 2 * * *", "workflow": "night"})
        # What was missed while nothing ran is made up for once; two processes fire it once.
        client.triggers.run()


if __name__ == "__main__":
    main()
