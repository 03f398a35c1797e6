"""Tools for small windows: said in few words, and only those that matter for what was asked."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

import msgspec

from holdfast.canonical import JsonObject
from holdfast.messages import Message, ToolPart, ToolSpec
from holdfast.providers.model import ModelRequest

SMALL_WINDOW = 16_384
"""Up to so many tokens a window is small."""
_SHARE = 8
"""An eighth of the window is for tools."""
_CHARACTERS_PER_TOKEN = 3
_FEWEST = 3
_LONGEST_DESCRIPTION = 120
_LONGEST_HINT = 60
_DROPPED = frozenset({"title", "examples", "$comment", "deprecated", "readOnly", "writeOnly"})


def shorten_tools(request: ModelRequest, window: int) -> ModelRequest:
    """Return the request with tools that take at most an eighth of a small window.

    What fits stays as it is. Then descriptions become short; and if that is not enough, the tools
    stay that were called in the conversation, that the user names, or whose words the user uses.
    """
    if window > SMALL_WINDOW or not request.tools:
        return request
    room = window * _CHARACTERS_PER_TOKEN // _SHARE
    if _measure(request.tools) <= room:
        return request
    short = tuple(_shorten(tool) for tool in request.tools)
    if _measure(short) > room:
        short = _select(short, request, room)
    return msgspec.structs.replace(request, tools=short)


def _select(tools: tuple[ToolSpec, ...], request: ModelRequest, room: int) -> tuple[ToolSpec, ...]:
    asked = _list_words(_read_last_goal(request.messages))
    called = {
        part.tool
        for message in request.messages
        for part in message.parts
        if isinstance(part, ToolPart)
    }
    ranks: dict[str, tuple[bool, int]] = {}
    for tool in tools:
        is_needed = tool.name in called or tool.name == request.tool_choice
        words = _list_words(f"{tool.name} {tool.description}")
        named = 4 * len(asked & _list_words(tool.name))
        ranks[tool.name] = (is_needed, named + len(asked & words))
    # Of equals the first stays: the order is the application's.
    chosen: list[ToolSpec] = []
    for tool in sorted(tools, key=lambda one: ranks[one.name], reverse=True):
        if ranks[tool.name][0] or len(chosen) < _FEWEST or _measure([*chosen, tool]) <= room:
            chosen.append(tool)
    names = {tool.name for tool in chosen}
    return tuple(tool for tool in tools if tool.name in names)


def _measure(tools: Sequence[ToolSpec]) -> int:
    return sum(
        len(tool.name) + len(tool.description) + len(msgspec.json.encode(tool.parameters))
        for tool in tools
    )


def _shorten(tool: ToolSpec) -> ToolSpec:
    return msgspec.structs.replace(
        tool,
        description=_cut(tool.description, _LONGEST_DESCRIPTION),
        parameters=_shorten_schema(tool.parameters),
    )


def _shorten_schema(schema: JsonObject) -> JsonObject:
    found = _shorten_value(schema, is_schema=True)
    return found if isinstance(found, dict) else schema


def _shorten_value(value: object, *, is_schema: bool) -> object:
    """Drop what explains and keep what decides; a property may be named like a keyword."""
    if isinstance(value, list):
        return [_shorten_value(one, is_schema=True) for one in value]
    if not isinstance(value, dict):
        return value
    made: JsonObject = {}
    for key, one in value.items():
        if is_schema and key in ("enum", "const", "default", "required"):
            made[key] = one
        elif is_schema and key == "description":
            made[key] = _cut(str(one), _LONGEST_HINT)
        elif not (is_schema and key in _DROPPED):
            holds_names = is_schema and key in ("properties", "$defs", "definitions")
            made[key] = _shorten_value(one, is_schema=not holds_names)
    return made


def _cut(text: str, longest: int) -> str:
    """Return the first sentence, at most so long."""
    first = re.split(r"(?<=[.!?])\s", " ".join(text.split()), maxsplit=1)[0]
    return first if len(first) <= longest else first[: longest - 1].rstrip() + "…"


def _read_last_goal(messages: Sequence[Message]) -> str:
    for message in reversed(messages):
        if message.role == "user" and message.text:
            return message.text
    return ""


@functools.lru_cache(maxsize=512)
def _list_words(text: str) -> frozenset[str]:
    # By their beginnings: a file, files and filing mean the same thing here.
    return frozenset(word[:5] for word in re.findall(r"[^\W_]{3,}", text.casefold()))


__all__ = ["SMALL_WINDOW", "shorten_tools"]
