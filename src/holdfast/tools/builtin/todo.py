"""The `todoread` and `todowrite` tools: the session's list of things to do."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from holdfast.tools.context import ToolContext
from holdfast.tools.definition import tool
from holdfast.tools.result import ToolResult

STATE_KEY = "todos"
_MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "cancelled": "[-]"}


class Todo(BaseModel):
    """One thing to do."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    content: str = Field(min_length=1, max_length=2_000, description="What is to be done")
    status: Literal["pending", "in_progress", "completed", "cancelled"] = "pending"
    priority: Literal["high", "medium", "low"] = "medium"
    id: str = Field(default="", max_length=64, description="Keeps its identity when reworded")


class _Stored(msgspec.Struct):
    content: str
    status: str
    priority: str = "medium"
    id: str = ""


@tool(effect="read", tags=("planning",))
async def todoread(context: ToolContext) -> ToolResult:
    """Read the list of things to do of this session."""
    stored = msgspec.convert(await context.state.get(STATE_KEY) or [], list[_Stored])
    return _render([msgspec.to_builtins(one) for one in stored])


@tool(effect="idempotent", tags=("planning",))
async def todowrite(
    todos: Annotated[list[Todo], Field(max_length=200, description="The whole list")],
    context: ToolContext,
) -> ToolResult:
    """Replace the list of things to do of this session.

    Give the whole list every time. Have at most one thing in_progress, and mark it
    completed as soon as it is done.
    """
    items = [todo.model_dump() for todo in todos]
    for number, item in enumerate(items, start=1):
        item["id"] = item["id"] or str(number)
    await context.state.set(STATE_KEY, items)
    return _render(items)


def _render(items: list[dict[str, str]]) -> ToolResult:
    lines = [f"{_MARKS.get(item['status'], '[?]')} {item['content']}" for item in items]
    left = sum(item["status"] in ("pending", "in_progress") for item in items)
    return ToolResult(
        "\n".join(lines) or "(nothing to do)",
        title=f"{left} to do",
        metadata={"todos": items, "open": left},
    )
