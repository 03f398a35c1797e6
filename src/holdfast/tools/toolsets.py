"""Toolsets: built-in tools by name, for agents that are given their tools in code.

A tool of a toolset stands for the built-in tool of its name: at a run it is the one that the
runtime has made, with its search provider, its language servers, its sessions.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

from holdfast.errors import NotFound, ToolError
from holdfast.tools.builtin import builtin_tools
from holdfast.tools.definition import Tool
from holdfast.tools.registry import ToolRegistry

_READING: Final = ("read", "grep", "glob", "list")
_WRITING: Final = ("write", "edit", "multiedit")
_TODO: Final = ("todoread", "todowrite")
TOOLSETS: Final[Mapping[str, tuple[str, ...]]] = {
    "files:read": _READING,
    "files:write": _WRITING,
    "files": (*_READING, *_WRITING),
    "shell": ("bash",),
    "todo": _TODO,
    "coding": (*_READING, "ast_grep_search", "lsp", *_WRITING, "bash", *_TODO),
    "web": ("webfetch", "websearch"),
    "batch": ("batch",),
    "question": ("question",),
    "agents": ("task",),
    "memory": ("remember", "recall"),
    "skills": ("skill",),
}
"""The tools of each set, by their names."""


def toolset(name: str) -> tuple[Tool, ...]:
    """Return the built-in tools of a set, to be handed to an agent.

    `tools=[my_tool, *toolset("files:read")]`. The sets are `files:read`, `files:write`, `files`,
    `shell`, `todo`, `coding`, `web`, `batch`, `question`, `agents`, `memory` and `skills`.
    Handing a tool over allows it, as for every other tool in
    `tools`; rules of the agent and of the operator may say otherwise.

    Raises:
        NotFound: there is no such set.
    """
    names = TOOLSETS.get(name)
    if names is None:
        import difflib  # noqa: PLC0415 - only for those who made a mistake

        near = difflib.get_close_matches(str(name), TOOLSETS, n=1)
        raise NotFound(kind="toolset", value=name, nearest=near[0] if near else "")
    tools = _load_tools()
    return tuple(tools.get(one) for one in names)


def stands_for_builtin(tool: Tool) -> bool:
    """Say whether a tool came out of a toolset, and so stands for the built-in one."""
    return (
        any(tool.name in names for names in TOOLSETS.values())
        and _load_tools().find(tool.name) is tool
    )


@functools.cache
def _load_tools() -> ToolRegistry:
    """One registry for all sets, so that the same tool is the same object in each."""
    known = builtin_tools()
    names = {name for names in TOOLSETS.values() for name in names} - known.names()
    return known.child(map(_stand_in, sorted(names)), scope="built-in")


def _stand_in(name: str) -> Tool:
    """Return what stands for a tool that only a runtime can make."""

    async def stand_in() -> str:
        raise ToolError(tool=name, detail="it works in a run only")

    return Tool.from_function(stand_in, name=name, description=f"The built-in tool {name}.")


__all__ = ["TOOLSETS", "stands_for_builtin", "toolset"]
