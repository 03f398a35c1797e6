"""Messages that a turn adds to: the past is shared, not copied."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from holdfast.messages import Message


class GrowingMessages(Sequence[Message]):
    """A conversation in order: a beginning that stays as it is, and an end that grows.

    Turn after turn of a long session has the very same `base`, so that what was made of it
    is found again without looking at any message of it. `tail` belongs to this object.
    """

    __slots__ = ("base", "tail")

    def __init__(self, base: tuple[Message, ...] = (), tail: Iterable[Message] = ()) -> None:
        """Share the base, and copy the tail."""
        self.base = base
        self.tail = list(tail)

    @property
    def last(self) -> Message:
        """The newest message; raises IndexError where there is none."""
        return self.tail[-1] if self.tail else self.base[-1]

    def __len__(self) -> int:
        """How many messages there are."""
        return len(self.base) + len(self.tail)

    def __iter__(self) -> Iterator[Message]:
        """All messages, oldest first."""
        return itertools.chain(self.base, self.tail)

    def __reversed__(self) -> Iterator[Message]:
        """All messages, newest first."""
        return itertools.chain(reversed(self.tail), reversed(self.base))

    @overload
    def __getitem__(self, place: int) -> Message: ...

    @overload
    def __getitem__(self, place: slice) -> list[Message]: ...

    def __getitem__(self, place: int | slice) -> Message | list[Message]:
        """Return one message, or some as a list."""
        before = len(self.base)
        if isinstance(place, slice):
            start, stop, step = place.indices(len(self))
            if start >= before and step == 1:
                return self.tail[start - before : max(0, stop - before)]
            return list(self)[place]
        at = place + len(self) if place < 0 else place
        if at < 0:
            raise IndexError(place)
        return self.base[at] if at < before else self.tail[at - before]

    def append(self, message: Message) -> None:
        """Add a message."""
        self.tail.append(message)

    def extend(self, messages: Iterable[Message]) -> None:
        """Add some messages."""
        self.tail.extend(messages)

    def replace_last(self, message: Message) -> None:
        """Put another message into the place of the last one."""
        if not self.tail:
            self.base, self.tail = self.base[:-1], [self.base[-1]]
        self.tail[-1] = message
