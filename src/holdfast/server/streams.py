"""Streams over HTTP: Server-Sent Events whose id is the journal's sequence, or NDJSON lines.

A client that comes back with the last id it saw gets exactly what it missed, from the journal.
What is live only (pieces of an answer) has no id. A reader that does not read is cut off, and
comes back when it can: it never holds up a run.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final, Protocol

import msgspec

from holdfast.agents import AgentResult
from holdfast.errors import RequestInvalid
from holdfast.hooks import BusEvent
from holdfast.journal import Event, check_patterns
from holdfast.operations import Caller, runs
from holdfast.orchestration.delegation import FamilyEvent
from holdfast.runtime import Runtime
from holdfast.server.http import Send, ServerRequest
from holdfast.server.problems import make_problem
from holdfast.server.redaction import hold_pieces

SSE: Final = "text/event-stream"
NDJSON: Final = "application/x-ndjson"
_MOST_WAITING: Final = 256
_SEND_TIMEOUT_S: Final = 30.0
_HEAD_S: Final = 1.0
"""How long the head waits for the first event, so that a refusal has a status of its own."""
_RETRY_MS: Final = 1000
_GATHER_S: Final = 0.005
"""Events that come within this time are sent together: a frame for each costs more than it says."""
OPENED: Final = "stream.opened"
ENDED: Final = "stream.ended"
GOODBYE: Final = "stream.goodbye"
PROBLEM_EVENT: Final = "problem"


class StreamEvent(msgspec.Struct, frozen=True, gc=False):
    """One event of a stream, as bytes that are ready to be sent."""

    name: str
    data: bytes
    id: str = ""


class EventView(msgspec.Struct, frozen=True, kw_only=True):
    """A stored event as it is sent: `data` is what it says, `seq` its place in the journal."""

    seq: int
    session_id: str
    session_seq: int
    run_id: str
    agent_path: str
    kind: str
    version: int
    time: float
    correlation_id: str
    causation_id: str
    epoch: int
    payload_digest: str
    hash: str
    is_redacted: bool
    data: msgspec.Raw


class BusEventView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event of the bus as it is sent; `seq` is 0 where it is stored nowhere."""

    name: str
    time: float
    session_id: str = ""
    run_id: str = ""
    agent_path: str = ""
    correlation_id: str = ""
    seq: int = 0
    event: EventView | None = None
    data: msgspec.Raw


class FamilyEventView(msgspec.Struct, frozen=True, kw_only=True):
    """An event with the agents in whose run it happened."""

    path: str
    depth: int
    event: EventView


class _Line(msgspec.Struct, omit_defaults=True):
    event: str
    data: msgspec.Raw
    id: str = ""


_encode = msgspec.json.Encoder().encode


def view_event(event: Event) -> EventView:
    """Return a stored event as it is sent."""
    return EventView(
        seq=event.seq,
        session_id=event.session_id,
        session_seq=event.session_seq,
        run_id=event.run_id,
        agent_path=event.agent_path,
        kind=event.kind,
        version=event.version,
        time=event.time,
        correlation_id=event.correlation_id,
        causation_id=event.causation_id,
        epoch=event.epoch,
        payload_digest=event.payload_digest,
        hash=event.hash,
        is_redacted=event.is_redacted,
        data=msgspec.Raw(event.payload),
    )


def view_item(item: object) -> object:
    """Return an item as it is sent: payloads of events as the JSON that they are."""
    if isinstance(item, Event):
        return view_event(item)
    if isinstance(item, FamilyEvent):
        return FamilyEventView(path=item.path, depth=item.depth, event=view_event(item.event))
    if isinstance(item, BusEvent):
        return BusEventView(
            name=item.name,
            time=item.time,
            session_id=item.session_id,
            run_id=item.run_id,
            agent_path=item.agent_path,
            correlation_id=item.correlation_id,
            seq=item.seq,
            event=view_event(item.fact) if item.fact is not None else None,
            data=msgspec.Raw(item.content if item.fact is None else item.fact.payload),
        )
    return item


def to_stream_event(item: object, *, of_session: bool) -> StreamEvent:
    """Return an item of a stream as an event; stored ones have their sequence as id."""
    name, id = _tag_of(item), ""
    if isinstance(item, Event):
        name, id = item.kind, str(item.session_seq if of_session else item.seq)
    elif isinstance(item, BusEvent):
        name, id = item.name, str(item.seq) if item.seq else ""
    elif isinstance(item, FamilyEvent):
        name, id = item.event.kind, str(item.event.seq)
    return StreamEvent(name, _encode(view_item(item)), id)


def _tag_of(item: object) -> str:
    tag = getattr(type(item), "__struct_config__", None)
    return str(tag.tag) if tag is not None and tag.tag else type(item).__name__.lower()


async def merge_run(
    runtime: Runtime,
    caller: Caller,
    run_id: str,
    *,
    after: int = 0,
    pieces: AsyncGenerator[Any, None] | None = None,
) -> AsyncGenerator[StreamEvent, None]:
    """Yield the stored events of a run after a number, its pieces while they come, its result.

    The result is the last one, behind every event that was stored. Pieces are those of the
    present message and all that follow, unless others are given.
    """
    queue: asyncio.Queue[StreamEvent | BaseException | None] = asyncio.Queue(_MOST_WAITING)
    result: list[StreamEvent] = []

    async def take(items: AsyncGenerator[Any, None]) -> None:
        try:
            async with contextlib.aclosing(items):
                async for item in items:
                    event = to_stream_event(item, of_session=True)
                    if isinstance(item, AgentResult):
                        result.append(event)
                    else:
                        await queue.put(event)
            await queue.put(None)
        except Exception as error:  # noqa: BLE001 - raised where the stream is read
            await queue.put(error)

    run = await runs.get.perform(runtime, caller, run_id)
    opened = {"run_id": run.id, "session_id": run.session_id, "after": after}
    yield StreamEvent(OPENED, _encode(opened))
    if pieces is None:
        pieces = runs.follow.perform(runtime, caller, run_id, raise_on_failure=False)
    stored = runs.events.perform(runtime, caller, run_id, after=after)
    tasks = [asyncio.create_task(take(source)) for source in (stored, hold_pieces(pieces))]
    try:
        left = len(tasks)
        while left:
            event = await queue.get()
            if isinstance(event, BaseException):
                raise event
            if event is None:
                left -= 1
            else:
                yield event
        for last in result:
            yield last
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class HeardPieces:
    """The pieces of a run that a request has started, from the first one on."""

    def __init__(self) -> None:
        """Nothing was heard yet."""
        self._heard: asyncio.Queue[Any] = asyncio.Queue()
        self._is_open = True

    def hear(self, item: object) -> None:
        """Take a piece, as long as anybody wants them."""
        if self._is_open:
            self._heard.put_nowait(item)

    async def items(
        self, runtime: Runtime, caller: Caller, run_id: str
    ) -> AsyncGenerator[Any, None]:
        """Yield the pieces, and at the very end the result."""
        waits = runs.result.perform(runtime, caller, run_id, raise_on_failure=False)
        result = asyncio.ensure_future(waits)
        # Behind the last piece: whoever made it has ended by then.
        result.add_done_callback(lambda _: self._heard.put_nowait(None))
        try:
            while (item := await self._heard.get()) is not None:
                yield item
            yield await result
        finally:
            self._is_open = False
            result.cancel()
            await asyncio.gather(result, return_exceptions=True)


async def to_events(
    items: AsyncGenerator[Any, None], *, of_session: bool, is_endless: bool
) -> AsyncGenerator[StreamEvent, None]:
    """Yield the items of an operation as events; one without end says first that it is open."""
    async with contextlib.aclosing(items):
        if is_endless:
            yield StreamEvent(OPENED, b"{}")
        async for item in items:
            yield to_stream_event(item, of_session=of_session)


async def only_kinds(
    events: AsyncGenerator[StreamEvent, None], kinds: tuple[str, ...]
) -> AsyncGenerator[StreamEvent, None]:
    """Yield the events of these kinds (`tool.*` means all that begin so), and the result."""
    async with contextlib.aclosing(events):
        async for event in events:
            if event.name in (OPENED, "result") or any(
                event.name == kind or (kind.endswith("*") and event.name.startswith(kind[:-1]))
                for kind in kinds
            ):
                yield event


def read_kinds(pairs: list[tuple[str, str]]) -> tuple[str, ...]:
    """Return the kinds that `?kinds=` wants; none means all.

    Raises:
        RequestInvalid: one of them means nothing.
    """
    given = tuple(
        one for name, value in pairs if name == "kinds" for one in value.split(",") if one
    )
    if not given:
        return ()
    try:
        return check_patterns(given)
    except Exception as error:
        raise RequestInvalid(detail=str(error)) from error


def read_last_id(request: ServerRequest) -> int | None:
    """Return the id of the last event that a client saw, `None` if it comes for the first time.

    Raises:
        RequestInvalid: it is none that we gave.
    """
    given = request.headers.get("last-event-id", "").strip()
    if not given:
        return None
    if not (given.isascii() and given.isdigit() and len(given) <= 18):
        raise RequestInvalid(detail="Last-Event-ID is no number of an event")
    return int(given)


class SentStream(Protocol):
    """A stream that is sent to one client."""

    def drain(self) -> None:
        """End as soon as possible: the server stops."""
        ...

    async def send_all(
        self, request: ServerRequest, send: Send, headers: list[tuple[bytes, bytes]]
    ) -> None:
        """Send the head, then all of it; returns when it is over."""
        ...


class EventStream:
    """Sends one stream to one client, until it ends, the client goes, or the server stops."""

    def __init__(
        self,
        events: AsyncGenerator[StreamEvent, None],
        *,
        media_type: str,
        heartbeat_s: float,
        request_id: str,
    ) -> None:
        """Send these events."""
        self._events = events
        self._is_lines = media_type == NDJSON
        self.media_type = media_type
        self._heartbeat_s = heartbeat_s
        self._request_id = request_id
        self._waiting: list[StreamEvent] = []
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._has_ended = self._is_gone = self._is_draining = False
        self._has_first = False

    def drain(self) -> None:
        """Say goodbye as soon as possible."""
        self._is_draining = True
        self._wake.set()

    async def send_all(
        self, request: ServerRequest, send: Send, headers: list[tuple[bytes, bytes]]
    ) -> None:
        """Send the head, then events as they come; returns when it is over.

        What goes wrong before the first event is raised, so that it can be answered properly. A
        stream that has nothing to say for a while begins nevertheless, and gets its heartbeats.
        """
        first = asyncio.ensure_future(anext(self._events, None))
        try:
            await asyncio.wait({first}, timeout=_HEAD_S)
            if first.done():
                self._take_first(first.result())
        except BaseException:
            await self._leave(first)
            raise
        content = b"text/event-stream; charset=utf-8" if not self._is_lines else NDJSON.encode()
        head = [*headers, (b"content-type", content), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        tasks = [asyncio.create_task(self._watch(request))]
        if not self._has_ended:
            tasks.append(asyncio.create_task(self._pump(first)))
        try:
            if not self._is_lines:
                await self._send(send, f"retry: {_RETRY_MS}\n\n".encode())
            await self._send_waiting(send)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._leave(first)
            with contextlib.suppress(Exception):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _take_first(self, event: StreamEvent | None) -> None:
        self._has_first = True
        if event is None:
            self._has_ended = True
        else:
            self._waiting.append(event)
            self._wake.set()

    async def _leave(self, first: asyncio.Future[StreamEvent | None]) -> None:
        """End the source, which may still be asked for its first event."""
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await self._events.aclose()

    async def _send_waiting(self, send: Send) -> None:
        while not self._is_gone:
            if self._waiting:
                if not self._has_ended and len(self._waiting) < _MOST_WAITING:
                    await asyncio.sleep(_GATHER_S)
                events, self._waiting = self._waiting, []
                self._room.set()
                if not await self._send(send, b"".join(map(self._format, events))):
                    return
                continue
            if self._has_ended or self._is_draining:
                name = ENDED if self._has_ended else GOODBYE
                data = _encode({"retry_ms": _RETRY_MS} if self._is_draining else {})
                await self._send(send, self._format(StreamEvent(name, data)))
                return
            self._wake.clear()
            try:
                async with asyncio.timeout(self._heartbeat_s):
                    await self._wake.wait()
            except TimeoutError:
                if not await self._send(send, b"\n" if self._is_lines else b": still here\n\n"):
                    return

    async def _send(self, send: Send, data: bytes) -> bool:
        """Send bytes; a client that does not take them in time is given up."""
        try:
            async with asyncio.timeout(_SEND_TIMEOUT_S):
                await send({"type": "http.response.body", "body": data, "more_body": True})
        except (TimeoutError, OSError):
            return False
        return True

    def _format(self, event: StreamEvent) -> bytes:
        data = event.data
        if b"\n" in data or b"\r" in data:
            data = _encode(msgspec.json.decode(data))
        if self._is_lines:
            return _encode(_Line(event.name, msgspec.Raw(data), event.id)) + b"\n"
        head = f"id: {event.id}\nevent: {event.name}\n" if event.id else f"event: {event.name}\n"
        return b"%sdata: %s\n\n" % (head.encode(), data)

    async def _pump(self, first: asyncio.Future[StreamEvent | None]) -> None:
        try:
            # It may have come while the head was sent.
            if not self._has_first:
                self._take_first(await first)
            async for event in self._events:
                self._waiting.append(event)
                self._wake.set()
                while len(self._waiting) >= _MOST_WAITING:
                    self._room.clear()
                    await self._room.wait()
        except Exception as error:  # noqa: BLE001 - told to the client, in the stream
            problem, _ = make_problem(error, self._request_id)
            self._waiting.append(StreamEvent(PROBLEM_EVENT, _encode(problem)))
        self._has_ended = True
        self._wake.set()

    async def _watch(self, request: ServerRequest) -> None:
        """Notice when the client goes."""
        while True:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                self._is_gone = True
                self._wake.set()
                return


async def send_download(
    chunks: AsyncIterator[bytes],
    request: ServerRequest,
    send: Send,
    *,
    headers: list[tuple[bytes, bytes]],
    media_type: str,
) -> None:
    """Send bytes as they are made, in bounded memory.

    What goes wrong after the first byte breaks the connection, so that nobody takes a part for
    the whole.
    """
    first = b""
    with contextlib.suppress(StopAsyncIteration):
        first = await anext(chunks)
    head = [*headers, (b"content-type", media_type.encode())]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": first, "more_body": True})
    async for chunk in chunks:
        async with asyncio.timeout(_SEND_TIMEOUT_S):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


__all__ = [
    "ENDED",
    "GOODBYE",
    "NDJSON",
    "OPENED",
    "PROBLEM_EVENT",
    "SSE",
    "BusEventView",
    "EventStream",
    "EventView",
    "FamilyEventView",
    "HeardPieces",
    "SentStream",
    "StreamEvent",
    "merge_run",
    "only_kinds",
    "read_kinds",
    "read_last_id",
    "send_download",
    "to_events",
    "view_item",
]
