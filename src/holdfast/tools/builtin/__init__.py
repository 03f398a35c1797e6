"""The built-in tools, one file each, and the registry that holds them.

Tools tagged `optional` are offered only to agents whose rules name them. A file of a tool loads
when the first registry is made, and what a tool needs (parsers, regular expressions, language
servers) when it is first called.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.tools.builtin.externaldirectory import restore_grants as restore_grants
    from holdfast.tools.builtin.search import SearchHit as SearchHit
    from holdfast.tools.builtin.search import SearchProvider as SearchProvider
    from holdfast.tools.builtin.search import SearxngSearch as SearxngSearch
    from holdfast.tools.definition import Tool
    from holdfast.tools.lsp import LanguageServers
    from holdfast.tools.registry import ToolRegistry

__getattr__, __dir__, _exported = lazy_exports(
    __name__,
    {
        "externaldirectory": "restore_grants",
        "search": "SearchHit SearchProvider SearxngSearch",
    },
)
__all__ = [*_exported, "builtin_tools"]

_TOOLS = {
    "ast_grep_search": "ast_grep_search",
    "bash": "bash",
    "batch": "batch",
    "calculator": "calculator",
    "edit": "edit",
    "externaldirectory": "externaldirectory",
    "glob": "glob",
    "grep": "grep",
    "list": "list_directory",
    "multiedit": "multiedit",
    "question": "question",
    "read": "read",
    "todo": "todoread todowrite",
    "webfetch": "webfetch",
    "write": "write",
}
"""The tools by file; those that need something to be made are made in `builtin_tools`."""


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
    # With the first registry: the definitions of all tools together take 50 ms.
    from holdfast.tools.builtin import lsp, search  # noqa: PLC0415
    from holdfast.tools.lsp import LanguageServers  # noqa: PLC0415
    from holdfast.tools.registry import ToolRegistry  # noqa: PLC0415

    tools: list[Tool] = []
    for file, names in _TOOLS.items():
        module = importlib.import_module(f"{__name__}.{file}")
        tools += [getattr(module, name) for name in names.split()]
    tools += [
        search.websearch_tool(web_search or search.NoSearch("websearch")),
        search.codesearch_tool(code_search or search.NoSearch("codesearch")),
        lsp.lsp_tool(language_servers or LanguageServers()),
    ]
    return ToolRegistry(tools, scope="built-in")
