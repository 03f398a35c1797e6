"""Events of a stream that repeat each other: their pieces are found by their bytes.

Most events of a stream repeat the one before with another short piece of text in one
place. Such events are not decoded: what is around the piece is compared byte by byte, and
only the pieces are, all of one read together; if no subscriber hears them, all of an answer
together. Whatever differs in more, or has a piece that is no JSON string in itself, is
decoded as always. So an answer, and what is wrong with it, is the same either way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import takewhile

import msgspec

from holdfast.providers.model import Delta

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

_PLAIN_BYTES = bytes(byte for byte in range(0x20, 0x80) if byte not in b'"\\')
"""Of such bytes any piece may be."""

_VARYING = re.compile(
    rb'"sequence_number": ?(?P<number>[0-9]+)'
    rb'|"obfuscation": ?"(?P<letters>[0-9A-Za-z]*)"'
    rb"|(?P<blanks> +)(?=\}\Z)"
)
"""What differs from event to event and means nothing to us; `_expect` names the fields too."""

_GAPS = {
    "number": re.compile(rb"0|[1-9][0-9]{0,14}"),
    "letters": re.compile(rb"[0-9A-Za-z]*"),
    "blanks": re.compile(rb" *"),
}
_OPENING = re.compile(rb': ?"')
_LONGEST = 64 * 1024
"""A longer event is decoded, because a pattern may use a multiple of its size."""

_MARK = "a piece in its place"
_OPENING_EVENTS = 2
"""So many events are decoded before one is learned from: they open an answer, and differ."""

_MOST_FAILURES = 4
_decode_texts = msgspec.json.Decoder(list[str]).decode


class Pieces(msgspec.Struct, eq=False):
    """A text that grows: by decoded pieces, and by the bytes of such that are not.

    `raw` takes these bytes: the insides of JSON strings, each of them whole.
    """

    _texts: list[str] = []
    raw: bytearray = msgspec.field(default_factory=bytearray)

    def add(self, text: str) -> None:
        """Add a decoded piece."""
        if self.raw:
            self._decode()
        self._texts.append(text)

    def text(self) -> str:
        """Return all of it."""
        if self.raw:
            self._decode()
        return "".join(self._texts)

    def _decode(self) -> None:
        self._texts.append(msgspec.json.decode(b'"%b"' % bytes(self.raw), type=str))
        self.raw.clear()


class CallPieces(msgspec.Struct, eq=False):
    """A tool call whose arguments arrive in pieces."""

    call_id: str
    name: str
    pieces: Pieces = msgspec.field(default_factory=Pieces)


class Repeats(msgspec.Struct, eq=False):
    """Recognises the events that repeat the last decoded one with another piece."""

    is_known: bool = False
    """An event was learned from, and nothing else came since."""
    wants: bool = False
    """The event that `others` gave last is worth learning from."""
    _target: Pieces | None = None
    _delta: Callable[[str], Delta] | None = None
    _start: bytes = b""
    _end: bytes = b""
    _gaps: list[tuple[bytes, re.Pattern[bytes]]] = []
    _decoded: int = 0
    _failures: int = 0

    def others(self, events: list[bytes], out: list[Delta] | None) -> Iterator[bytes]:
        """Yield the events that have to be decoded; the pieces of all others are taken."""
        at, count = 0, len(events)
        while at < count:
            if self.is_known and (at := self.take(events, at, out)) == count:
                return
            self.is_known = False
            self._decoded += 1
            self.wants = self._decoded > _OPENING_EVENTS and self._failures < _MOST_FAILURES
            yield events[at]
            at += 1

    def take(self, events: list[bytes], at: int, out: list[Delta] | None) -> int:
        """Keep the pieces of the events from `at` on that are repetitions; return their end.

        Those who listen get one delta in `out` for all of them: they arrived together.
        """
        pieces = self._split_pieces(events[at:] if at else events)
        if not pieces:
            return at
        self._failures = 0
        target = self._target
        if out is None:
            if target is not None:
                target.raw += b"".join(pieces)
            return at + len(pieces)
        texts = _decode_texts(b'["%b"]' % b'","'.join(pieces))
        text = "".join(texts)
        if target is not None:
            target.add(text)
        if self._delta is not None and text:
            out.append(self._delta(text))
        return at + len(pieces)

    def learn(
        self,
        event: bytes,
        name: str,
        piece_of: Callable[[bytes], str | None],
        *,
        target: Pieces | None,
        delta: Callable[[str], Delta] | None,
    ) -> None:
        """Expect repetitions of an event whose only piece is in the field `name`.

        `piece_of` decodes an event and returns that only piece, which tells whether the
        right field was found. Pieces go to `target`, if there is one; `delta` makes of
        them what listeners hear.
        """
        # Counted as a failure until something is taken: not every server repeats itself.
        self._failures += 1
        if len(event) > _LONGEST:
            return
        opening = _OPENING.match(event, event.rfind(b'"%b"' % name.encode()) + len(name) + 2)
        if opening is None:
            return
        first = opening.end()
        found = _PIECE.match(event, first)
        assert found is not None
        last = found.end()
        try:
            is_found = piece_of(event[:first] + _MARK.encode() + event[last:]) == _MARK
        except msgspec.MsgspecError:
            is_found = False
        if is_found:
            self._expect(event, first, last)
            self._target, self._delta = target, delta
            self.is_known = True

    def _expect(self, event: bytes, first: int, last: int) -> None:
        self._start, self._end = event[:first], event[last:]
        self._gaps = []
        if event.find(b'"sequence_number"') < 0 and event.find(b'"obfuscation"') < 0:
            if event[-2:] != b" }":
                return
        places = [(first, last, _PIECE)]
        for varying in _VARYING.finditer(event):
            kind = varying.lastgroup or ""
            if varying.end() <= first or varying.start() >= last:
                places.append((*varying.span(kind), _GAPS[kind]))
        if len(places) == 1:
            return
        places.sort(key=lambda place: place[0])
        at = 0
        for begin, stop, gap in places:
            self._gaps.append((event[at:begin], gap))
            at = stop
        self._end = event[at:]

    def _split_pieces(self, events: list[bytes]) -> list[bytes]:
        """Return the pieces of those events at the beginning that are repetitions."""
        found: list[bytes] = []
        if self._gaps:
            for event in events:
                piece = self._find_across_gaps(event)
                if piece is None:
                    break
                found.append(piece)
            return found
        start, end = self._start, self._end
        first, last = len(start), -len(end)
        least = first - last
        for event in events:
            # Comparing slices costs less than asking how an event starts and ends.
            if event[:first] != start or event[last:] != end:
                break
            if not least <= len(event) <= _LONGEST:
                break
            found.append(event[first:last])
        if b"".join(found).translate(None, _PLAIN_BYTES):
            return list(takewhile(_PIECE.fullmatch, found))
        return found

    def _find_across_gaps(self, event: bytes) -> bytes | None:
        """Return the piece, if nothing differs but what may differ."""
        if len(event) > _LONGEST:
            return None
        at = 0
        piece = b""
        for literal, gap in self._gaps:
            if not event.startswith(literal, at):
                return None
            found = gap.match(event, at + len(literal))
            if found is None:
                return None
            at = found.end()
            if gap is _PIECE:
                piece = found[0]
        return piece if event[at:] == self._end else None
