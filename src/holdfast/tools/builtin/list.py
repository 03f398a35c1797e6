"""The `list` tool: a directory as a tree."""

from __future__ import annotations

from collections import Counter, deque
from typing import Annotated

import msgspec
from pydantic import Field

from holdfast.sandbox import Entry
from holdfast.tools.context import ToolContext
from holdfast.tools.definition import tool
from holdfast.tools.file_walk import FileWalk, IgnoreRules
from holdfast.tools.result import ToolResult
from holdfast.tools.target import make_path_target

_MOST_COUNTED = 20
# Directories that hold made or fetched files, in projects that forgot to ignore them.
_NOISE = (
    "node_modules",
    "__pycache__",
    ".venv",
    "venv",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".tox",
    ".idea",
    ".DS_Store",
)


class _Node(msgspec.Struct):
    entry: Entry
    children: list[_Node] = msgspec.field(default_factory=list)
    is_open: bool = False


@tool(
    name="list",
    effect="read",
    tags=("files",),
    labels=("private",),
    target=make_path_target("path"),
    timeout_s=60,
)
async def list_directory(
    context: ToolContext,
    path: Annotated[str, Field(description="Directory to list")] = ".",
    ignore: Annotated[list[str], Field(description="Globs to leave out, such as *.min.js")] = [],  # noqa: B006 - never changed
    limit: Annotated[int, Field(ge=1, le=5_000, description="Entries at most")] = 500,
) -> ToolResult:
    """List a directory as a tree.

    Names ending in / are directories, names ending in @ are links. What .gitignore
    ignores is left out. Directories near the top come first when there is not room
    for all; a directory ending in /… was not opened, and the end says how many files there are.
    """
    return await context.look(_list, context, path, ignore, limit)


def _list(context: ToolContext, path: str, ignore: list[str], limit: int) -> ToolResult:
    walk = FileWalk(
        context.workspace,
        path,
        ignore=(*_NOISE, *ignore),
        is_stopped=lambda: context.cancellation.is_cancelled,
    )
    top, count = _collect(context, walk, limit)
    lines = [f"{walk.start.rstrip('/')}/"]
    _render(top, 1, lines)
    unopened = count >= limit
    if unopened:
        lines.append(f"(the first {count} entries; list a directory below for more)")
        lines += _count_all(context, path, ignore)
    if count == 0:
        lines.append("(empty)")
    return ToolResult(
        "\n".join(lines),
        title=walk.start,
        metadata={"count": count, "is_truncated": unopened},
    )


def _count_all(context: ToolContext, path: str, ignore: list[str]) -> list[str]:
    """Return how many files there are in all, by ending and by directory at the top."""
    walk = FileWalk(
        context.workspace,
        path,
        ignore=(*_NOISE, *ignore),
        is_stopped=lambda: context.cancellation.is_cancelled,
    )
    prefix = f"{walk.start.rstrip('/')}/" if walk.start not in ("", ".") else ""
    endings: Counter[str] = Counter()
    tops: Counter[str] = Counter()
    for entry in walk.files():
        name = entry.path.removeprefix(prefix)
        top, slash, _ = name.partition("/")
        tops[f"{top}/" if slash else "./"] += 1
        _, dot, ending = name.rpartition("/")[2].rpartition(".")
        endings[f".{ending.lower()}" if dot and ending else "without ending"] += 1
    about = "" if walk.is_complete else "more than "
    return [
        f"(in all {about}{endings.total()} files: {_join_counts(endings)})",
        f"(by directory: {_join_counts(tops)})",
    ]


def _join_counts(counted: Counter[str]) -> str:
    ranked = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    told = [f"{name} {count}" for name, count in ranked[:_MOST_COUNTED]]
    rest = sum(count for _, count in ranked[_MOST_COUNTED:])
    return ", ".join([*told, *([f"others {rest}"] if rest else [])])


def _collect(context: ToolContext, walk: FileWalk, limit: int) -> tuple[list[_Node], int]:
    """Breadth first, so that a deep branch cannot hide what is near."""
    top: list[_Node] = []
    waiting: deque[tuple[str, IgnoreRules, list[_Node], _Node | None]] = deque()
    waiting.append((walk.start, walk.read_rules_at_start(), top, None))
    count = 0
    while waiting and count < limit and not context.cancellation.is_cancelled:
        directory, rules, siblings, owner = waiting.popleft()
        entries = walk.entries(directory, rules)
        for entry in entries[: limit - count]:
            node = _Node(entry)
            siblings.append(node)
            count += 1
            if entry.kind == "directory":
                inner = rules.enter_directory(context.workspace, entry.path)
                waiting.append((entry.path, inner, node.children, node))
        if owner is not None:
            owner.is_open = len(entries) == len(owner.children)
    return top, count


def _render(nodes: list[_Node], depth: int, lines: list[str]) -> None:
    for node in nodes:
        mark = {"directory": "/", "link": "@"}.get(node.entry.kind, "")
        if node.entry.kind == "directory" and not node.is_open:
            mark = "/…"
        lines.append("  " * depth + node.entry.name + mark)
        _render(node.children, depth + 1, lines)
