"""A connection of aiohttp's pool with requests and answers on it, one after the other.

aiohttp opens the connection (names, TLS, proxies) and reads heads. What its `ClientSession`
does for each request (headers merged, cookies, redirects, timers, a task that writes, request
and response objects) and its pool for each use costs more than both together and is not
wanted here. See `docs/decisions/0011-posts-on-the-connection-pool.md`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection

from holdfast.providers.wire.framing import Body, HeadReader
from holdfast.providers.wire.watchdog import Watchdog

KEEPALIVE_S = 60.0
"""How long a connection waits for its next request."""

_OK = 200
_MOST_HELD = 256 * 1024
"""When so much of an answer waits to be read, no more is taken from the connection."""


class HttpConnection(asyncio.Protocol):
    """A connection: a request is sent, its answer read, then it waits for the next one.

    It takes the place of the pool's own protocol, which hears only when the connection is
    lost. What arrives waits here until it is read; a reader that is slow slows the sender.
    What arrives unasked closes the connection, and so does a minute without a request.
    """

    __slots__ = (
        "_body",
        "_connection",
        "_head",
        "_idle",
        "_is_asked",
        "_is_last",
        "_is_lost",
        "_keeper",
        "_loop",
        "_pieces",
        "_size",
        "_transport",
        "_waiter",
        "error",
        "head",
        "headers",
        "is_closing",
        "is_received",
        "is_reused",
        "key",
        "status",
        "watchdog",
    )

    headers: Mapping[str, str]

    def __init__(
        self,
        connection: Connection,
        keeper: ResponseHandler,
        idle: list[HttpConnection],
        head: bytes,
    ) -> None:
        """Take over a connection that nobody else uses; between requests it waits in `idle`.

        Raises:
            aiohttp.ClientError: it is lost already.
        """
        if keeper.transport is None:
            raise aiohttp.ServerDisconnectedError
        self._connection = connection
        self._keeper = keeper
        self._idle = idle
        self._loop = asyncio.get_running_loop()
        self._transport = keeper.transport
        self._head = HeadReader(keeper, self._loop)
        self._body: Body | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._is_asked = False
        self._is_lost = False
        self._is_last = False
        self.error: Exception | None = None
        """What went wrong first; nothing more comes then."""
        self.head = head
        """Everything of a request that goes before the length of its body."""
        self.is_closing = self._transport.is_closing
        """Says whether nothing can be sent any more."""
        self.is_received = False
        """The answer has arrived to its end, though perhaps it is not all taken."""
        self.is_reused = False
        """It has served before, so it may be dead without our knowing."""
        self.key = ""
        """The one in `head`, in clear."""
        self.status = 0
        """That of the answer, as soon as its head is here."""
        self.watchdog = Watchdog(self)
        self._transport.set_protocol(self)

    def post(self, body: bytes) -> asyncio.Future[None]:
        """Send a request; wait for what this returns, then there is a `status` or an `error`."""
        self._is_asked = True
        self._transport.write(b"%b%d\r\n\r\n%b" % (self.head, len(body), body))
        # What `create_future` of the loop returns, without asking it.
        waiter: asyncio.Future[None] = asyncio.Future(loop=self._loop)
        if self.error is not None:
            waiter.set_result(None)
        self._waiter = waiter
        return waiter

    def take(self) -> bytes:
        """Return what is here of the body; empty if there is nothing now."""
        pieces = self._pieces
        if not pieces:
            return b""
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        if self._size > _MOST_HELD:
            self._resume()
        self._size = 0
        return data

    async def more(self) -> None:
        """Wait until there is something to take, or the end of the body.

        Raises:
            aiohttp.ClientError: the connection broke, or was cut.
        """
        while not self._pieces:
            if self.error is not None:
                raise self.error
            if self.is_received:
                break
            self._waiter = asyncio.Future(loop=self._loop)
            await self._waiter

    def release(self) -> None:
        """Keep the connection for the next request if the answer is at its end, or cut it."""
        body = self._body
        is_over = body is not None and body.ended and not body.surplus
        if not is_over or self._is_last or self._is_lost or self.error is not None:
            return self.cut()
        # An answer may come before its request was read; the rest of that may not go on.
        if self._transport.get_write_buffer_size():
            return self.cut()
        if self._pieces:
            self.take()
        self._body = None
        self.status = 0
        self.is_received = False
        self._is_asked = False
        self.is_reused = True
        self.watchdog.begin(("a request", KEEPALIVE_S, self._loop.time() + KEEPALIVE_S))
        self._idle.append(self)

    def cut(self) -> None:
        """Close the connection; whoever waits for more is woken. A second time does nothing."""
        self.watchdog.stop()
        self._fail(aiohttp.ClientConnectionError("Connection closed"))
        self._connection.close()

    # --- what the transport calls ------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take what the connection says, and wake the reader if that is worth it."""
        if self.error is not None:
            return
        if not self._is_asked:
            return self.cut()
        if type(data) is not bytes:
            data = bytes(data)  # Some loops hand out their buffer.
        before = self._body
        try:
            if before is None or before.ended:
                piece = self._begin(data)
            else:
                piece = before.feed(data)
        except aiohttp.ClientPayloadError as error:
            return self._fail(error)
        if self._body is None:
            return
        self.is_received = self._body.ended
        if piece:
            self._pieces.append(piece)
            self._size += len(piece)
            if self._size > _MOST_HELD:
                self._transport.pause_reading()
        elif before is not None and not self.is_received:
            return
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take the end of the connection, and tell the pool."""
        self._is_lost = True
        if self in self._idle:
            self._idle.remove(self)
        try:
            self._end(exc)
        except aiohttp.ClientError as error:
            self._fail(error)
        self._wake()
        self._keeper.connection_lost(exc)
        self._connection.close()
        if not self._is_asked:
            self.watchdog.stop()

    def _begin(self, data: bytes) -> bytes:
        """Read the head; return what there is of the body. Behind a body nothing may come."""
        if self._body is None:
            found = self._head.feed(data)
            if found is None:
                return b""
            message, self._body, data = found
            self._is_last = message.should_close or message.code < _OK
            self.headers, self.status = message.headers, message.code
        if self._body.ended:
            self._body.surplus = self._body.surplus or bool(data)
            return b""
        return self._body.feed(data) if data else b""

    def _end(self, exc: Exception | None) -> None:
        if self._body is None:
            if isinstance(exc, OSError):
                raise aiohttp.ClientOSError(*exc.args)
            raise aiohttp.ServerDisconnectedError
        if not self._body.ended:
            if exc is not None:
                raise aiohttp.ClientPayloadError("the connection broke")
            self._body.feed_end()
            self.is_received = True

    def _fail(self, error: Exception) -> None:
        """Keep what went wrong first."""
        if self.error is None:
            self.error = error
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _resume(self) -> None:
        if not self._is_lost:
            self._transport.resume_reading()
