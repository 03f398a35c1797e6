"""A research crew: two researchers at the same time, and a writer who names the sources."""

from __future__ import annotations

import argparse
from pathlib import Path

from holdfast import Agent, Client, tool
from holdfast.providers import Model, ModelRequest
from holdfast.testing import FunctionModel, ModelReply, ScriptedModel, tool_call

SOURCES = Path(__file__).with_name("sources")


@tool(effect="read")
def read_source(name: str) -> str:
    """Read a source by its name: heat-pumps or insulation."""
    path = SOURCES / f"{name}.txt"
    return path.read_text().strip() if path.parent == SOURCES and path.is_file() else "No such."


def rehearse_researcher(request: ModelRequest) -> str | ModelReply:
    """Read the source that the task names, then say what it says."""
    last = request.messages[-1]
    if last.role == "tool":
        return last.tool_calls[0].output
    name = "heat-pumps" if "heat" in last.text else "insulation"
    return ModelReply(calls=(tool_call("read_source", name=name),))


def rehearse_writer() -> Model:
    """Ask both at once, then write."""
    return ScriptedModel(
        [
            tool_call("researcher", task="What do we know of heat pumps?"),
            tool_call("researcher", task="What do we know of insulation?"),
        ],
        "Insulate first, then buy a small heat pump.\n\nSources: heat-pumps, insulation.",
    )


def main() -> None:
    """Research, write, keep the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="", help="a real model, such as openai:gpt-5.2")
    chosen = parser.parse_args().model
    researcher = Agent(
        "researcher",
        description="Finds out one thing from the sources.",
        model=chosen or FunctionModel(rehearse_researcher),
        tools=[read_source],
    )
    writer = Agent(
        "writer",
        model=chosen or rehearse_writer(),
        tools=[researcher.as_tool()],
        prompt="Let researchers find out, several at once. Name the source of each claim.",
    )
    with Client() as client:
        result = client.runs.execute(writer, "", "How do I heat my house for less?")
        kept = client.artifacts.save(
            "report.md", result.response.encode(), session_id=result.session_id
        )
        below = client.runs.children(result.run_id)
        print(result.response)
        print(f"{len(below)} researchers worked; kept as {kept.name}, {kept.size} bytes")


if __name__ == "__main__":
    main()
