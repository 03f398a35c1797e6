"""Carry bytes between a program and a server: counted, bounded, no faster than either reads."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Final

from holdfast.tools.egress.client_hello import RETRY_BYTES, BadHello, ClientHello, is_retry
from holdfast.tools.egress.client_hello import read_hello as read_client_hello
from holdfast.tools.egress.http_head import BadHead, ProxyRequest, parse_answer

_CHUNK: Final = 64 * 1024
_CLOSE_S: Final = 2.0
_MOST_INTERIM: Final = 5
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_MOST_TRAILERS: Final = 32

Count = Callable[[int], None]
"""Notes bytes; raises `Exhausted` when there were too many."""


class Exhausted(Exception):
    """What may be sent or received is used up; `str()` says what."""


class ConnectionEnd:
    """One side of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read from one, write to the other."""
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """Write, waiting while the other side does not read."""
        self.writer.write(data)
        await self.writer.drain()

    async def end(self) -> None:
        """Say that nothing more comes; the other direction stays open."""
        with suppress(OSError, RuntimeError):
            if self.writer.can_write_eof():
                self.writer.write_eof()

    async def aclose(self) -> None:
        """Let what was written go out, but not for long, and let go."""
        self.writer.close()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self.writer.wait_closed()
        except OSError:
            self.abort()

    def abort(self) -> None:
        """Let go at once."""
        self.writer.transport.abort()


class Relay:
    """Carries one connection; both directions share one limit of silence."""

    def __init__(
        self,
        program: ConnectionEnd,
        server: ConnectionEnd,
        *,
        up: Count,
        down: Count,
        idle_s: float,
    ) -> None:
        """Prepare; `up` and `down` count what passes."""
        self._program = program
        self._server = server
        self._up = up
        self._down = down
        self._idle_s = idle_s
        self._limit: asyncio.Timeout | None = None

    async def tunnel(self, hello: bytes, more: bytes, check: Callable[[ClientHello], None]) -> None:
        """Carry TLS whose first message was read already, until both sides are done.

        A server may ask for a second ClientHello, which has to pass the same check. What came
        behind the first one (`more`) waits until it is known to be something else.

        Raises:
            BadHello, Exhausted, OSError, TimeoutError: it was ended early.
        """
        async with self._bound_time():
            self._up(len(hello))
            await self._server.send(hello)
            first = await _read_some(self._server.reader, RETRY_BYTES)
            self._down(len(first))
            await self._program.send(first)
            if is_retry(first):
                second, more = await read_hello(self._program.reader, more, is_second=True)
                check(second)
            if more:
                self._up(len(more))
                await self._server.send(more)
            await self._relay_both(
                self._pump(self._program, self._server, self._up),
                self._pump(self._server, self._program, self._down),
            )

    async def exchange(self, request: ProxyRequest, host: str) -> None:
        """Carry one request and its answer.

        Raises:
            BadHead, Exhausted, OSError, TimeoutError: it was ended early.
        """
        async with self._bound_time():
            head = request.written(host)
            self._up(len(head))
            await self._server.send(head)
            if request.wants_continue and request.framing != "none":
                await self._program.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            body = asyncio.ensure_future(self._send_body(request))
            answer = asyncio.ensure_future(self._answer(request.method))
            try:
                await asyncio.wait([body, answer], return_when=asyncio.FIRST_COMPLETED)
                if body.done() and not isinstance(body.exception(), OSError | None):
                    await body
                # A server that reads no more may have answered before.
                await answer
            finally:
                await _end_all(body, answer)

    # --- inside -----------------------------------------------------------------------

    def _bound_time(self) -> asyncio.Timeout:
        self._limit = asyncio.timeout(self._idle_s)
        return self._limit

    def _note_move(self) -> None:
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + self._idle_s)

    async def _relay_both(self, *ways: Coroutine[None, None, None]) -> None:
        tasks = [asyncio.ensure_future(one) for one in ways]
        try:
            await asyncio.gather(*tasks)
        finally:
            await _end_all(*tasks)

    async def _pump(
        self, source: ConnectionEnd, target: ConnectionEnd, count: Count, most: int | None = None
    ) -> None:
        """Carry until the source ends, or so many bytes have passed."""
        left = most
        while left != 0 and (data := await source.reader.read(min(left or _CHUNK, _CHUNK))):
            left = None if left is None else left - len(data)
            count(len(data))
            self._note_move()
            await target.send(data)
        await target.end()

    async def _answer(self, method: str) -> None:
        for _ in range(_MOST_INTERIM):
            head = await self._server.reader.readuntil(b"\r\n\r\n")
            answer = parse_answer(head)
            if answer.status == 101:
                break
            if answer.status < 200:
                continue
            self._down(len(head))
            await self._program.send(answer.written)
            if method == "HEAD" or answer.status in (204, 304):
                await self._program.end()
            else:
                await self._pump(self._server, self._program, self._down, answer.length)
            return
        raise BadHead("the server's answer is none", 502)

    async def _send_body(self, request: ProxyRequest) -> None:
        """Carry exactly the body that the head announces; what comes after it goes nowhere."""
        reader = self._program.reader
        if request.framing == "length":
            await self._carry(request.length)
        while request.framing == "chunked":
            found = _SIZE.fullmatch(await reader.readuntil(b"\r\n"))
            if found is None:
                raise BadHead("a chunk is malformed")
            size = int(found[1], 16)
            if not size:
                await self._skip_trailers()
                await self._server.send(b"0\r\n\r\n")
                return
            await self._server.send(b"%x\r\n" % size)
            await self._carry(size)
            if await reader.readexactly(2) != b"\r\n":
                raise BadHead("a chunk is malformed")
            await self._server.send(b"\r\n")

    async def _carry(self, size: int) -> None:
        while size:
            data = await self._program.reader.read(min(size, _CHUNK))
            if not data:
                raise EOFError("the body ends early")
            size -= len(data)
            self._up(len(data))
            self._note_move()
            await self._server.send(data)

    async def _skip_trailers(self) -> None:
        for _ in range(_MOST_TRAILERS):
            if await self._program.reader.readuntil(b"\r\n") == b"\r\n":
                return
        raise BadHead("too many trailers")


async def read_hello(
    reader: asyncio.StreamReader, data: bytes, *, is_second: bool = False
) -> tuple[ClientHello, bytes]:
    """Read on until the ClientHello is whole; return it with everything that was read.

    Raises:
        BadHello: it is none.
    """
    while (found := read_client_hello(data, is_second=is_second)) is None:
        more = await reader.read(_CHUNK)
        if not more:
            raise BadHello("it ends before its first message does")
        data += more
    return found, data


async def _end_all(*tasks: asyncio.Future[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # whoever waited knows the first one


async def _read_some(reader: asyncio.StreamReader, count: int) -> bytes:
    try:
        return await reader.readexactly(count)
    except asyncio.IncompleteReadError as error:
        return error.partial


__all__ = ["ConnectionEnd", "Count", "Exhausted", "Relay", "read_hello"]
