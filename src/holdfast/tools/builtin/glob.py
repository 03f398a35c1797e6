"""The `glob` tool: files by name."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from holdfast.errors import TellModel, UsageError
from holdfast.globs import compile_glob
from holdfast.tools.context import ToolContext
from holdfast.tools.definition import tool
from holdfast.tools.file_walk import FileWalk, match_any_depth
from holdfast.tools.result import ToolResult
from holdfast.tools.target import make_path_target


@tool(
    effect="read",
    tags=("files", "search"),
    labels=("private",),
    target=make_path_target("path"),
    timeout_s=60,
)
async def glob(
    pattern: Annotated[str, Field(description="Glob such as **/*.py or src/*.{ts,tsx}")],
    context: ToolContext,
    path: Annotated[str, Field(description="Directory to search in")] = ".",
    limit: Annotated[int, Field(ge=1, le=10_000, description="Results at most")] = 100,
) -> ToolResult:
    """Find files whose path matches a glob, the latest changed first.

    The pattern is relative to the directory; one without a slash matches at any depth.
    What .gitignore ignores is left out.
    """
    return await context.look(_glob, context, pattern, path, limit)


def _glob(context: ToolContext, pattern: str, path: str, limit: int) -> ToolResult:
    root = context.workspace.root.rstrip("/") + "/"
    try:
        matcher = compile_glob(match_any_depth(pattern.removeprefix(root) or "."))
    except UsageError as error:
        raise TellModel(str(error)) from error
    walk = FileWalk(
        context.workspace,
        path,
        is_stopped=lambda: context.cancellation.is_cancelled,
        details=True,
    )
    found = [entry for entry in walk.files() if matcher.fullmatch(walk.relative(entry.path))]
    found.sort(key=lambda entry: (-entry.mtime_ns, entry.path))
    lines = [entry.path for entry in found[:limit]]
    if not found:
        lines.append(f"No file matches {pattern!r} below {walk.start}.")
    elif len(found) > limit:
        lines.append(f"({limit} of {len(found)} files; narrow the pattern or raise the limit)")
    if not walk.is_complete:
        lines.append("(the tree is too large: not everything was looked at)")
    return ToolResult(
        "\n".join(lines),
        title=pattern,
        metadata={"count": len(found), "is_truncated": len(found) > limit},
    )
