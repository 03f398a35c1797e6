"""The built-in tools, one file each, and the registry that holds them.

Tools tagged `optional` are offered only to agents whose rules name them.
"""

from __future__ import annotations

from holdfast.tools.builtin.ast_grep_search import ast_grep_search
from holdfast.tools.builtin.bash import bash
from holdfast.tools.builtin.batch import batch
from holdfast.tools.builtin.calculator import calculator
from holdfast.tools.builtin.edit import edit
from holdfast.tools.builtin.externaldirectory import externaldirectory, restore_grants
from holdfast.tools.builtin.glob import glob
from holdfast.tools.builtin.grep import grep
from holdfast.tools.builtin.list import list_directory
from holdfast.tools.builtin.lsp import lsp_tool
from holdfast.tools.builtin.multiedit import multiedit
from holdfast.tools.builtin.question import question
from holdfast.tools.builtin.read import read
from holdfast.tools.builtin.search import (
    NoSearch,
    SearchHit,
    SearchProvider,
    SearxngSearch,
    codesearch_tool,
    websearch_tool,
)
from holdfast.tools.builtin.todo import todoread, todowrite
from holdfast.tools.builtin.webfetch import webfetch
from holdfast.tools.builtin.write import write
from holdfast.tools.definition import Tool
from holdfast.tools.lsp import LanguageServer, LanguageServers
from holdfast.tools.registry import ToolRegistry

__all__ = [
    "LanguageServer",
    "LanguageServers",
    "SearchHit",
    "SearchProvider",
    "SearxngSearch",
    "builtin_tools",
    "restore_grants",
]

_TOOLS: tuple[Tool, ...] = (
    ast_grep_search,
    bash,
    batch,
    calculator,
    edit,
    externaldirectory,
    glob,
    grep,
    list_directory,
    multiedit,
    question,
    read,
    todoread,
    todowrite,
    webfetch,
    write,
)


def builtin_tools(
    *,
    web_search: SearchProvider | None = None,
    code_search: SearchProvider | None = None,
    language_servers: LanguageServers | None = None,
) -> ToolRegistry:
    """Return a fresh registry with every built-in tool, the lowest layer.

    Without a search provider, `websearch` and `codesearch` are there and say what to
    configure. Whoever passes `language_servers` closes them; without, `lsp` uses those
    that are installed, which end with this process.
    """
    made = (
        websearch_tool(web_search or NoSearch("websearch")),
        codesearch_tool(code_search or NoSearch("codesearch")),
        lsp_tool(language_servers or LanguageServers()),
    )
    return ToolRegistry((*_TOOLS, *made), scope="built-in")
