"""Whatever a server lists, its tools can be made, shown to a model, and called or refused."""

from __future__ import annotations

import string
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import ToolInputInvalid
from holdfast.mcp.definitions import MOST_TOOLS, RemoteTool, read_offer
from holdfast.mcp.tools import hold_back, make_tool
from holdfast.policy.patterns import clean_name
from holdfast.settings.mcp import McpEndpoint
from holdfast.tools import ToolContext, ToolRegistry, ToolResult

ENDPOINT = McpEndpoint(transport="http", url="https://a.example/mcp", trust_annotations=True)
KEYWORDS = (
    "type properties required additionalProperties items enum const anyOf oneOf allOf not $ref "
    "$defs pattern patternProperties minimum maximum minLength maxLength multipleOf minItems "
    "uniqueItems description title default format if then else prefixItems examples"
).split()
TEXT = st.text(max_size=12)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
SCHEMAS = st.recursive(
    st.fixed_dictionaries({"type": st.sampled_from(["object", "string", "weird"])}) | LEAVES,
    lambda inner: st.dictionaries(
        st.sampled_from(KEYWORDS),
        inner | st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
        max_size=5,
    ),
    max_leaves=10,
)
ROOTS = SCHEMAS.map(lambda one: {**one, "type": "object"} if isinstance(one, dict) else one)
NAMES = st.text(alphabet=string.ascii_letters + string.digits + "_-./ \u202e\n", max_size=70)
TOOLS = st.fixed_dictionaries(
    {"name": NAMES | LEAVES, "inputSchema": ROOTS | JSON},
    optional={"description": TEXT | JSON, "annotations": JSON, "title": JSON},
)


async def answer(remote: RemoteTool, arguments: Any, context: ToolContext) -> ToolResult:
    return ToolResult("never called")


@given(listed=st.lists(TOOLS, max_size=6), arguments=st.dictionaries(TEXT, JSON, max_size=3))
@settings(max_examples=40)
def test_any_listing_gives_sound_tools_and_nothing_else(
    listed: list[dict[str, Any]], arguments: dict[str, Any]
) -> None:
    offer = read_offer("far", ENDPOINT, listed)
    registry = ToolRegistry()
    for remote in offer.tools:
        registry.register(make_tool(remote, answer, timeout_s=60))
        assert hold_back(remote, "changed").spec.parameters == {"type": "object", "properties": {}}
    assert len(offer.tools) <= MOST_TOOLS
    names = [clean_name(tool.name) for tool in registry]
    assert len(set(names)) == len(offer.tools)
    assert all(name.startswith("mcpfar") for name in names)
    for tool in registry:
        parameters = tool.spec.parameters
        assert parameters["type"] == "object"
        assert isinstance(parameters["properties"], dict)
        msgspec.json.encode(tool.spec)
        try:
            tool.validate(arguments)
        except ToolInputInvalid as error:
            assert error.context["tool"] == tool.name
