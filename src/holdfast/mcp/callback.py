"""Where a browser comes back to after a login: an address of this machine, for one visit."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import parse_qsl, urlsplit

PATH: Final = "/callback"
_MOST_HEAD: Final = 16_384
_PAGE: Final = (
    b"HTTP/1.1 %s\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
    b"cache-control: no-store\r\nreferrer-policy: no-referrer\r\ncontent-length: %d\r\n\r\n%s"
)
_THANKS: Final = b"You can close this page and go back to Holdfast."
_WRONG: Final = b"This is not what Holdfast waits for."


class Callback:
    """Waits for the answer that a browser carries from an authorization server to us."""

    def __init__(self, port: int) -> None:
        """Listen on this port of the loopback interface."""
        self.url = f"http://127.0.0.1:{port}{PATH}"
        self._answers: asyncio.Queue[dict[str, str]] = asyncio.Queue(maxsize=4)

    async def wait(self) -> dict[str, str]:
        """Return what the next visitor brought: `code`, `state`, `iss`, or an `error`."""
        return await self._answers.get()

    def forget(self) -> None:
        """Drop what came before a login was begun."""
        while not self._answers.empty():
            self._answers.get_nowait()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one visitor."""
        with contextlib.suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            async with asyncio.timeout(10):
                head = await reader.readuntil(b"\r\n\r\n")
                words = head.split(b"\r\n", 1)[0].decode("ascii", "replace").split(" ")
                target = urlsplit(words[1] if len(words) > 1 else "")
                given = dict(parse_qsl(target.query))
                is_ours = words[0] == "GET" and target.path == PATH and "state" in given
                status, text = (b"200 OK", _THANKS) if is_ours else (b"404 Not Found", _WRONG)
                writer.write(_PAGE % (status, len(text), text))
                await writer.drain()
                if is_ours:
                    with contextlib.suppress(asyncio.QueueFull):
                        self._answers.put_nowait(given)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def open_callback(port: int = 0) -> AsyncIterator[Callback]:
    """Listen on 127.0.0.1 as long as this is open; on any free port if the wanted one is taken."""
    found: list[Callback] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await found[0].answer(reader, writer)

    try:
        server = await asyncio.start_server(answer, "127.0.0.1", port, limit=_MOST_HEAD)
    except OSError:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=_MOST_HEAD)
    try:
        found.append(Callback(server.sockets[0].getsockname()[1]))
        yield found[0]
    finally:
        server.close()


__all__ = ["PATH", "Callback", "open_callback"]
