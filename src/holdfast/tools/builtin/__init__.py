"""The built-in tools, one file each, and the registry that holds them.

Tools tagged `optional` are offered only to agents whose rules name them. A file of a tool loads
when the tool is first looked for, and what a tool needs (parsers, regular expressions, language
servers) when it is first called.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.tools.builtin.externaldirectory import GRANTS_KEY as GRANTS_KEY
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
        "externaldirectory": "GRANTS_KEY restore_grants",
        "search": "SearchHit SearchProvider SearxngSearch",
    },
)
__all__ = [*_exported, "builtin_tools"]

_FILES = {
    "ast_grep_search": "ast_grep_search",
    "bash": "bash",
    "batch": "batch",
    "calculator": "calculator",
    "edit": "edit",
    "externaldirectory": "externaldirectory",
    "glob": "glob",
    "grep": "grep",
    "list": "list",
    "multiedit": "multiedit",
    "question": "question",
    "read": "read",
    "todoread": "todo",
    "todowrite": "todo",
    "webfetch": "webfetch",
    "write": "write",
}
"""The tools and their files; those that need something to be made are made in `builtin_tools`."""


def load_tool(name: str) -> Tool:
    """Return a built-in tool that needs nothing to be made."""
    module = importlib.import_module(f"{__name__}.{_FILES[name]}")
    # `list` is Python's own word.
    found: Tool = getattr(module, "list_directory" if name == "list" else name)
    return found


def builtin_tools(
    *,
    web_search: SearchProvider | None = None,
    code_search: SearchProvider | None = None,
    language_servers: LanguageServers | None = None,
) -> ToolRegistry:
    """Return a fresh registry with every built-in tool, the lowest layer.

    Without a search provider, `websearch` and `codesearch` are there and say what to
    configure. The caller that passes `language_servers` closes them; without, `lsp` uses those
    that are installed, which end with this process.
    """
    from holdfast.tools.registry import ToolRegistry  # noqa: PLC0415 - it imports this room

    def web() -> Tool:
        from holdfast.tools.builtin import search  # noqa: PLC0415 - first use

        return search.make_websearch_tool(web_search or search.NoSearch("websearch"))

    def code() -> Tool:
        from holdfast.tools.builtin import search  # noqa: PLC0415 - first use

        return search.make_codesearch_tool(code_search or search.NoSearch("codesearch"))

    def lsp_() -> Tool:
        from holdfast.tools.builtin import lsp  # noqa: PLC0415 - first use
        from holdfast.tools.lsp import LanguageServers  # noqa: PLC0415 - first use

        return lsp.make_lsp_tool(language_servers or LanguageServers())

    makers: dict[str, Callable[[], Tool]] = {
        name: functools.partial(load_tool, name) for name in _FILES
    }
    makers |= {"websearch": web, "codesearch": code, "lsp": lsp_}
    return ToolRegistry(scope="built-in", makers=makers)
