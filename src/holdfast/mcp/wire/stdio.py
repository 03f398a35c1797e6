"""A server that is a program: JSON lines over its standard streams, in the sandbox.

The SDK has a transport of its own for this. It hands the server our home directory and path,
keeps lines of any length, and starts it without confinement; so this is ours.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

MOST_LINE_BYTES: Final = 8 * 1024 * 1024
_MOST_STRAY: Final = 1_000
_GRACE_S: Final = 2.0


class Stream(Protocol):
    """A program under way, as `SandboxStream` is one."""

    async def read_line(self) -> bytes:
        """Return the next line; nothing at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Hand over bytes; raises ConnectionError."""
        ...

    async def aclose(self, *, grace_s: float = 0.0) -> None:
        """End the program."""
        ...


class Stray:
    """How many lines were no messages; programs that log to their output are common."""

    def __init__(self) -> None:
        """None so far."""
        self.count = 0
        self.is_flood = False


@contextlib.asynccontextmanager
async def open_stdio_transport(
    start: Callable[[], Awaitable[Stream]], stray: Stray, on_end: Callable[[], None]
) -> AsyncIterator[TransportStreams]:
    """Start a program and exchange messages with it; leaving ends it and all its children.

    Lines that are no messages are counted and left out. A line that is too long, or a flood
    of stray lines, ends the connection. `on_end` is called when the program says no more.
    """
    stream = await start()
    try:
        into, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, out_of = anyio.create_memory_object_stream[SessionMessage](0)

        async def read() -> None:
            async with into:
                try:
                    while line := await stream.read_line():
                        message = _parse_message(line, stray)
                        if stray.is_flood:
                            break
                        if message is not None:
                            await into.send(message)
                except (ValueError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                    stray.is_flood = True
            on_end()

        async def write() -> None:
            async with out_of:
                try:
                    async for message in out_of:
                        await stream.write(_format_line(message))
                except (ConnectionError, OSError):
                    on_end()

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            group.start_soon(write)
            try:
                yield incoming, outgoing
            finally:
                group.cancel_scope.cancel()
                incoming.close()
                outgoing.close()
    finally:
        with anyio.CancelScope(shield=True):
            await stream.aclose(grace_s=_GRACE_S)


def _parse_message(line: bytes, stray: Stray) -> SessionMessage | None:
    text = line.strip()
    if not text:
        return None
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(text, by_name=False))
    except ValueError:
        stray.count += 1
        stray.is_flood = stray.count > _MOST_STRAY
        return None


def _format_line(message: SessionMessage) -> bytes:
    return message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"


__all__ = ["MOST_LINE_BYTES", "Stray", "Stream", "open_stdio_transport"]
