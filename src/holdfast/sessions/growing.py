"""Messages that a turn adds to: the past is shared, not copied."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.messages import Message
from holdfast.messages.joined import JoinedMessages


class GrowingMessages(JoinedMessages):
    """A conversation in order: a beginning that stays as it is, and an end that grows.

    Turn after turn of a long session has the very same `base`, so that what was made of it
    is found again without looking at any message of it. `tail` belongs to this object.
    """

    __slots__ = ("last",)

    tail: list[Message]
    last: Message
    """The newest message; not set while there is none."""

    def __init__(self, base: tuple[Message, ...] = (), tail: Iterable[Message] = ()) -> None:
        """Share the base, and copy the tail."""
        super().__init__(base, list(tail))
        if newest := self.tail or base:
            self.last = newest[-1]

    def append(self, message: Message) -> None:
        """Add a message."""
        self.tail.append(message)
        self.last = message

    def extend(self, messages: Iterable[Message]) -> None:
        """Add some messages."""
        for message in messages:
            self.append(message)

    def replace_last(self, message: Message) -> None:
        """Put another message into the place of the last one."""
        if not self.tail:
            self.base, self.tail = self.base[:-1], [self.base[-1]]
        self.tail[-1] = self.last = message
