"""The table of messages: where each one stands in the log."""

from __future__ import annotations

import msgspec

from holdfast.journal import Event, Payload, Projection
from holdfast.sessions import events as facts
from holdfast.sessions.events import Ranges
from holdfast.sessions.session import is_hidden


class MessageRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a message stands in the log; its content is read from there.

    `updates` and `deletions` are numbers of events; those that a revert hid do not count.
    Written with every message and every result, so it is kept small.
    """

    session_seq: int
    updates: tuple[int, ...] = ()
    deletions: tuple[int, ...] = ()

    def is_visible(self, hidden: Ranges) -> bool:
        """Say whether the message belongs to the conversation."""
        return not is_hidden(hidden, self.session_seq) and all(
            is_hidden(hidden, number) for number in self.deletions
        )


class MessagesTable(Projection[MessageRow]):
    """One row per message: its place in the log."""

    name = "messages"
    version = 4
    is_lazy = True
    row_type = MessageRow
    columns = ("session_seq",)
    indexes = (("session", "session_seq"),)
    kinds = frozenset(
        {facts.MessageCreated.kind, facts.MessagePartUpdated.kind, facts.MessageDeleted.kind}
    )
    beginnings = frozenset({facts.MessageCreated.kind})

    def key(self, event: Event, payload: Payload) -> str:
        """A message has one row, under its id."""
        if isinstance(payload, facts.MessagePartUpdated):
            return payload.message_id
        if isinstance(payload, facts.MessageCreated):
            return payload.message.id
        assert isinstance(payload, facts.MessageDeleted)
        return payload.message_id

    def apply(self, row: MessageRow | None, event: Event, payload: Payload) -> MessageRow | None:
        """Fold one fact into the message's row."""
        if isinstance(payload, facts.MessageCreated):
            return MessageRow(event.session_seq)
        if row is None:
            return None
        if isinstance(payload, facts.MessagePartUpdated):
            return msgspec.structs.replace(row, updates=(*row.updates, event.session_seq))
        return msgspec.structs.replace(row, deletions=(*row.deletions, event.session_seq))


MESSAGES = MessagesTable()
