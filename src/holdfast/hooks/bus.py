"""EventBus: the facts of the journal and ephemeral events, for every subscriber.

Facts reach subscribers after they are stored, here or by another process: the journal is the
outbox, so nothing is told that did not happen. Publishing and subscribing never wait for a
handler, so both work inside one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Protocol

import msgspec

from holdfast.canonical import JsonObject
from holdfast.clock import SYSTEM, Clock
from holdfast.errors import EventRejected, StorageError, UsageError
from holdfast.hooks.names import BusEvent, is_name_of_facts, list_names, make_view, matches
from holdfast.hooks.points import EventAfterEmit, EventBeforeEmit, EventHandlerError
from holdfast.hooks.registry import Hooks
from holdfast.hooks.subscription import (
    Handler,
    QueueOptions,
    Subscription,
    Wanted,
    handling,
    leave_handlers,
)
from holdfast.hooks.verdicts import Cancel
from holdfast.journal import Journal, check_patterns

_PAGE = 500
_WAIT_S = 30.0
_PAUSE_S = 1.0
_OPTIONS = QueueOptions()
_SINK_OPTIONS = QueueOptions(batch=100)


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """What an ephemeral event belongs to."""

    session_id: str = ""
    run_id: str = ""
    agent_path: str = ""
    correlation_id: str = ""


NOWHERE = Where()


class Emitter(Protocol):
    """Who hears the runtime's ephemeral events; `EventBus` is one, `Silence` the other."""

    def wants(self, *names: str) -> bool:
        """Say whether a subscriber listens to one of these names."""
        ...

    def emit(self, name: str, data: JsonObject, *, where: Where) -> None:
        """Hand an event to each subscriber, at once."""
        ...


class Silence:
    """There is no subscriber."""

    def wants(self, *names: str) -> bool:
        """Say no."""
        return False

    def emit(self, name: str, data: JsonObject, *, where: Where) -> None:
        """Tell no subscriber."""


class EventSink(Protocol):
    """Somewhere else to write events: a log, a queue, another system."""

    async def write(self, events: Sequence[BusEvent]) -> None:
        """Take a batch of events, in order."""
        ...

    async def close(self) -> None:
        """Finish what was taken."""
        ...


class EventBus:
    """Hands events to subscribers, each with a queue and a worker of its own.

    Promises: facts come in the order of the journal, each at most once per subscription,
    without gaps unless the subscriber's overflow policy says so, and then they are counted.
    Ephemeral events come in the order of publishing. A handler that fails is isolated.
    """

    def __init__(
        self, journal: Journal, *, hooks: Hooks | None = None, clock: Clock = SYSTEM
    ) -> None:
        """Feed from this journal; nothing runs until something subscribes."""
        self._journal = journal
        self._hooks = hooks if hooks is not None else Hooks(clock=clock)
        self._clock = clock
        self.subscriptions: tuple[Subscription, ...] = ()
        """Who listens now."""
        self._started: BusEvent | None = None
        self._sinks: list[EventSink] = []
        self._cursor = 0
        self._pump: asyncio.Task[None] | None = None
        self._progress: asyncio.Event | None = None
        self.handler_errors = 0
        """How many times a handler raised or took too long."""

    # --- subscribing ------------------------------------------------------------------

    async def subscribe(
        self,
        patterns: str | Sequence[str],
        handler: Handler,
        *,
        after: int | None = None,
        session_id: str = "",
        run_id: str = "",
        correlation_id: str = "",
        options: QueueOptions = _OPTIONS,
        name: str = "",
    ) -> Subscription:
        """Call a handler for every event that a pattern means: exact, `*` or `prefix*`.

        With `after`, first all facts after that `seq` (0: from the beginning), then live
        ones, without a gap or a repetition; without it, from now on. Equal subscriptions
        are independent: each gets every event.

        Raises:
            UsageError: a pattern means nothing, or the handler cannot be called.
        """
        given = check_patterns(patterns)
        if not callable(handler):
            raise UsageError(detail=f"A handler is a function, not {handler!r:.80}.")
        now = await self._journal.read_last_seq()
        if self._pump is None or self._pump.done():
            self._cursor = max(self._cursor, now)
        start = now if after is None else after
        subscription = Subscription(
            name or getattr(handler, "__qualname__", type(handler).__name__),
            Wanted(
                patterns=given, session_id=session_id, run_id=run_id, correlation_id=correlation_id
            ),
            handler,
            options,
            cursor=start,
            is_live=start >= self._cursor,
        )
        self.subscriptions += (subscription,)
        subscription.start(
            self._journal, lambda: self._cursor, self._on_handler_error, self._note_progress
        )
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(
                self._feed(), name="event-bus", context=leave_handlers()
            )
        # The system has begun before anything could subscribe: it is told to each that asks, but
        # not to those that ask for everything, which means what happens from now on.
        if self._started is not None and self._started.name in given:
            subscription.offer(self._started)
        return subscription

    def tell_started(self) -> None:
        """Let subscribers know that the system has begun, also those that subscribe later."""
        self._started = self._make_event("system.started", {}, NOWHERE)
        for each in self.subscriptions:
            if each.wanted.takes(self._started):
                each.offer(self._started)

    async def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription; safe to repeat, also inside its own handler."""
        self.subscriptions = tuple(one for one in self.subscriptions if one is not subscription)
        await subscription.close()

    async def events(
        self,
        patterns: str | Sequence[str] = "*",
        *,
        after: int | None = None,
        session_id: str = "",
        run_id: str = "",
        correlation_id: str = "",
        options: QueueOptions = _OPTIONS,
    ) -> AsyncGenerator[BusEvent, None]:
        """Yield events, as an alternative to a handler; leaving the loop unsubscribes."""
        handed: asyncio.Queue[BusEvent] = asyncio.Queue(maxsize=1)
        subscription = await self.subscribe(
            patterns,
            handed.put,
            after=after,
            session_id=session_id,
            run_id=run_id,
            correlation_id=correlation_id,
            # The caller that iterates may take as long as they like; the queue's policy still
            # holds.
            options=msgspec.structs.replace(options, batch=1, timeout_s=10**9),
            name="events",
        )
        try:
            while True:
                yield await handed.get()
        finally:
            await self.unsubscribe(subscription)

    async def add_sink(
        self,
        sink: EventSink,
        patterns: str | Sequence[str] = "*",
        *,
        after: int | None = None,
        options: QueueOptions = _SINK_OPTIONS,
    ) -> Subscription:
        """Write events to a sink, in batches; it is closed with the bus."""
        batched = options if options.batch > 1 else msgspec.structs.replace(options, batch=100)
        self._sinks.append(sink)
        return await self.subscribe(
            patterns, sink.write, after=after, options=batched, name=type(sink).__name__
        )

    def wants(self, *names: str) -> bool:
        """Say whether a subscriber listens to a name, so that nothing is made in vain."""
        if not self.subscriptions:
            return False
        return any(
            matches(name, each.wanted.patterns) for each in self.subscriptions for name in names
        )

    # --- publishing -------------------------------------------------------------------

    async def publish(
        self, name: str, data: JsonObject | None = None, *, where: Where = NOWHERE
    ) -> bool:
        """Hand an ephemeral event to its subscribers; `False` if a hook cancelled it.

        It is stored nowhere. Returns when it is in the queues, not when it is handled.

        Raises:
            UsageError: the name belongs to facts of the journal, or `data` is no JSON object.
            EventRejected: a queue with the policy `reject` is full; the others have it.
        """
        _check_name(name)
        _check_data(name, data)
        content = data or {}
        if self._hooks.has(EventBeforeEmit):
            asked = EventBeforeEmit(
                event=name, data=content, session_id=where.session_id, run_id=where.run_id
            )
            fired = await self._hooks.fire(asked)
            if isinstance(fired.verdict, Cancel):
                return False
            content = fired.payload.data
        event = self._make_event(name, content, where)
        takers = [each for each in self.subscriptions if each.wanted.takes(event)]
        refused = [each.name for each in takers if not await each.offer_or_wait(event)]
        if self._hooks.has(EventAfterEmit):
            told = EventAfterEmit(
                event=name,
                data=content,
                subscribers=len(takers) - len(refused),
                session_id=where.session_id,
                run_id=where.run_id,
            )
            await self._hooks.notify(told)
        if refused:
            raise EventRejected(event=name, subscribers=", ".join(refused))
        return True

    def emit(self, name: str, data: JsonObject, *, where: Where = NOWHERE) -> None:
        """Hand the runtime's own ephemeral event to subscribers at once, never waiting.

        For what comes often, such as pieces of an answer: no hooks are asked, and a full
        queue drops, whatever its policy.
        """
        if not self.subscriptions:
            return
        event = self._make_event(name, data, where)
        for each in self.subscriptions:
            if each.wanted.takes(event):
                each.offer(event)

    # --- looking back -----------------------------------------------------------------

    async def timeline(
        self,
        *,
        session_id: str = "",
        run_id: str = "",
        correlation_id: str = "",
        after: int = 0,
        limit: int = 10_000,
    ) -> list[BusEvent]:
        """Return stored events in order, each under its kind: of a session, run or correlation.

        A `correlation_id` also means the run of that id. Without a `session_id` the whole
        journal is read; give one where it is known.
        """
        wanted = Wanted(
            patterns=("*",), session_id=session_id, run_id=run_id, correlation_id=correlation_id
        )
        found: list[BusEvent] = []
        cursor = after
        while len(found) < limit:
            if session_id:
                page = await self._journal.read(session_id, after=cursor, limit=_PAGE)
            else:
                page = await self._journal.store.feed(after=cursor, limit=_PAGE)
            if not page:
                break
            cursor = page[-1].session_seq if session_id else page[-1].seq
            found += [make_view(each, each.kind) for each in page if wanted.name_for(each)]
        return found[:limit]

    @staticmethod
    def names(event: BusEvent) -> tuple[str, ...]:
        """Return every name under which an event appears."""
        return list_names(event.fact) if event.fact is not None else (event.name,)

    # --- ending -----------------------------------------------------------------------

    async def settle(self) -> None:
        """Wait until everything that is stored or published now has been handled.

        Raises:
            UsageError: called inside a handler, which would wait for itself.
        """
        if handling.get() is not None:
            raise UsageError(detail="A handler cannot wait for all handlers to be done.")
        seq = await self._journal.read_last_seq()
        if self._progress is None:
            self._progress = asyncio.Event()
        while not all(each.is_settled(seq) for each in self.subscriptions):
            self._progress.clear()
            await self._progress.wait()

    async def close(self) -> None:
        """End all subscriptions, then close the sinks."""
        for subscription in self.subscriptions:
            await self.unsubscribe(subscription)
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
            self._pump = None
        for sink in self._sinks:
            with contextlib.suppress(Exception):
                await sink.close()
        self._sinks.clear()

    # --- inside -----------------------------------------------------------------------

    async def _feed(self) -> None:
        """Read the journal's feed once for all live subscribers."""
        while self.subscriptions:
            try:
                page = await self._journal.store.feed(after=self._cursor, limit=_PAGE)
            except StorageError:
                await asyncio.sleep(_PAUSE_S)
                continue
            for event in page:
                # No await between these lines: a subscriber that joins sees all or nothing.
                self._cursor = event.seq
                for subscription in self.subscriptions:
                    subscription.offer_fact(event)
            self._note_progress()
            if not page:
                await self._journal.store.changed(self._cursor, _WAIT_S)

    def _make_event(self, name: str, data: JsonObject, where: Where) -> BusEvent:
        try:
            content = msgspec.json.encode(data)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise UsageError(detail=f"The data of {name} must be JSON: {error}") from error
        return BusEvent(
            name=name,
            time=self._clock.now(),
            session_id=where.session_id,
            run_id=where.run_id,
            agent_path=where.agent_path,
            correlation_id=where.correlation_id,
            content=content,
        )

    async def _on_handler_error(
        self, subscription: Subscription, event: BusEvent, error: BaseException
    ) -> None:
        self.handler_errors += 1
        if self._hooks.has(EventHandlerError):
            told = EventHandlerError(
                event=event.name,
                subscriber=subscription.name,
                error=f"{type(error).__name__}: {error}",
                session_id=event.session_id,
                run_id=event.run_id,
            )
            await self._hooks.notify(told)

    def _note_progress(self) -> None:
        if self._progress is not None:
            self._progress.set()


def _check_data(name: str, data: object) -> None:
    if data is not None and not isinstance(data, Mapping):
        raise UsageError(detail=f"The data of {name} must be a JSON object, not {data!r:.80}.")


def _check_name(name: str) -> None:
    if not name or name.endswith("*"):
        raise UsageError(detail="An event needs a name; '*' is for patterns.")
    if is_name_of_facts(name):
        raise UsageError(
            detail=f"{name} is a fact of the journal; it cannot be published without happening."
        )
