"""What was sent to a client that lost the stream in its midst, for when it comes back (2025-11-25).

Each session keeps its own events, and few of them. Their ids are random: only the client that
was sent one knows it. The newer era has no such thing: there, a client comes again with the
sealed state.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import JSONRPCMessage

from holdfast.ids import make_random_token

_MOST_EVENTS: Final = 256
_MOST_BYTES: Final = 1_000_000
_RETRY_MS: Final = 500


class SessionEvents(EventStore):
    """The newest events of one session, up to a number and a size."""

    def __init__(self) -> None:
        """Nothing was sent yet."""
        self._events: OrderedDict[str, tuple[str, JSONRPCMessage | None, int]] = OrderedDict()
        self._size = 0

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Keep an event, and forget the oldest ones."""
        size = 0
        if message is not None:
            size = len(message.model_dump_json())
        id = make_random_token(12)
        self._events[id] = (stream_id, message, size)
        self._size += size
        while self._events and (len(self._events) > _MOST_EVENTS or self._size > _MOST_BYTES):
            _, (_, _, gone) = self._events.popitem(last=False)
            self._size -= gone
        return id

    async def replay_events_after(
        self, last_event_id: str, send_callback: EventCallback
    ) -> str | None:
        """Send again what followed an event on its stream; nothing if the event is not known."""
        if last_event_id not in self._events:
            return None
        stream = self._events[last_event_id][0]
        is_later = False
        for id, (of_stream, message, _) in list(self._events.items()):
            if is_later and of_stream == stream and message is not None:
                await send_callback(EventMessage(message, id))
            is_later = is_later or id == last_event_id
        return stream


class ReplayingManager(StreamableHTTPSessionManager):
    """The SDK's manager, with a store of events for each session rather than one for all.

    With one for all, streams that have the same number in two sessions would be mixed up.
    """

    def __init__(self, app: Any, **options: Any) -> None:  # noqa: ANN401 - the SDK's
        """Serve these, with events to come back for."""
        super().__init__(app, retry_interval=_RETRY_MS, **options)

    @property
    def event_store(self) -> EventStore:
        """Return the store of the session that is being made."""
        return SessionEvents()

    @event_store.setter
    def event_store(self, _: EventStore | None) -> None:
        """Ignore what the base class sets: there is one per session."""


__all__ = ["ReplayingManager", "SessionEvents"]
