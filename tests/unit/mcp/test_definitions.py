"""What a server says of its tools is checked, named and cut down before anybody sees it."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.mcp.definitions import MOST_TOOLS, Offer, name_tools, read_offer
from holdfast.settings.mcp import McpEndpoint

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def endpoint(**said: Any) -> McpEndpoint:
    return McpEndpoint(transport="http", url="https://a.example/mcp", **said)


def offer(*tools: dict[str, Any], **said: Any) -> Offer:
    return read_offer("far", endpoint(**said), tools)


def listed(name: str, **said: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": SCHEMA, **said}


def test_tool_is_named_after_its_server() -> None:
    (tool,) = offer(listed("read_file", description="Read.")).tools
    assert (tool.name, tool.target) == ("mcp__far__read_file", "far/read_file")
    assert tool.description == "[Tool of the MCP server far] Read."
    assert tool.effect == "unsafe"


@pytest.mark.parametrize(
    ("hints", "effect"),
    [
        ({"readOnlyHint": True}, "read"),
        ({"idempotentHint": True}, "idempotent"),
        ({"readOnlyHint": "yes"}, "unsafe"),
        ({}, "unsafe"),
        ("readOnlyHint", "unsafe"),
    ],
)
def test_annotations_count_only_where_the_operator_says_so(hints: Any, effect: str) -> None:
    said = listed("x", annotations=hints)
    assert offer(said).tools[0].effect == "unsafe"
    assert offer(said, trust_annotations=True).tools[0].effect == effect


def test_names_that_could_be_confused_get_marks() -> None:
    names = name_tools("far", ["read_file", "readFile", "write"])
    assert names["write"] == "mcp__far__write"
    assert names["read_file"] != names["readFile"]
    assert all(
        name.startswith("mcp__far__read") for name in (names["read_file"], names["readFile"])
    )


def test_names_always_fit() -> None:
    names = name_tools("a" * 24, ["x" * 128, "y/z", "ünïcode"])
    assert all(len(name) <= 64 and name.isascii() for name in names.values())
    assert len(set(names.values())) == 3


def test_only_wanted_tools_are_taken() -> None:
    found = offer(listed("read_a"), listed("write_a"), tools=["read_*"])
    assert [one.remote for one in found.tools] == ["read_a"]
    assert found.left_out == ()


def test_too_many_tools_are_left_out() -> None:
    found = offer(*(listed(f"t{number}") for number in range(MOST_TOOLS + 5)))
    assert (len(found.tools), len(found.left_out)) == (MOST_TOOLS, 5)


def test_too_large_tools_are_left_out_together() -> None:
    fat = "d" * 60_000
    found = offer(*(listed(f"t{number}", description=fat) for number in range(40)))
    assert 0 < len(found.tools) < 40
    assert len(found.tools) + len(found.left_out) == 40
    assert all(len(one.description) < 5_000 for one in found.tools)


@pytest.mark.parametrize("name", ["", "a\nb", " a", "a\u202eb", "x" * 129, "a*", "a?", None, 7])
def test_names_that_nobody_could_read_are_left_out(name: Any) -> None:
    found = offer({"name": name, "inputSchema": SCHEMA})
    assert (found.tools, len(found.left_out)) == ((), 1)


def test_two_tools_of_one_name_are_both_left_out() -> None:
    assert [one.tool for one in offer(listed("a"), listed("a")).left_out] == ["a", "a"]


def test_any_change_of_what_is_said_changes_the_digest() -> None:
    plain = offer(listed("a", description="x")).tools[0].digest
    assert offer(listed("a", description="x")).tools[0].digest == plain
    others = [
        listed("a", description="y"),
        listed("a", description="x", title="t"),
        listed("a", description="x", annotations={"readOnlyHint": True}),
        {**listed("a", description="x"), "inputSchema": {**SCHEMA, "required": ["a"]}},
    ]
    assert all(offer(one).tools[0].digest != plain for one in others)


def test_hidden_words_do_not_reach_the_model_but_count_as_a_change() -> None:
    hidden = "Read.\u200b\U000e0041\x1b[2J"
    (tool,) = offer(listed("a", description=hidden)).tools
    assert tool.description.endswith("] Read.[2J")
    assert tool.digest != offer(listed("a", description="Read.")).tools[0].digest
