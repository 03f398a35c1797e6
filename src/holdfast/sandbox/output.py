"""Keep the beginning and the end of what a command writes."""

from __future__ import annotations


class HeadAndTail:
    """At most `limit` bytes of a stream: the first half and the last."""

    def __init__(self, limit: int) -> None:
        """Keep nothing yet."""
        self._half = max(1, limit // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        """Take in more bytes."""
        self.total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 4 * self._half:
            del self._tail[: -self._half]

    @property
    def left_out(self) -> int:
        """How many bytes from the middle are missing."""
        return max(0, self.total - 2 * self._half)

    def text(self) -> str:
        """What was kept, with a note where something is missing."""
        tail = self._tail[-self._half :]
        if not self.left_out:
            return (self._head + tail).decode(errors="replace")
        head, end = self._head.decode(errors="replace"), tail.decode(errors="replace")
        return f"{head}\n… ({self.left_out} bytes left out) …\n{end}"


__all__ = ["HeadAndTail"]
