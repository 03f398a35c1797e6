"""The stream behind live pages: it says that something changed, and the page fetches it anew."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Final

from holdfast.errors import RequestInvalid
from holdfast.journal import Event
from holdfast.operations import OWNER, events, runs
from holdfast.server.dashboard.asks import Ask, Shown, Streamed
from holdfast.server.dashboard.routes import Routes
from holdfast.server.streams import OPENED, SSE, EventStream, StreamEvent, read_last_id

_TOPICS: Final[dict[str, tuple[str, ...]]] = {
    "runs": ("run.*", "approval.*", "tool.parked", "tool.answered"),
    "approvals": ("approval.*", "tool.parked", "tool.answered", "run.*", "tool.unknown_outcome"),
    "all": ("*",),
}


async def send_stream(ask: Ask, items: AsyncGenerator[StreamEvent, None]) -> Streamed:
    """Send events until the reader goes or the server stops."""
    assert ask.app is not None and ask.send is not None
    stream = EventStream(
        items,
        media_type=SSE,
        heartbeat_s=ask.app.options.heartbeat_s,
        request_id=str(ask.request.scope["holdfast.request_id"]),
    )
    ask.app.streams.add(stream)
    try:
        await stream.send_all(ask.request, ask.send, [])
    finally:
        ask.app.streams.discard(stream)
    return Streamed()


async def _follow(ask: Ask) -> Shown:
    """Say `change` for each event that the page is about; what was missed is said at once."""
    topic = ask.query.get("topic", "runs")
    if topic not in _TOPICS:
        raise RequestInvalid(detail=f"there is no topic {topic[:40]!r}")
    session_id = ask.query.get("session", "")
    if run_id := ask.query.get("run", ""):
        session_id = (await ask.perform(runs.get, run_id)).session_id
    last = read_last_id(ask.request)
    items = ask.stream(events.watch, after=last, patterns=_TOPICS[topic], session_id=session_id)
    if ask.caller is not OWNER:
        # Refused with a status of its own, before the stream says that it is open.
        await events.watch.admit(ask.runtime, ask.caller, (), {"session_id": session_id})
    return await send_stream(ask, _make_signals(items))


async def _make_signals(items: AsyncGenerator[Event, None]) -> AsyncGenerator[StreamEvent, None]:
    async with contextlib.aclosing(items):
        yield StreamEvent(OPENED, b"{}")
        async for event in items:
            yield StreamEvent("change", b'"%s"' % event.kind.encode(), str(event.seq))


def add_to(routes: Routes) -> None:
    """Put the stream at its address."""
    routes.add("GET", "live", _follow)


__all__ = ["add_to", "send_stream"]
