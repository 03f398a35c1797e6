"""Server-sent events out of arbitrary pieces of bytes."""

from __future__ import annotations

import re

import msgspec

from holdfast.errors import LLMProtocolError

_BOM = b"\xef\xbb\xbf"
_END = b"\n\n"
_NEXT_EVENT = _END + b"data: "
_NAME = re.compile(rb"event: (?!error\n)[^\n]*\n")
"""The line before an event's data that only says what the data says as well."""


class SseParser(msgspec.Struct, eq=False):
    """Turn pieces of a stream into the data of its events.

    Any chunking of the same bytes gives the same events. Lines may end in LF, CR or
    CRLF; comments, ids and retry times are skipped; a byte order mark at the start is
    dropped. The data of an event named `error` goes to `failed` instead. Not more than
    one event is held, and that only up to `max_event_bytes`.
    """

    _provider: str
    max_event_bytes: int
    failed: bytes | None = None
    _buffer: bytearray = msgspec.field(default_factory=bytearray)
    _cr: bool = False
    _at_start: bool = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of every event that `chunk` completes.

        Raises:
            LLMProtocolError: one event is larger than allowed.
        """
        if self._at_start:
            chunk = self._drop_bom(chunk)
        if self._cr or chunk.find(b"\r") >= 0:
            chunk = self._drop_cr(chunk)
        buffer = self._buffer
        if buffer:
            # A boundary may begin with the last byte that is already here.
            seen = len(buffer) - 1
            buffer += chunk
            if buffer.find(_END, seen) < 0:
                self._check(len(buffer))
                return []
            chunk = bytes(buffer)
            buffer.clear()
        stop = chunk.rfind(_END)
        rest = chunk[stop + len(_END) :] if stop >= 0 else chunk
        if rest:
            self._check(len(rest))
            buffer += rest
        if chunk[:6] == b"data: " and stop >= 0:
            events = chunk[6:stop].split(_NEXT_EVENT)
            if b"".join(events).find(b"\n") < 0:
                # The common case: each event is one line of data.
                return events
        return self._iterate_events(chunk[:stop]) if stop >= 0 else []

    def flush(self) -> list[bytes]:
        """Return the event that the end of the stream left open, if it has data.

        The standard drops it; servers that forget the last blank line are common, and
        an event that was really cut off does not parse anyway.
        """
        events: list[bytes] = []
        self._read(bytes(self._buffer), events)
        self._buffer.clear()
        return events

    def _iterate_events(self, chunk: bytes) -> list[bytes]:
        """Return the data of all events in `chunk`, whatever else is there."""
        events: list[bytes] = []
        for block in chunk.split(_END):
            head, found, data = block.partition(b"data: ")
            if found and data.find(b"\n") < 0 and (not head or _NAME.fullmatch(head)):
                events.append(data)
            else:
                self._read(block, events)
        return events

    def _check(self, size: int) -> None:
        if size > self.max_event_bytes:
            detail = f"one event is larger than {self.max_event_bytes} bytes"
            raise LLMProtocolError(provider=self._provider, detail=detail)

    def _drop_bom(self, chunk: bytes) -> bytes:
        held = bytes(self._buffer) + chunk
        self._buffer.clear()
        if len(held) < len(_BOM) and _BOM.startswith(held):
            self._buffer += held
            return b""
        self._at_start = False
        return held.removeprefix(_BOM)

    def _drop_cr(self, chunk: bytes) -> bytes:
        if self._cr and chunk[:1] == b"\n":
            chunk = chunk[1:]
        elif not chunk:
            return chunk
        self._cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _read(self, block: bytes, events: list[bytes]) -> None:
        name, data = b"", []
        for line in block.split(b"\n"):
            field, _, value = line.partition(b":")
            value = value[1:] if value[:1] == b" " else value
            if field == b"data":
                data.append(value)
            elif field == b"event":
                name = value
            elif field == b"error" and self.failed is None:
                # llama.cpp once named the field itself so.
                self.failed = value
        if not data:
            return
        whole = data[0] if len(data) == 1 else b"\n".join(data)
        if name == b"error":
            self.failed = whole if self.failed is None else self.failed
        else:
            events.append(whole)
