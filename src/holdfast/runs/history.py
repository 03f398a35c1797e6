"""The `search_history` tool: what was said earlier stays within an agent's reach."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from holdfast.messages import CompactionPart, Message, TextPart, ToolPart
from holdfast.sessions import SessionManager
from holdfast.tools import Tool, ToolContext, ToolResult, tool

_AROUND = 200
_PART_CHARS = 200_000


def make_history_tool(sessions: SessionManager) -> Tool:
    """Return the tool that searches the conversation it is called in."""

    @tool(effect="read", tags=("context", "optional"))
    async def search_history(
        query: Annotated[str, Field(min_length=1, max_length=400)],
        context: ToolContext,
        limit: Annotated[int, Field(ge=1, le=50)] = 10,
    ) -> ToolResult:
        """Search everything that was said and done earlier in this conversation.

        Also what is no longer shown to you because a summary stands for it, and tool output
        that was left out. Gives the places that hold most of the words, newest first.
        """
        session = await sessions.get_session(context.session_id)
        messages = await sessions.messages.all(session)
        found = search(messages[:-1], query, limit)
        if not found:
            return ToolResult("Nothing was found.", title=query[:60])
        return ToolResult("\n\n".join(found), title=f"{query[:60]}: {len(found)} found")

    return search_history


def search(messages: tuple[Message, ...] | list[Message], query: str, limit: int) -> list[str]:
    """Return the places of a conversation that hold most of a query's words, newest first."""
    words = list(dict.fromkeys(query.casefold().split()))
    found: list[tuple[int, int, str]] = []
    for number, message in enumerate(messages, 1):
        for who, text in _has_texts(message):
            plain = text.casefold()
            hits = [word for word in words if word in plain]
            if hits:
                place = min(plain.index(word) for word in hits)
                around = text[max(0, place - _AROUND) : place + _AROUND].strip()
                found.append((len(hits), number, f"[message {number}, {who}] {around}"))
    best = sorted(found, key=lambda one: (-one[0], -one[1]))[:limit]
    return [text for _, _, text in best]


def _has_texts(message: Message) -> list[tuple[str, str]]:
    found = []
    for part in message.parts:
        if isinstance(part, TextPart):
            found.append((message.agent or message.role, part.text[:_PART_CHARS]))
        elif isinstance(part, CompactionPart):
            found.append(("summary", part.summary[:_PART_CHARS]))
        elif isinstance(part, ToolPart):
            told = f"{part.input} {part.output or part.error}"
            found.append((part.tool, told[:_PART_CHARS]))
    return found
