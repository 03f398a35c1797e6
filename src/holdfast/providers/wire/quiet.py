"""Pieces of an answer that nobody listens to: found by their bytes, decoded all at once.

Most events of a stream repeat the one before with another short piece of text in one
place. When nobody hears the pieces, such events are not decoded: what is around the piece
is compared byte by byte, and only the bytes of the piece are kept. Whatever differs in
more, or has a piece that is no JSON string in itself, is decoded as always. So an answer,
and what is wrong with it, is the same whether somebody listens or not.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

_HEX = rb"[0-9A-Fa-f]"
_SPECIAL = b"|".join(
    (
        rb"\\[\"\\/bfnrt]",
        # Escapes outside the surrogates, or a whole pair of these.
        rb"\\u(?:[0-9A-CEFa-cef]%b|[Dd][0-7])%b{2}" % (_HEX, _HEX),
        rb"\\u[Dd][89ABab]%b{2}\\u[Dd][C-Fc-f]%b{2}" % (_HEX, _HEX),
        # UTF-8, whole characters only.
        rb"[\xc2-\xdf][\x80-\xbf]",
        rb"\xe0[\xa0-\xbf][\x80-\xbf]",
        rb"[\xe1-\xec\xee\xef][\x80-\xbf]{2}",
        rb"\xed[\x80-\x9f][\x80-\xbf]",
        rb"\xf0[\x90-\xbf][\x80-\xbf]{2}",
        rb"[\xf1-\xf3][\x80-\xbf]{3}",
        rb"\xf4[\x80-\x8f][\x80-\xbf]{2}",
    )
)
_PLAIN = rb"[\x20\x21\x23-\x5b\x5d-\x7f]*"
_PIECE = re.compile(rb"%b(?:(?:%b)%b)*" % (_PLAIN, _SPECIAL, _PLAIN))
"""The inside of a JSON string, or its beginning up to what cannot be in one."""

_NUMBER = re.compile(rb"0|[1-9][0-9]{0,14}")
_LETTERS = re.compile(rb"[0-9A-Za-z]*")
_VARYING = re.compile(rb'"(?:sequence_number": ?([0-9]+)|obfuscation": ?"([0-9A-Za-z]*)")')
"""Fields that differ from event to event and mean nothing to us."""

_OPENING = re.compile(rb': ?"')
_LONGEST = 64 * 1024
"""A longer event is decoded, because a pattern may use a multiple of its size."""

_MARK = "a piece in its place"
_MOST_FAILURES = 4


class Pieces:
    """A text that grows: by decoded pieces, and by the bytes of such that are not."""

    __slots__ = ("_bytes", "_texts")

    def __init__(self, text: str = "") -> None:
        """Begin with a text."""
        self._texts = [text]
        self._bytes = bytearray()

    def add(self, text: str) -> None:
        """Add a decoded piece."""
        if self._bytes:
            self._decode()
        self._texts.append(text)

    def add_bytes(self, piece: bytes) -> None:
        """Add the inside of a JSON string."""
        self._bytes += piece

    def text(self) -> str:
        """Return all of it."""
        if self._bytes:
            self._decode()
        return "".join(self._texts)

    def _decode(self) -> None:
        self._texts.append(msgspec.json.decode(b'"%b"' % bytes(self._bytes), type=str))
        self._bytes.clear()


class Repeats:
    """Recognises the events that repeat the last decoded one with another piece."""

    __slots__ = ("_end", "_failures", "_gaps", "_target")

    def __init__(self) -> None:
        """Know no event yet."""
        self._gaps: list[tuple[bytes, re.Pattern[bytes]]] = []
        self._end = b""
        self._target: Pieces | None = None
        self._failures = 0

    def take(self, event: bytes) -> bool:
        """Keep the piece of an event that is a repetition; say whether it was one."""
        if not self._gaps or len(event) > _LONGEST:
            return False
        at = 0
        piece = b""
        for before, gap in self._gaps:
            start = at + len(before)
            found = gap.match(event, start) if event.startswith(before, at) else None
            if found is None:
                return False
            at = found.end()
            if gap is _PIECE:
                piece = event[start:at]
        if event[at:] != self._end:
            return False
        self._failures = 0
        if self._target is not None:
            self._target.add_bytes(piece)
        return True

    def forget(self) -> None:
        """The last event was of another kind."""
        self._gaps = []

    def learn(
        self,
        event: bytes,
        name: str,
        target: Pieces | None,
        piece_of: Callable[[bytes], str | None],
    ) -> None:
        """Expect repetitions of an event whose only piece is in the field `name`.

        Their pieces go to `target`, if there is one. `piece_of` decodes an event and
        returns that only piece; it tells whether the right field was found.
        """
        self._gaps = []
        if self._failures >= _MOST_FAILURES or len(event) > _LONGEST:
            return
        # Counted as a failure until something is taken: not every server repeats itself.
        self._failures += 1
        opening = _OPENING.match(event, event.rfind(b'"%b"' % name.encode()) + len(name) + 2)
        if opening is None:
            return
        start = opening.end()
        found = _PIECE.match(event, start)
        assert found is not None
        end = found.end()
        try:
            is_found = piece_of(event[:start] + _MARK.encode() + event[end:]) == _MARK
        except msgspec.MsgspecError:
            is_found = False
        if is_found:
            self._expect(event, start, end)
            self._target = target

    def _expect(self, event: bytes, start: int, end: int) -> None:
        places = [(start, end, _PIECE)]
        for varying in _VARYING.finditer(event):
            group = varying.lastindex or 0
            if varying.end() <= start or varying.start() >= end:
                gap = _NUMBER if group == 1 else _LETTERS
                places.append((varying.start(group), varying.end(group), gap))
        at = 0
        for first, last, gap in sorted(places, key=lambda place: place[0]):
            self._gaps.append((event[at:first], gap))
            at = last
        self._end = event[at:]
