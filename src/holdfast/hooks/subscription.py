"""One subscriber of the event bus: its queue, its worker, its place in the journal.

A subscriber is live or catching up. Live, it is handed each fact as it appears. Catching up,
its worker reads the journal by itself, a page at a time, whenever its queue is empty, until it
stands where the bus stands. So a replay goes over into live events without a gap and without
a repetition, and a slow subscriber that must not lose anything simply falls back to reading.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Literal, TypeAlias

import msgspec

from holdfast.errors import StorageError, UsageError
from holdfast.hooks.calling import call_limited
from holdfast.hooks.names import BusEvent, find_matching_name, make_view, matches
from holdfast.journal import Event, Journal

Overflow: TypeAlias = Literal["drop-oldest", "drop-newest", "block", "reject"]
Handler: TypeAlias = Callable[..., Any]
"""Takes one event, or a tuple of events when `batch` is more than 1; plain or `async`."""

_PAGE = 500
_OVERRUN = 10
_PAUSE_S = 1.0

handling: ContextVar[Subscription | None] = ContextVar("handling", default=None)
"""The subscription whose handler is running in this task."""


def leave_handlers() -> contextvars.Context:
    """Return the context for a task that outlives the handler in which it may be started."""
    context = contextvars.copy_context()
    context.run(handling.set, None)
    return context


class QueueOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a subscriber is served.

    `overflow` says what happens when its queue is full. `drop-oldest` and `drop-newest` lose
    events and count them; `reject` refuses the new one, and a publisher gets an error;
    `block` loses no fact (the subscriber reads on from the journal at its own pace) and lets
    a publisher wait. `batch`: hand over up to so many waiting events at once.
    """

    size: int = 1000
    overflow: Overflow = "block"
    batch: int = 1
    timeout_s: float = 30.0

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        if self.size < 1 or self.batch < 1 or not 0 < self.timeout_s < float("inf"):
            raise UsageError(detail="A queue needs a size, a batch and a time limit above 0.")
        if self.overflow not in ("drop-oldest", "drop-newest", "block", "reject"):
            raise UsageError(detail=f"There is no overflow policy {self.overflow!r}.")


class SubscriptionStats(msgspec.Struct):
    """What a subscriber got, and what it did not get."""

    handled: int = 0
    errors: int = 0
    dropped: int = 0
    rejected: int = 0
    overrun: int = 0
    """Events taken beyond the bound, because their publisher could not wait."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a subscriber wants to hear of."""

    patterns: tuple[str, ...]
    session_id: str = ""
    run_id: str = ""
    correlation_id: str = ""

    def name_for(self, event: Event) -> str:
        """Return the name under which a fact is wanted, or nothing."""
        wants = self._wants(event.session_id, event.run_id, event.correlation_id)
        return find_matching_name(event, self.patterns) if wants else ""

    def takes(self, event: BusEvent) -> bool:
        """Say whether an ephemeral event is wanted."""
        wants = self._wants(event.session_id, event.run_id, event.correlation_id)
        return wants and matches(event.name, self.patterns)

    def _wants(self, session_id: str, run_id: str, correlation_id: str) -> bool:
        return (
            self.session_id in ("", session_id)
            and self.run_id in ("", run_id)
            # A run is the correlation of what happens in it, unless a caller gave another.
            and self.correlation_id in ("", correlation_id, run_id)
        )


class Subscription:
    """A handler and what waits for it; `close` ends it."""

    def __init__(
        self,
        name: str,
        wanted: Wanted,
        handler: Handler,
        options: QueueOptions,
        *,
        cursor: int,
        is_live: bool,
    ) -> None:
        """Made by the bus."""
        self.name = name
        self.wanted = wanted
        self.stats = SubscriptionStats()
        self.cursor = cursor
        """The last fact that was looked at for this subscriber."""
        self.position = cursor
        """The last fact that was handled, or was not wanted: keep it, and go on after it."""
        self.is_live = is_live
        self.is_closed = False
        self._handler = handler
        self._options = options
        self._queue: deque[BusEvent] = deque()
        self._wake = asyncio.Event()
        self._space = asyncio.Event()
        self._is_busy = False
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """How many events wait in the queue."""
        return len(self._queue)

    def is_settled(self, seq: int) -> bool:
        """Say whether everything up to a fact has been handled."""
        if self.is_closed:
            return True
        return self.cursor >= seq and not self._queue and not self._is_busy

    # --- offering ---------------------------------------------------------------------

    def offer_fact(self, event: Event) -> None:
        """Take a fact from the bus, if it is wanted; never waits."""
        if not self.is_live or event.seq <= self.cursor or self.is_closed:
            return
        name = self.wanted.name_for(event)
        if name:
            if len(self._queue) >= self._options.size and self._options.overflow == "block":
                # From here on the worker reads from the journal, where nothing is lost.
                self.is_live = False
                return
            self._put(make_view(event, name), is_inside=False)
        self.cursor = event.seq
        if not self._queue and not self._is_busy:
            self.position = event.seq

    def offer(self, event: BusEvent) -> bool:
        """Take an ephemeral event now; `False` if it was refused."""
        return self._put(event, is_inside=False)

    async def offer_or_wait(self, event: BusEvent) -> bool:
        """Take an ephemeral event, waiting for space if that is the policy and no caller hangs.

        A handler that publishes never waits: its own queue, or that of a handler that waits
        for it, might be the full one.
        """
        while (
            self._options.overflow == "block"
            and len(self._queue) >= self._options.size
            and handling.get() is None
            and not self.is_closed
        ):
            self._space.clear()
            await self._space.wait()
        return self._put(event, is_inside=handling.get() is not None)

    def _put(self, event: BusEvent, *, is_inside: bool) -> bool:
        if self.is_closed:
            return True
        limit = self._options.size
        if len(self._queue) >= limit:
            policy = self._options.overflow
            if policy == "drop-oldest":
                self._queue.popleft()
                self.stats.dropped += 1
            elif policy == "block" and is_inside and len(self._queue) < limit * _OVERRUN:
                self.stats.overrun += 1
            elif policy == "reject" or (policy == "block" and is_inside):
                self.stats.rejected += 1
                return False
            else:
                self.stats.dropped += 1
                return True
        self._queue.append(event)
        self._wake.set()
        return True

    # --- handling ---------------------------------------------------------------------

    def start(
        self,
        journal: Journal,
        bus_cursor: Callable[[], int],
        on_error: Callable[[Subscription, BusEvent, BaseException], Awaitable[None]],
        on_progress: Callable[[], None],
    ) -> None:
        """Begin to handle events."""
        self._task = asyncio.create_task(
            self._work(journal, bus_cursor, on_error, on_progress),
            name=f"bus:{self.name}",
            context=leave_handlers(),
        )

    async def close(self) -> None:
        """End the subscription; what waits in its queue is left unhandled."""
        self.is_closed = True
        self._wake.set()
        self._space.set()
        task = self._task
        if task is not None and task is not asyncio.current_task() and handling.get() is not self:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _work(
        self,
        journal: Journal,
        bus_cursor: Callable[[], int],
        on_error: Callable[[Subscription, BusEvent, BaseException], Awaitable[None]],
        on_progress: Callable[[], None],
    ) -> None:
        while not self.is_closed:
            if self._queue:
                await self._handle(on_error)
                # A handler that never waits, and feeds itself, must not starve everybody else.
                await asyncio.sleep(0)
            elif not self.is_live:
                await self._catch_up(journal, bus_cursor)
            else:
                on_progress()
                self._wake.clear()
                await self._wake.wait()

    async def _catch_up(self, journal: Journal, bus_cursor: Callable[[], int]) -> None:
        """Read the next page of the journal, and go live when nothing is left to read."""
        try:
            page = await journal.store.feed(after=self.cursor, limit=min(_PAGE, self._options.size))
        except StorageError:
            self.stats.errors += 1
            await asyncio.sleep(_PAUSE_S)
            return
        for event in page:
            self.cursor = event.seq
            name = self.wanted.name_for(event)
            if name:
                self._queue.append(make_view(event, name))
            elif not self._queue:
                self.position = event.seq
        # Nothing may be awaited between this look and the change, or a fact could slip by.
        if self.cursor >= bus_cursor():
            self.is_live = True

    async def _handle(
        self, on_error: Callable[[Subscription, BusEvent, BaseException], Awaitable[None]]
    ) -> None:
        count = min(self._options.batch, len(self._queue))
        batch = tuple(self._queue.popleft() for _ in range(count))
        self._space.set()
        given: Any = batch if self._options.batch > 1 else batch[0]
        self._is_busy = True
        token = handling.set(self)
        try:
            await call_limited(self._handler, given, timeout_s=self._options.timeout_s)
            self.stats.handled += count
        except Exception as error:  # noqa: BLE001 - the code of others must not end the bus
            self.stats.errors += 1
            with contextlib.suppress(Exception):
                await on_error(self, batch[0], error)
        finally:
            handling.reset(token)
            self._is_busy = False
        facts = [event.seq for event in batch if event.seq]
        self.position = facts[-1] if facts else self.position
        if not self._queue and self.is_live:
            self.position = max(self.position, self.cursor)
