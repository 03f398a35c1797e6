"""The shared feed: one reader of the journal per process, however many subscribers there are.

The reader keeps the newest events of every session that is followed, and wakes whoever follows
it. A subscriber holds nothing but its place: one that is slower than the reader, or comes late,
reads the store by itself until it has caught up. So no subscriber can hold up another one or the
runs, none takes memory while it is slow, and none misses an event or sees one twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from typing import Final

from holdfast.errors import StorageError
from holdfast.journal import Event, Journal

_PAGE: Final = 500
_KEPT: Final = 512
"""Events of one session, and of all together, that are kept for subscribers."""
_WAIT_S: Final = 30.0
_PAUSE_S: Final = 0.5


class _Topic:
    """The newest events of one session, or of all."""

    __slots__ = ("events", "followers", "known_from", "waiters")

    def __init__(self, known_from: int) -> None:
        self.events: deque[Event] = deque()
        self.known_from = known_from
        """All events of the topic after this `seq` that were read are in `events`."""
        self.followers = 0
        self.waiters: set[asyncio.Future[None]] = set()

    def add(self, event: Event) -> None:
        self.events.append(event)
        if len(self.events) > _KEPT:
            self.known_from = self.events.popleft().seq

    def after(self, seq: int) -> list[Event] | None:
        """Return what came after `seq`; `None` if some of it may be kept no more."""
        if seq < self.known_from:
            return None
        found: list[Event] = []
        for event in reversed(self.events):
            if event.seq <= seq:
                break
            found.append(event)
        found.reverse()
        return found

    def wake(self) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)
        self.waiters.clear()


class SharedFeed:
    """Hands stored events to subscribers, from one reader of the journal."""

    def __init__(self, journal: Journal) -> None:
        """Read this journal, as long as anybody subscribes."""
        self._journal = journal
        self._topics: dict[str, _Topic] = {}
        self._reader: asyncio.Task[None] | None = None
        self._read = 0
        """The `seq` up to which the reader has come."""
        self.pages_read = 0
        """How often the store was asked by the reader, for metrics."""

    @property
    def subscribers(self) -> int:
        """How many follow the feed now."""
        return sum(topic.followers for topic in self._topics.values())

    async def follow_session(
        self, session_id: str, *, after: int = 0
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of a session after a number, stored ones first, without end."""
        topic = await self._join(session_id)
        place, number = topic.known_from, after
        is_behind = True
        try:
            while True:
                if is_behind:
                    while page := await self._journal.read(session_id, after=number, limit=_PAGE):
                        for event in page:
                            number, place = event.session_seq, max(place, event.seq)
                            yield event
                found = topic.after(place)
                is_behind = found is None
                if found is None:
                    place = topic.known_from
                    continue
                for event in found:
                    place = event.seq
                    if event.session_seq > number:
                        number = event.session_seq
                        yield event
                if not found:
                    await self._wait(topic)
        finally:
            self._leave(session_id, topic)

    async def follow_all(self, *, after: int | None = None) -> AsyncGenerator[Event, None]:
        """Yield the events of all sessions after a `seq` (`None`: from now on), without end."""
        topic = await self._join("")
        place = await self._journal.read_last_seq() if after is None else after
        try:
            while True:
                found = topic.after(place)
                if found is None:
                    found = await self._journal.store.feed(after=place, limit=_PAGE)
                    # Whatever else is stored now, the reader comes by it later.
                    if not found:
                        place = max(place, topic.known_from)
                for event in found:
                    place = event.seq
                    yield event
                if not found:
                    await self._wait(topic)
        finally:
            self._leave("", topic)

    async def close(self) -> None:
        """End the reader."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    # --- inside -----------------------------------------------------------------------

    async def _join(self, session_id: str) -> _Topic:
        if self._reader is None or self._reader.done():
            now = await self._journal.read_last_seq()
            if self._reader is None or self._reader.done():
                self._read = now
                self._topics.clear()
                self._reader = asyncio.create_task(self._read_on(), name="shared-feed")
        topic = self._topics.get(session_id)
        if topic is None:
            topic = self._topics[session_id] = _Topic(self._read)
        topic.followers += 1
        return topic

    def _leave(self, session_id: str, topic: _Topic) -> None:
        topic.followers -= 1
        if topic.followers == 0 and self._topics.get(session_id) is topic:
            del self._topics[session_id]
        if not self._topics and self._reader is not None:
            self._reader.cancel()
            self._reader = None

    async def _wait(self, topic: _Topic) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        topic.waiters.add(waiter)
        try:
            await waiter
        finally:
            topic.waiters.discard(waiter)

    async def _read_on(self) -> None:
        store = self._journal.store
        while True:
            try:
                page = await store.feed(after=self._read, limit=_PAGE)
                self.pages_read += 1
                if not page:
                    await store.changed(self._read, _WAIT_S)
                    continue
            except StorageError:
                # A full disk or a long lock: what is stored meanwhile is read afterwards.
                await asyncio.sleep(_PAUSE_S)
                continue
            touched: set[str] = set()
            for event in page:
                self._read = event.seq
                for name in (event.session_id, ""):
                    topic = self._topics.get(name)
                    if topic is not None:
                        topic.add(event)
                        touched.add(name)
            for name in touched:
                topic = self._topics.get(name)
                if topic is not None:
                    topic.wake()


__all__ = ["SharedFeed"]
