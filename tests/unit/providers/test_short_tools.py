"""Small windows get few words about few tools."""

from __future__ import annotations

from typing import Any

from holdfast.messages import Message, TextPart, ToolPart, ToolSpec
from holdfast.providers.model import ModelRequest
from holdfast.providers.short_tools import shorten_tools

LONG = "Do something. " + "This is explained at length. " * 20


def make_tool(name: str, description: str = LONG) -> ToolSpec:
    return ToolSpec(
        name=name,
        description=description,
        parameters={
            "type": "object",
            "title": "Arguments",
            "properties": {
                "description": {"type": "string", "description": LONG, "title": "D"},
                "how": {"enum": ["title", "examples"]},
            },
            "required": ["description"],
        },
    )


def ask(text: str, tools: tuple[ToolSpec, ...], *more: Message, **fields: Any) -> ModelRequest:
    goal = Message(id="m", session_id="s", role="user", parts=(TextPart(text=text),))
    return ModelRequest(messages=(goal, *more), tools=tools, **fields)


def test_a_large_window_and_few_tools_stay_as_they_are() -> None:
    many = ask("Hi", tuple(make_tool(f"tool_{n}") for n in range(40)))
    assert shorten_tools(many, 128_000) is many
    few = ask("Hi", (make_tool("one", "Short."),))
    assert shorten_tools(few, 4_096) is few


def test_descriptions_become_short_and_nothing_that_decides_is_lost() -> None:
    found = shorten_tools(ask("Hi", tuple(make_tool(f"tool_{n}") for n in range(4))), 8_192)
    assert len(found.tools) == 4
    tool = found.tools[0]
    assert tool.description == "Do something."
    assert "title" not in tool.parameters
    fields = tool.parameters["properties"]
    assert list(fields) == ["description", "how"], "a property may be named like a keyword"
    assert fields["description"] == {"type": "string", "description": "Do something."}
    assert fields["how"] == {"enum": ["title", "examples"]}
    assert tool.parameters["required"] == ["description"]


def test_only_the_tools_that_matter_stay_in_their_order() -> None:
    names = [f"gadget_{n}" for n in range(30)]
    tools = (*map(make_tool, names), make_tool("weather", "Say how the weather is in a city."))
    found = shorten_tools(ask("What is the weather in Paris?", tools), 2_048)
    kept = [tool.name for tool in found.tools]
    assert "weather" in kept
    assert 3 <= len(kept) < 10
    assert kept == [tool.name for tool in tools if tool.name in kept]


def test_tools_that_were_called_or_are_demanded_always_stay() -> None:
    tools = tuple(make_tool(f"gadget_{n}") for n in range(30))
    part = ToolPart(call_id="c", tool="gadget_29", input={}, state="completed", output="x")
    called = Message(id="a", session_id="s", role="assistant", parts=(part,))
    found = shorten_tools(ask("Hi", tools, called, tool_choice="gadget_17"), 2_048)
    assert {"gadget_29", "gadget_17"} <= {tool.name for tool in found.tools}
