"""The `grep` tool: lines that match a regular expression.

ripgrep, where present, names the files that can match at all; every line is then judged
here, so that the result is the same with and without it.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable
from typing import Annotated

import msgspec
from pydantic import Field

from holdfast.errors import HoldfastError, TellModel, UsageError
from holdfast.globs import compile_glob
from holdfast.linear_regex import MAX_LENGTH, SYNTAX, LinearPattern, compile_linear
from holdfast.tools.context import ToolContext
from holdfast.tools.definition import tool
from holdfast.tools.encoding import is_binary, sniff
from holdfast.tools.file_walk import FileWalk, match_any_depth
from holdfast.tools.regex_literals import find_required_literals
from holdfast.tools.result import ToolResult
from holdfast.tools.target import make_path_target

MAX_FILE_BYTES = 16 * 1024 * 1024
_MAX_LINE = 400
# Some 0.2 s for one line, in which nothing else of this process runs: a step is a state of the
# expression held against a character. Ordinary expressions thus see a megabyte of a line.
_MAX_STEPS_PER_LINE = 20_000_000
_RG_TIMEOUT_S = 30.0
_RG = (
    "--no-config --null --files-with-matches --text --fixed-strings --hidden --no-messages "
    "--no-ignore-dot --no-ignore-global --no-ignore-exclude --no-ignore-parent --no-require-git"
).split()


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """One search, ready to run."""

    pattern: LinearPattern
    literals: tuple[str, ...]
    include: str
    limit: int
    is_case_ignored: bool
    budget_s: float = 20.0
    """All matching together may take this long."""


class _Found(msgspec.Struct):
    lines: list[str]
    files: int = 0
    matches: int = 0
    is_truncated: bool = False
    cut_lines: int = 0


@tool(
    effect="read",
    tags=("files", "search"),
    labels=("private",),
    target=make_path_target("path"),
    timeout_s=90,
)
async def grep(
    pattern: Annotated[
        str,
        Field(min_length=1, max_length=MAX_LENGTH, description=f"Regular expression ({SYNTAX})"),
    ],
    context: ToolContext,
    path: Annotated[str, Field(description="File or directory to search")] = ".",
    include: Annotated[str, Field(description="Only files matching this glob, as *.py")] = "",
    ignore_case: bool = False,
    limit: Annotated[int, Field(ge=1, le=10_000, description="Matching lines at most")] = 100,
) -> ToolResult:
    """Search file contents, line by line, for a regular expression.

    Results are sorted by path, as path:line: text. What .gitignore ignores is left
    out, and binary files are skipped.
    """
    search = prepare(pattern, include=include, ignore_case=ignore_case, limit=limit)
    return await run_search(context, search, path, shutil.which("rg"))


def prepare(pattern: str, *, include: str, ignore_case: bool, limit: int) -> Search:
    """Compile a search, or tell the model what is wrong with it."""
    try:
        compiled = compile_linear(pattern, is_case_ignored=ignore_case)
    except UsageError as error:
        raise TellModel(
            f"{pattern!r} is no valid regular expression here: {error} ({SYNTAX}). "
            "Escape characters such as ( [ { . with a backslash to search for them as they are."
        ) from error
    try:
        if include:
            compile_glob(match_any_depth(include))
    except UsageError as error:
        raise TellModel(str(error)) from error
    return Search(
        pattern=compiled,
        literals=find_required_literals(pattern),
        include=include,
        limit=limit,
        is_case_ignored=ignore_case,
    )


async def run_search(
    context: ToolContext, search: Search, path: str, ripgrep: str | None
) -> ToolResult:
    """Search with the ripgrep at a path, or without any."""
    candidates = None
    start = context.workspace.canonical(path)
    if ripgrep and search.literals and not start.startswith("/"):
        candidates = await _ask_ripgrep(ripgrep, context.workspace.root, search)
    return await context.look(_search, context, search, path, candidates)


async def _ask_ripgrep(ripgrep: str, root: str, search: Search) -> list[str] | None:
    """Files below the root that hold one of the literals; None if ripgrep cannot tell."""
    arguments = [*_RG, "--glob", "!.git"]
    if search.is_case_ignored:
        arguments.append("--ignore-case")
    for literal in search.literals:
        arguments += ["-e", literal]
    process = await asyncio.create_subprocess_exec(
        ripgrep,
        *arguments,
        "--",
        ".",
        cwd=root,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
    )
    try:
        async with asyncio.timeout(_RG_TIMEOUT_S):
            output, _ = await process.communicate()
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode not in (0, 1):
        return None
    names = output.decode(errors="surrogateescape").split("\0")
    return [name.removeprefix("./") for name in names if name]


def _search(
    context: ToolContext, search: Search, path: str, candidates: list[str] | None
) -> ToolResult:
    workspace = context.workspace
    info = workspace.stat(path)
    note = ""
    if info.kind == "file":
        paths: Iterable[str] = [info.path]
    else:
        walk = FileWalk(workspace, path, is_stopped=lambda: context.cancellation.is_cancelled)
        paths = _list_paths(walk, search.include, candidates)
        note = "" if walk.is_complete else "(the tree is too large: not everything was searched)"
    found = _Found(lines=[])
    deadline = context.clock.monotonic() + search.budget_s
    for one in paths:
        if context.cancellation.is_cancelled or found.is_truncated:
            break
        left = deadline - context.clock.monotonic()
        try:
            _search_file(context, search, one, found, left)
        except HoldfastError:
            continue  # gone, or not ours to read
        except TimeoutError:
            raise TellModel(
                f"{search.pattern.source!r} takes too long (it stopped in {one}). "
                "Use a simpler expression or a smaller path."
            ) from None
    return _make_result(search, found, note)


def _list_paths(walk: FileWalk, include: str, candidates: list[str] | None) -> list[str]:
    matcher = compile_glob(match_any_depth(include)) if include else None
    prefix = "" if walk.start == "." else walk.start + "/"
    walk.read_rules_at_start()
    if candidates is not None and not walk.has_ignored_start:
        paths = [name for name in candidates if name.startswith(prefix)]
    else:
        paths = [entry.path for entry in walk.files() if entry.kind == "file"]
    if matcher is not None:
        paths = [name for name in paths if matcher.fullmatch(walk.relative(name))]
    return sorted(paths)


def _search_file(
    context: ToolContext, search: Search, path: str, found: _Found, left_s: float
) -> None:
    with context.workspace.open(path) as stream:
        data = stream.read(MAX_FILE_BYTES)
    if is_binary(data):
        return
    form = sniff(data)
    text = data[len(form.mark) :].decode(form.encoding, errors="replace")
    if not _can_match(search, text):
        return
    deadline = context.clock.monotonic() + left_s
    longest = _MAX_STEPS_PER_LINE // max(search.pattern.size, 1)
    before = found.matches
    for number, line in enumerate(text.split("\n"), start=1):
        if not _can_match(search, line):
            continue
        left = deadline - context.clock.monotonic()
        if left <= 0 or context.cancellation.is_cancelled:
            raise TimeoutError
        line = line.removesuffix("\r")
        seen = line[:longest]
        found.cut_lines += len(seen) < len(line)
        if not search.pattern.matches(seen):
            continue
        if found.matches == search.limit:
            found.is_truncated = True
            break
        found.matches += 1
        found.lines.append(f"{path}:{number}: {_cut(line)}")
    found.files += found.matches > before


def _can_match(search: Search, text: str) -> bool:
    """A quick look that never says no wrongly."""
    if not search.literals or search.is_case_ignored:
        return True
    return any(literal in text for literal in search.literals)


def _cut(line: str) -> str:
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}… ({len(line)} characters)"


def _make_result(search: Search, found: _Found, note: str) -> ToolResult:
    lines = found.lines or [f"No line matches {search.pattern.source!r}."]
    if found.is_truncated:
        lines.append(f"(the first {search.limit} matches; narrow the search or raise the limit)")
    if found.cut_lines:
        lines.append(f"(of {found.cut_lines} very long lines only the beginning was searched)")
    if note:
        lines.append(note)
    return ToolResult(
        "\n".join(lines),
        title=search.pattern.source,
        metadata={
            "matches": found.matches,
            "files": found.files,
            "is_truncated": found.is_truncated,
        },
    )
