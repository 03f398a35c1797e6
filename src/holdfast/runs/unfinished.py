"""Answers that were broken off: what arrived of them, and what they took."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from holdfast.ids import make_id
from holdfast.messages import Message, Part, TextPart
from holdfast.providers import ModelInfo, ModelRequest, TokenCounter

CANCELLED: Final = "cancelled"
"""The `stop_reason` of an answer that was broken off, because the run was."""


def make_unfinished(info: ModelInfo, request: ModelRequest, said: str) -> Message:
    """Return an answer that was broken off as a message: its beginning, and its tokens.

    The provider says what a call took only with its end, so the tokens are counted here, and
    marked as an estimate: all that was sent, and what has arrived.
    """
    parts: tuple[Part, ...] = (TextPart(id=make_id("prt"), text=said),) if said.strip() else ()
    message = Message(
        id="",
        session_id="",
        role="assistant",
        parts=parts,
        provider=info.provider,
        model=info.model,
        stop_reason=CANCELLED,
        metadata={"usage": "estimate"},
    )
    usage = TokenCounter(info.provider, info.model).usage(request, message)
    return replace(message, usage=usage)


__all__ = ["CANCELLED", "make_unfinished"]
