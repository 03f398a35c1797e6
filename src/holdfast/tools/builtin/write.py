"""The `write` tool: a whole file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from holdfast.canonical import JsonObject
from holdfast.errors import HoldfastError, TellModel
from holdfast.tools.builtin.file_change import describe_change, note_change, preview_change
from holdfast.tools.context import ToolContext
from holdfast.tools.definition import tool
from holdfast.tools.encoding import TextForm, decode_file, encode_file, is_uniform_crlf
from holdfast.tools.result import ToolResult
from holdfast.tools.target import make_path_target


async def _prepare(arguments: Mapping[str, Any], context: ToolContext) -> JsonObject:
    path, content = arguments["file_path"], arguments["content"]
    try:
        return await note_change(context, path, lambda before: _encode(before, content, path))
    except HoldfastError:
        return {}  # what is wrong with the path, the call itself says


async def _preview(arguments: Mapping[str, Any], context: ToolContext) -> str:
    path, content = arguments["file_path"], arguments["content"]
    return await preview_change(context, path, lambda before: _encode(before, content, path))


@tool(
    effect="idempotent",
    prepare=_prepare,
    preview=_preview,
    tags=("files",),
    labels=("private",),
    target=make_path_target("file_path"),
    timeout_s=60,
)
async def write(
    file_path: Annotated[str, Field(min_length=1, description="File to create or replace")],
    content: Annotated[str, Field(description="The whole new content")],
    context: ToolContext,
) -> ToolResult:
    """Write a whole file, replacing what was there.

    Directories on the way are made. An existing text file keeps its encoding and its
    line ends. Prefer edit for a small change. The result shows the difference.
    """

    def change(before: bytes | None) -> bytes:
        return _encode(before, content, file_path)

    done = await context.act(context.workspace.update, file_path, change)
    return describe_change(done, "Created" if done.before is None else "Wrote")


def _encode(before: bytes | None, content: str, path: str) -> bytes:
    form = TextForm()
    if before:
        try:
            text, form = decode_file(before, path)
        except HoldfastError:
            text = ""  # what was there is no text; nothing of its form can be kept
        if is_uniform_crlf(text):
            content = content.replace("\r\n", "\n").replace("\n", "\r\n")
    try:
        return encode_file(content, form)
    except TellModel:
        if form.encoding != "latin-1":
            raise
        return encode_file(content, TextForm())
