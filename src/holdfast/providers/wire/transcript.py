"""A conversation as bytes, kept between requests so that only what is new is joined.

The request of a long conversation then costs little more than copying its bytes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from holdfast.messages import Message, parts_of

_S = TypeVar("_S")
_T = TypeVar("_T")
_WORTH_KEEPING = 4
_MOST_KEPT = 256
_MOST_BYTES = 16 * 1024 * 1024


class Fragment(msgspec.Struct, frozen=True, gc=False):
    """One message as bytes. `tail` goes behind the run of messages with the same role."""

    role: str
    data: bytes
    tail: bytes = b""


class EncodedCache:
    """Bytes by the object that they were made from, bounded in size.

    Objects are told apart by identity, and kept alive while their bytes are kept. Two
    generations take turns, so that a hit costs one dictionary look-up.
    """

    def __init__(self, max_bytes: int = 16 * 1024 * 1024) -> None:
        """Start empty; `max_bytes` bounds both generations together."""
        self._limit = max_bytes // 2
        self._young: dict[int, tuple[object, Any]] = {}
        self._old: dict[int, tuple[object, Any]] = {}
        self._size = 0

    def fragments(
        self, messages: Sequence[Message], make: Callable[[Message], Fragment]
    ) -> list[Fragment]:
        """Return all messages as bytes, making only what was not made before."""
        found: list[Fragment] = []
        for message in messages:
            key = id(message)
            entry = self._young.get(key)
            if entry is not None and entry[0] is message:
                found.append(entry[1])
                continue
            entry = self._old.get(key)
            made = entry[1] if entry is not None and entry[0] is message else make(message)
            self._keep(message, made, len(made.data) + len(made.tail))
            found.append(made)
        return found

    def get(self, source: _S, make: Callable[[_S], _T], size: Callable[[_T], int]) -> _T:
        """Return what `make(source)` gave the first time, or make it now."""
        key = id(source)
        entry = self._young.get(key)
        if entry is not None and entry[0] is source:
            return entry[1]  # type: ignore[no-any-return]
        entry = self._old.get(key)
        made: _T = entry[1] if entry is not None and entry[0] is source else make(source)
        self._keep(source, made, size(made))
        return made

    def _keep(self, source: object, made: object, size: int) -> None:
        # The source weighs about as much as its bytes, and an entry has a fixed price.
        weight = 2 * size + 512
        self._size += weight
        if self._size > self._limit:
            self._old, self._young, self._size = self._young, {}, weight
        if weight <= self._limit:
            self._young[id(source)] = (source, made)


class Joiner(Protocol):
    """How one API puts the bytes of messages behind each other."""

    def fragment(self, message: Message) -> Fragment:
        """Return one message as bytes."""
        ...

    def add(self, data: bytearray, fragments: Iterable[Fragment], state: bytes) -> bytes:
        """Append the bytes of messages; `state` is what `add` returned for those before them."""
        ...

    def end(self, data: bytearray, state: bytes) -> bytes:
        """Return what is still missing behind the last message; an empty `state` misses nothing."""
        ...


class _Kept:
    """A conversation so far: these messages are in these bytes."""

    __slots__ = ("base", "data", "state", "tail")

    def __init__(self) -> None:
        self.base: tuple[Message, ...] = ()
        self.tail: tuple[Message, ...] = ()
        self.data = bytearray()
        self.state = b""


class WireTranscript:
    """Joins messages, each encoded once in its life, and remembers long conversations."""

    def __init__(self, joiner: Joiner) -> None:
        """Remember nothing yet."""
        self._joiner = joiner
        self._cache = EncodedCache()
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._size = 0

    def pieces(self, messages: Sequence[Message]) -> tuple[bytearray, bytes]:
        """Return a conversation's bytes and their end; both belong into one list of JSON.

        The first may be kept and grow with the next request: copy it before that.
        """
        joiner = self._joiner
        if len(messages) <= _WORTH_KEEPING:
            data = bytearray()
            state = joiner.add(data, self._cache.fragments(messages, joiner.fragment), b"")
            return data, joiner.end(data, state) if state else b""
        base: tuple[Message, ...] = ()
        tail: Sequence[Message] = messages
        if not isinstance(messages, tuple):
            base, tail = parts_of(messages)
        tail = tuple(tail)
        first = id((base or tail)[0])
        kept = self._kept.pop(first, None) or _Kept()
        self._size -= len(kept.data)
        if kept.base is base:
            done, now = kept.tail, tail
        else:
            done, now = kept.base + kept.tail, base + tail
        # Comparing the same objects costs next to nothing.
        if now[: len(done)] != done:
            kept, done, now = _Kept(), (), base + tail
        data, new = kept.data, now[len(done) :]
        kept.state = joiner.add(data, self._cache.fragments(new, joiner.fragment), kept.state)
        kept.base, kept.tail = base, tail
        self._kept[first] = kept
        self._size += len(data)
        if len(self._kept) > _MOST_KEPT or self._size > _MOST_BYTES:
            self._make_room()
        return data, joiner.end(data, kept.state) if kept.state else b""

    def _make_room(self) -> None:
        """Forget the oldest conversations."""
        while self._kept and (len(self._kept) > _MOST_KEPT or self._size > _MOST_BYTES):
            self._size -= len(self._kept.popitem(last=False)[1].data)
