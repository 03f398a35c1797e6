"""What takes how much of a context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from holdfast.canonical import encode_canonical_json
from holdfast.messages import Message, ToolPart, ToolSpec
from holdfast.providers import ModelRequest, TokenCounter

CountTokens: TypeAlias = Callable[[ModelRequest], int]
"""Counts the input tokens of a request; `Model.count_tokens` is one."""

DEFAULT_WINDOW = 128_000


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A named piece of the system prompt; `note` says what was left out of it."""

    name: str
    text: str
    note: str = ""


class AccountLine(msgspec.Struct, frozen=True, kw_only=True):
    """What one piece takes."""

    name: str
    tokens: int
    characters: int
    note: str = ""


class ContextAccount(msgspec.Struct, frozen=True, kw_only=True):
    """What takes how much; `limit` is what the model leaves for input."""

    lines: tuple[AccountLine, ...]
    limit: int

    @property
    def total(self) -> int:
        """The tokens of the whole context."""
        return sum(line.tokens for line in self.lines)

    @property
    def left(self) -> int:
        """The tokens that are still free; below zero means that it does not fit."""
        return self.limit - self.total


def draw_account(
    sections: Sequence[Section],
    messages: Sequence[Message],
    tools: tuple[ToolSpec, ...],
    *,
    count: CountTokens | None,
    limit: int,
) -> ContextAccount:
    """Count every piece of a context by itself."""
    counter = count or TokenCounter("", "").count
    frame = counter(ModelRequest(messages=()))
    lines = [
        AccountLine(
            name=section.name,
            tokens=max(0, counter(ModelRequest(messages=(), system=section.text)) - frame),
            characters=len(section.text),
            note=section.note,
        )
        for section in sections
    ]
    tool_tokens = max(0, counter(ModelRequest(messages=(), tools=tools)) - frame)
    history = max(0, counter(ModelRequest(messages=messages)) - frame)
    lines.append(
        AccountLine(
            name="tools",
            tokens=tool_tokens,
            characters=sum(_measure_tool(spec) for spec in tools),
            note=f"{len(tools)} tools",
        )
    )
    lines.append(
        AccountLine(
            name="history",
            tokens=history,
            characters=sum(_measure_message(message) for message in messages),
            note=f"{len(messages)} messages",
        )
    )
    return ContextAccount(lines=tuple(lines), limit=limit)


def _measure_tool(spec: ToolSpec) -> int:
    return len(spec.name) + len(spec.description) + len(encode_canonical_json(spec.parameters))


def _measure_message(message: Message) -> int:
    """Return the characters that a model reads of a message: texts, calls and results."""
    calls = (part for part in message.parts if isinstance(part, ToolPart))
    return len(message.text) + sum(
        len(part.output or part.error or part.raw_input or encode_canonical_json(part.input))
        for part in calls
    )
