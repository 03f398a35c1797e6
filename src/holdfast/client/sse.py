"""Server-Sent Events, as our own server sends them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

import aiohttp
import msgspec

from holdfast.errors import ServerFailed

_LARGEST: Final = 64 * 1024 * 1024


class ServerEvent(msgspec.Struct, frozen=True):
    """One event of a stream; `id` is empty for what is live only."""

    name: str
    data: bytes
    id: str = ""


async def read_events(content: aiohttp.StreamReader) -> AsyncGenerator[ServerEvent, None]:
    """Yield the events of a stream as they come; one that is cut off is left out.

    Raises:
        ServerFailed: an event is larger than anything that we send.
    """
    rest = b""
    async for chunk in content.iter_any():
        *blocks, rest = (rest + chunk).split(b"\n\n")
        if len(rest) > _LARGEST:
            raise ServerFailed(detail="an event of the stream has no end", request_id="")
        for block in blocks:
            event = _parse(block)
            if event is not None:
                yield event


def _parse(block: bytes) -> ServerEvent | None:
    fields: dict[bytes, bytes] = {}
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        if field:  # a line that begins with a colon is a comment
            value = value.removeprefix(b" ")
            fields[field] = fields[field] + b"\n" + value if field in fields else value
    if b"data" not in fields:
        return None
    name = fields.get(b"event", b"message").decode()
    return ServerEvent(name, fields[b"data"], fields.get(b"id", b"").decode())


__all__ = ["ServerEvent", "read_events"]
