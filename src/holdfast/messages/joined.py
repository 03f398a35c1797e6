"""A conversation in two parts that is read as one.

Request after request of a long conversation has the same beginning. Where that is the very
same tuple, it is known again at once, without touching a single message of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, overload

from holdfast.messages.message import Message

# To ask whether something is of an abstract class takes Python's own code, each time.
if TYPE_CHECKING:
    _Sequence = Sequence[Message]
else:
    _Sequence = object


class JoinedMessages(_Sequence):
    """Messages in order: `base`, then `tail`; equal to any other sequence of the same ones."""

    __slots__ = ("base", "tail")

    def __init__(self, base: tuple[Message, ...] = (), tail: Sequence[Message] = ()) -> None:
        """Share both parts."""
        self.base = base
        self.tail = tail

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
    def __getitem__(self, place: slice) -> tuple[Message, ...]: ...

    def __getitem__(self, place: int | slice) -> Message | tuple[Message, ...]:
        """Return one message, or some."""
        before = len(self.base)
        if isinstance(place, slice):
            start, stop, step = place.indices(len(self))
            if start >= before and step == 1:
                return tuple(self.tail[start - before : max(0, stop - before)])
            return tuple(self)[place]
        at = place + len(self) if place < 0 else place
        if at < 0:
            raise IndexError(place)
        return self.base[at] if at < before else self.tail[at - before]

    def __eq__(self, other: object) -> bool:
        """Say whether the other sequence has equal messages, in however many parts."""
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]
    index = Sequence.index
    count = Sequence.count

    def __repr__(self) -> str:
        """Like that of a tuple."""
        return repr(tuple(self))


Sequence.register(JoinedMessages)


def parts_of(messages: Sequence[Message]) -> tuple[tuple[Message, ...], Sequence[Message]]:
    """Return a beginning that may be known by its identity, and what comes behind it."""
    if isinstance(messages, JoinedMessages):
        return messages.base, messages.tail
    return (), messages
