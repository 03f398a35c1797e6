"""The facts of this room."""

from __future__ import annotations

from holdfast.journal import Payload, payload


@payload("session.compacted")
class SessionCompacted(Payload, frozen=True, kw_only=True):
    """A message stands for an earlier part of the conversation in the model's view.

    Stored together with that message. The conversation itself is whole.
    """

    message_id: str
    up_to_message_id: str
    messages: int
    """How many messages the summary stands for."""
    tokens_before: int
    tokens_after: int
    reason: str
    """`overflow`, `refused` (by the provider), `requested`."""
    is_extractive: bool = False


@payload("context.pruned")
class ContextPruned(Payload, frozen=True, kw_only=True):
    """Long tool output up to a message is a short note in the model's view."""

    up_to_message_id: str
    calls: int
    tokens_before: int
    tokens_after: int
