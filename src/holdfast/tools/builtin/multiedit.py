"""The `multiedit` tool: several replacements in one file, all or nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from holdfast.canonical import JsonObject
from holdfast.errors import TellModel
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


class Edit(BaseModel):
    """One replacement."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    old_string: str = Field(description="Exact text to replace, unique in the file by then")
    new_string: str = Field(description="Text to put in its place")
    replace_all: bool = Field(default=False, description="Replace every occurrence")


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
async def multiedit(
    file_path: Annotated[str, Field(min_length=1, description="File to change")],
    edits: Annotated[list[Edit], Field(min_length=1, max_length=200)],
    context: ToolContext,
) -> ToolResult:
    """Make several exact replacements in one file, in order, all or none.

    Each edit works on the result of the one before it. If one cannot be made, nothing
    is written. The result shows the difference.
    """
    done = await context.act(context.workspace.update, file_path, _change(file_path, edits))
    return describe_change(done, "Edited")


def _change(file_path: str, edits: Sequence[Edit]) -> Callable[[bytes | None], bytes]:
    def change(text: str) -> str:
        for number, one in enumerate(edits, start=1):
            try:
                text = replace_exactly(
                    text, one.old_string, one.new_string, replace_all=one.replace_all
                )
            except TellModel as error:
                raise TellModel(
                    f"Edit {number} of {len(edits)} cannot be made, so nothing was written. "
                    f"{error.text}"
                ) from error
        return text

    return on_text(file_path, change)
