"""What faces need of runs: one that is followed piece by piece, and frames sent as they come."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

from holdfast.agents import AgentResult
from holdfast.observability import Logger
from holdfast.operations import Caller, runs
from holdfast.runs import StreamItem
from holdfast.runtime import Runtime
from holdfast.server.http import Send, ServerRequest
from holdfast.server.redaction import hold_pieces
from holdfast.server.streams import HeardPieces

_log = Logger("holdfast.server.faces")
_HEAD_S: Final = 1.0
"""How long the head waits for the first frame, so that a refusal has a status of its own."""
_SEND_TIMEOUT_S: Final = 30.0
HEARTBEAT: Final = b": still here\n\n"


class FrameStream:
    """Sends frames to one client as they are made, until they end or the client goes.

    What goes wrong before the first frame is raised by `send_all`, so that it can be answered
    with a status of its own; frames tell what goes wrong later. When the client goes, or does not
    read for half a minute, the source of the frames is closed.
    """

    def __init__(
        self,
        frames: AsyncGenerator[bytes, None],
        *,
        heartbeat_s: float,
        heartbeat: bytes = HEARTBEAT,
        media_type: str = "text/event-stream; charset=utf-8",
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        """Send these frames."""
        self._frames = frames
        self._heartbeat_s = heartbeat_s
        self._heartbeat = heartbeat
        self._head = [
            (b"content-type", media_type.encode()),
            (b"x-accel-buffering", b"no"),
            *headers,
        ]
        self._stop = asyncio.Event()
        self._has_begun = False

    def drain(self) -> None:
        """End the stream as soon as possible."""
        self._stop.set()

    async def send_all(
        self, request: ServerRequest, send: Send, headers: list[tuple[bytes, bytes]]
    ) -> None:
        """Send the head, then every frame; returns when it is over."""
        coming = asyncio.ensure_future(anext(self._frames, None))
        gone = asyncio.ensure_future(self._wait_gone(request))
        try:
            await asyncio.wait({coming, gone}, timeout=_HEAD_S, return_when="FIRST_COMPLETED")
            if coming.done():
                coming.result()
            await send(
                {"type": "http.response.start", "status": 200, "headers": [*self._head, *headers]}
            )
            self._has_begun = True
            while True:
                await asyncio.wait(
                    {coming, gone}, timeout=self._heartbeat_s, return_when="FIRST_COMPLETED"
                )
                if coming.done():
                    frame = coming.result()
                    if frame is None:
                        break
                    coming = asyncio.ensure_future(anext(self._frames, None))
                elif gone.done():
                    break
                else:
                    frame = self._heartbeat
                async with asyncio.timeout(_SEND_TIMEOUT_S):
                    await send({"type": "http.response.body", "body": frame, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (TimeoutError, OSError):
            if not self._has_begun:
                raise
            # The client does not read, or has gone.
        except Exception:
            if not self._has_begun:
                raise
            # Broken off, so that nobody takes a part for the whole.
            _log.exception("a stream of a face failed")
        finally:
            for task in (coming, gone):
                task.cancel()
            await asyncio.gather(coming, gone, return_exceptions=True)
            await self._frames.aclose()

    async def _wait_gone(self, request: ServerRequest) -> None:
        watch = asyncio.ensure_future(request.wait_gone())
        stop = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({watch, stop}, return_when="FIRST_COMPLETED")
        finally:
            for task in (watch, stop):
                task.cancel()
            await asyncio.gather(watch, stop, return_exceptions=True)


async def start_run(
    runtime: Runtime,
    caller: Caller,
    *,
    cancels: bool = True,
    **asked: Any,  # noqa: ANN401 - the arguments of `runs.start`
) -> AsyncGenerator[StreamItem, None]:
    """Start a run, or go on with one, and return what yields what it does; last its result.

    Leaving that early cancels the run, unless told otherwise. A result may be parked or failed.

    Raises:
        HoldfastError: as `runs.start`; nothing was begun.
    """
    heard = HeardPieces()
    run = await runs.start.perform(runtime, caller, **asked, listener=heard.hear)
    return _follow(runtime, caller, run.id, heard, cancels=cancels)


async def _follow(
    runtime: Runtime, caller: Caller, run_id: str, heard: HeardPieces, *, cancels: bool
) -> AsyncGenerator[StreamItem, None]:
    has_rested = False
    items = hold_pieces(heard.items(runtime, caller, run_id))
    try:
        async for item in items:
            has_rested = isinstance(item, AgentResult)
            yield item
    finally:
        if cancels and not has_rested:
            # A task of its own: where this one is being cancelled, it can await nothing.
            reason = "the client went away"
            ending = asyncio.ensure_future(
                runs.cancel.perform(runtime, caller, run_id, reason=reason)
            )
            _ending.add(ending)
            ending.add_done_callback(_forget)
            with contextlib.suppress(Exception):
                await asyncio.shield(ending)
        await items.aclose()


_ending: set[asyncio.Future[Any]] = set()
"""Cancellations that are under way; they must not be collected before they are done."""


def _forget(ending: asyncio.Future[Any]) -> None:
    _ending.discard(ending)
    if not ending.cancelled():
        ending.exception()


__all__ = ["HEARTBEAT", "FrameStream", "start_run"]
