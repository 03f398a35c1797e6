"""Requests that are being answered: a caller who is let in once is not let in for ever.

A stream may be open for days. Meanwhile its key is revoked, its token or login ends, its tenant
is suspended. So callers of requests that last are looked at again, and one that is not let in
any more is cut off: it reads that the client has gone, and nothing more is sent. This lies below
everything that answers, so no stream of any protocol can forget it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, MutableMapping
from typing import Any, Final, TypedDict

import msgspec

from holdfast.errors import RateLimitError, Unauthenticated
from holdfast.observability import Logger
from holdfast.operations import Operation
from holdfast.server.http import Receive, Send, ServerRequest
from holdfast.server.identity import Authenticator, RequestHead

_log = Logger("holdfast.server")
_DISCONNECT: Final = {"type": "http.disconnect"}


class OpenRequest:
    """One request between the server and the application."""

    __slots__ = ("_is_head", "_pending", "_receive", "_send", "head", "is_cut", "shows_secret")

    def __init__(self, receive: Receive, send: Send, *, is_head: bool) -> None:
        """Pass on what it receives and sends; to HEAD, nothing behind the head."""
        self._is_head = is_head
        self._receive = receive
        self._send = send
        self._pending: set[asyncio.Future[MutableMapping[str, Any]]] = set()
        self.head: RequestHead | None = None
        """Of who was let in; `None` as long as no caller was."""
        self.is_cut = False
        self.shows_secret = False
        """Whether the answer is a secret that is shown once: it is not redacted."""

    async def receive(self) -> MutableMapping[str, Any]:
        """Return what the client sends next; that it has gone once it is cut off."""
        if self.is_cut:
            return dict(_DISCONNECT)
        coming = asyncio.ensure_future(self._receive())
        self._pending.add(coming)
        try:
            await asyncio.wait({coming})
            return dict(_DISCONNECT) if coming.cancelled() else coming.result()
        finally:
            coming.cancel()
            self._pending.discard(coming)

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send to the client; raises ConnectionAbortedError once it is cut off."""
        if self.is_cut:
            if self._is_head:
                return
            raise ConnectionAbortedError("the caller is not let in any more")
        await self._send(message)
        if self._is_head and message["type"] == "http.response.start":
            # Also of a stream, which would hold up its connection.
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            self.cut()

    def cut(self) -> None:
        """Let nothing more come and go."""
        self.is_cut = True
        for one in tuple(self._pending):
            one.cancel()


class OpenRequests:
    """All requests of an application that are being answered now."""

    def __init__(self, authenticator: Authenticator, *, recheck_s: float) -> None:
        """Ask this one again whether callers are still let in."""
        self._authenticator = authenticator
        self._recheck_s = recheck_s
        self._open: set[OpenRequest] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._open)

    @contextlib.contextmanager
    def hold(self, request: OpenRequest) -> Iterator[None]:
        """Look after a request until the block ends."""
        self._open.add(request)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look_again(), name="callers-again")
        try:
            yield
        finally:
            self._open.discard(request)

    async def close(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _look_again(self) -> None:
        """Authenticate callers of requests that last, until there is no request."""
        while self._open:
            await asyncio.sleep(self._recheck_s)
            # Many streams of one caller are one question.
            by_caller: dict[tuple[str, str], list[OpenRequest]] = {}
            heads: dict[tuple[str, str], RequestHead] = {}
            for one in self._open:
                if one.head is not None:
                    headers = one.head.headers
                    given = (headers.get("authorization", ""), headers.get("cookie", ""))
                    by_caller.setdefault(given, []).append(one)
                    heads[given] = one.head
            for given, head in heads.items():
                if not await self._is_let_in(head):
                    for one in by_caller[given]:
                        one.cut()

    async def _is_let_in(self, head: RequestHead) -> bool:
        try:
            await self._authenticator.authenticate(msgspec.structs.replace(head, is_again=True))
        except Unauthenticated:
            return False
        except RateLimitError:
            return True
        except Exception as error:  # noqa: BLE001 - a store that does not answer is no verdict
            _log.warning("a caller cannot be looked at again", error=str(error))
        return True


class Bounds(TypedDict):
    """When the work of a request is given up; see `HttpApplication.bound`."""

    goes_on: bool
    reader: ServerRequest | None


def find_bounds(operation: Operation[Any, Any], request: ServerRequest) -> Bounds:
    """Return when an operation is given up: what concerns a run goes on, and reading does not."""
    reads = operation.scope.endswith(":read")
    has_run = "run_id" in operation.request.__struct_fields__
    return Bounds(goes_on=has_run and not reads, reader=request if reads else None)


__all__ = ["Bounds", "OpenRequest", "OpenRequests", "find_bounds"]
