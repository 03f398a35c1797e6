"""The `ast_grep_search` tool: code by its structure."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from holdfast.errors import HoldfastError, MissingExtra, TellModel
from holdfast.tools.context import ToolContext
from holdfast.tools.definition import tool
from holdfast.tools.encoding import decode_file
from holdfast.tools.file_walk import FileWalk
from holdfast.tools.result import ToolResult
from holdfast.tools.target import make_paths_target

MAX_FILE_BYTES = 1024 * 1024
_MAX_SHOWN_LINES = 12
_ENDINGS = {
    "bash": (".sh", ".bash"),
    "c": (".c", ".h"),
    "cpp": (".cc", ".cpp", ".cxx", ".hh", ".hpp", ".h"),
    "csharp": (".cs",),
    "css": (".css",),
    "go": (".go",),
    "html": (".html", ".htm"),
    "java": (".java",),
    "javascript": (".js", ".jsx", ".mjs", ".cjs"),
    "json": (".json",),
    "kotlin": (".kt", ".kts"),
    "lua": (".lua",),
    "php": (".php",),
    "python": (".py", ".pyi"),
    "ruby": (".rb",),
    "rust": (".rs",),
    "scala": (".scala",),
    "swift": (".swift",),
    "tsx": (".tsx",),
    "typescript": (".ts", ".mts", ".cts"),
    "yaml": (".yaml", ".yml"),
}
Language = Literal[
    "bash", "c", "cpp", "csharp", "css", "go", "html", "java", "javascript", "json", "kotlin",
    "lua", "php", "python", "ruby", "rust", "scala", "swift", "tsx", "typescript", "yaml",
]  # fmt: skip


@tool(
    effect="read",
    tags=("files", "search", "code"),
    labels=("private",),
    target=make_paths_target("paths"),
    timeout_s=90,
)
async def ast_grep_search(
    pattern: Annotated[
        str, Field(min_length=1, description="Code with $NAME for a node and $$$ for many")
    ],
    language: Language,
    context: ToolContext,
    paths: Annotated[list[str], Field(min_length=1, max_length=50)] = ["."],  # noqa: B006 - never changed
    limit: Annotated[int, Field(ge=1, le=1_000, description="Matches at most")] = 100,
) -> ToolResult:
    """Search code by its structure rather than its text.

    The pattern is code in the language, such as `print($X)` or
    `if $COND: $$$`; white space and comments do not matter.
    """
    return await context.look(_search, context, pattern, language, paths, limit)


def _search(
    context: ToolContext, pattern: str, language: str, paths: list[str], limit: int
) -> ToolResult:
    parse = _make_parser()
    found: list[str] = []
    files = 0
    for path in sorted(set(_list_paths(context, paths, _ENDINGS[language]))):
        if context.cancellation.is_cancelled or len(found) > limit:
            break
        try:
            text, _ = decode_file(context.workspace.read(path, max_bytes=MAX_FILE_BYTES), path)
        except HoldfastError:
            continue  # gone, binary, too large, or not ours to read
        files += 1
        for node in _list_matches(parse, text, language, pattern):
            found.append(_render(path, node))
            if len(found) > limit:
                break
    lines = found[:limit] or [f"Nothing matches in {files} {language} files."]
    if len(found) > limit:
        lines.append(f"(the first {limit} matches; narrow the pattern or raise the limit)")
    return ToolResult(
        "\n".join(lines),
        title=pattern.partition("\n")[0],
        metadata={"matches": min(len(found), limit), "is_truncated": len(found) > limit},
    )


def _make_parser() -> Any:  # noqa: ANN401 - the package has no types
    try:
        return importlib.import_module("ast_grep_py").SgRoot
    except ImportError as error:
        raise MissingExtra(what="ast_grep_search", package="ast-grep-py", extra="code") from error


def _list_paths(context: ToolContext, paths: list[str], endings: tuple[str, ...]) -> Iterator[str]:
    for path in paths:
        info = context.workspace.stat(path)
        if info.kind == "file":
            yield info.path
            continue
        walk = FileWalk(
            context.workspace, path, is_stopped=lambda: context.cancellation.is_cancelled
        )
        for entry in walk.files():
            if entry.kind == "file" and entry.name.endswith(endings):
                yield entry.path


def _list_matches(parse: Any, text: str, language: str, pattern: str) -> list[Any]:  # noqa: ANN401 - the package has no types
    try:
        return list(parse(text, language).root().find_all(pattern=pattern))
    except RuntimeError as error:
        reason = str(error).partition("Stack backtrace")[0].strip().splitlines()[-1].strip()
        raise TellModel(f"{pattern!r} is no {language} pattern: {reason}") from error


def _render(path: str, node: Any) -> str:  # noqa: ANN401 - the package has no types
    span = node.range()
    lines = node.text().splitlines()
    if len(lines) > _MAX_SHOWN_LINES:
        lines = [*lines[:_MAX_SHOWN_LINES], "…"]
    text = "\n    ".join(line[:400] for line in lines)
    return f"{path}:{span.start.line + 1}-{span.end.line + 1}: {text}"
