"""The reference pages of the built-in tools, made from their definitions."""

from __future__ import annotations

import asyncio
import json

from holdfast.canonical import JsonObject
from holdfast.client import AsyncClient
from holdfast.tools import Tool, choose_default_action

_NOTE = "<!-- Written by scripts/reference.py; change the source, then run it. -->\n"
_EFFECTS = {
    "read": "Changes nothing; after a crash it is simply done again.",
    "idempotent": "Doing it twice is the same as once; after a crash it is done again.",
    "reconcile": "After a crash the tool itself finds out whether it happened.",
    "unsafe": "After a crash a person says whether it happened.",
}
_TARGETS = {
    "none": "nothing that rules could name",
    "path": "the real path, links resolved",
    "command": "the command line",
    "host": "the host",
    "agent": "the agent",
    "text": "the text itself",
}


def tool_pages() -> dict[str, str]:
    """One page per tool and an index, by file name below docs/reference."""
    # Opens nothing.
    registry = asyncio.run(AsyncClient("nowhere").tools.registry())
    pages = {f"tools/{tool.name}.md": _page(tool) for tool in registry}
    return {"tools/index.md": _index(list(registry)), **pages}


def _index(tools: list[Tool]) -> str:
    rows = []
    for tool in tools:
        purpose = tool.description.partition("\n")[0]
        rows.append(f"| [{tool.name}]({tool.name}.md) | {tool.effect} | {purpose} |")
    table = ["| tool | effect | does |", "|---|---|---|", *rows, ""]
    return "\n".join([_NOTE, "# Built-in tools", "", *table])


def _page(tool: Tool) -> str:
    lines = [_NOTE, f"# {tool.name}", "", tool.description, ""]
    lines += ["| | |", "|---|---|"]
    lines += [
        f"| version | {tool.version} |",
        f"| effect | `{tool.effect}`: {_EFFECTS[tool.effect]} |",
        f"| permission target | {_TARGETS[tool.target_kind]} |",
        f"| without a rule | {choose_default_action(tool, 'built-in')} |",
        f"| time limit | {tool.timeout_s:g} s |",
        f"| tags | {', '.join(tool.tags)} |",
        *([f"| labels of results | {', '.join(tool.labels)} |"] if tool.labels else []),
        *(["| egress | sends its arguments out |"] if tool.egress else []),
        "",
    ]
    properties = tool.parameters["properties"]
    if not properties:
        return "\n".join([*lines, "It takes no arguments.", ""])
    lines += ["## Arguments", "", *_table(tool.parameters)]
    for name, definition in tool.parameters.get("$defs", {}).items():
        if "properties" in definition:
            lines += ["", f"### {name}", "", *_table(definition)]
    return "\n".join([*lines, ""])


def _table(schema: JsonObject) -> list[str]:
    required = schema.get("required", [])
    rows = [_row(name, one, name in required) for name, one in schema["properties"].items()]
    return ["| name | type | default | meaning |", "|---|---|---|---|", *rows]


def _row(name: str, schema: JsonObject, is_required: bool) -> str:
    default = "required" if is_required else f"`{json.dumps(schema.get('default'))}`"
    meaning = str(schema.get("description", "")).replace("|", "\\|")
    return f"| `{name}` | {_type(schema)} | {default} | {meaning} |"


def _type(schema: JsonObject) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    bounds = [
        f"{sign} {schema[key]:g}"
        for key, sign in (
            ("minimum", "≥"),
            ("exclusiveMinimum", ">"),
            ("maximum", "≤"),
        )
        if key in schema
    ]
    return " ".join([str(schema.get("type", "any")), *bounds])
