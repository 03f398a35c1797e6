"""One message of a conversation."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from holdfast.canonical import JsonObject
from holdfast.messages.parts import Part, TextPart, ToolPart
from holdfast.messages.usage import TokenUsage

Role: TypeAlias = Literal["user", "assistant", "system", "tool"]


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A message with its parts; `agent`, `model`, `usage` and the rest say where it came from.

    Messages and parts hold JSON and each other, never anything that leads back to them, so the
    garbage collector need not look at them: a process that keeps many has little to collect.
    """

    id: str
    session_id: str
    role: Role
    parts: tuple[Part, ...] = ()
    time_created: float = 0.0
    parent_id: str = ""
    run_id: str = ""
    agent: str = ""
    provider: str = ""
    model: str = ""
    stop_reason: str = ""
    usage: TokenUsage | None = None
    cost_usd: float = 0.0
    metadata: JsonObject = msgspec.field(default_factory=dict)

    @property
    def text(self) -> str:
        """All text parts, one below the other."""
        texts: list[str] = []
        for part in self.parts:  # seldom many; a comprehension is one call more
            if isinstance(part, TextPart):
                texts.append(part.text)
        return "\n".join(texts)

    @property
    def tool_calls(self) -> tuple[ToolPart, ...]:
        """The tool parts, in order."""
        calls: tuple[ToolPart, ...] = ()
        for part in self.parts:  # seldom many, as above
            if isinstance(part, ToolPart):
                calls += (part,)
        return calls
