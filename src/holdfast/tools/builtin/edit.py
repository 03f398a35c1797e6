"""The `edit` tool: one exact replacement in a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from holdfast.canonical import JsonObject
from holdfast.tools.builtin.file_change import (
    describe_change,
    note_change,
    on_text,
    preview_change,
    reconcile_change,
)
from holdfast.tools.context import ToolContext
from holdfast.tools.definition import tool
from holdfast.tools.edits import replace_exactly
from holdfast.tools.result import ToolResult
from holdfast.tools.target import make_path_target


async def _prepare(arguments: Mapping[str, Any], context: ToolContext) -> JsonObject:
    return await note_change(context, arguments["file_path"], _change(**arguments))


async def _preview(arguments: Mapping[str, Any], context: ToolContext) -> str:
    return await preview_change(context, arguments["file_path"], _change(**arguments))


@tool(
    effect="reconcile",
    reconcile=reconcile_change,
    prepare=_prepare,
    preview=_preview,
    tags=("files",),
    labels=("private",),
    target=make_path_target("file_path"),
    timeout_s=60,
)
async def edit(
    file_path: Annotated[str, Field(min_length=1, description="File to change")],
    old_string: Annotated[str, Field(description="Exact text to replace, unique in the file")],
    new_string: Annotated[str, Field(description="Text to put in its place")],
    context: ToolContext,
    replace_all: Annotated[bool, Field(description="Replace every occurrence")] = False,
) -> ToolResult:
    """Replace an exact text in a file.

    old_string must match the file exactly, white space included, without the line
    numbers that read shows. It must occur once, unless replace_all is set. The result
    shows the difference.
    """
    change = _change(file_path, old_string, new_string, replace_all)
    done = await context.act(context.workspace.update, file_path, change)
    return describe_change(done, "Edited")


def _change(
    file_path: str, old_string: str, new_string: str, replace_all: bool = False
) -> Callable[[bytes | None], bytes]:
    def change(text: str) -> str:
        return replace_exactly(text, old_string, new_string, replace_all=replace_all)

    return on_text(file_path, change)
