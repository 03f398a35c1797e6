"""Events: hear them as they happen, read them as they are stored."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Annotated, Any

from holdfast.canonical import JsonObject
from holdfast.hooks import (
    NOTIFICATIONS,
    NOWHERE,
    BusEvent,
    EventSink,
    Notification,
    Progress,
    QueueOptions,
    Subscription,
    Where,
    to_notification,
    to_progress,
)
from holdfast.journal import Event
from holdfast.operations.caller import Caller
from holdfast.operations.local_values import Local
from holdfast.operations.operation import local, operation, stream_operation
from holdfast.orchestration.delegation import Family
from holdfast.runtime import Runtime
from holdfast.sessions import LIFECYCLE_EVENTS, SessionLifecycle, make_lifecycle_handler

_OPTIONS = QueueOptions()


@local("read `events.stream`")
async def subscribe(
    runtime: Runtime,
    /,
    patterns: str | Sequence[str],
    handler: Callable[..., Any],
    *,
    after: int | None = None,
    session_id: str = "",
    run_id: str = "",
    correlation_id: str = "",
    options: QueueOptions = _OPTIONS,
) -> Subscription:
    """Call a handler for every event that a pattern means; see `EventBus.subscribe`."""
    return await runtime.hooks.bus.subscribe(
        patterns,
        handler,
        after=after,
        session_id=session_id,
        run_id=run_id,
        correlation_id=correlation_id,
        options=options,
    )


@local("leave the loop over `events.stream`")
async def unsubscribe(runtime: Runtime, /, subscription: Subscription) -> None:
    """End a subscription; safe to repeat."""
    await runtime.hooks.bus.unsubscribe(subscription)


@stream_operation("events:read")
async def stream(
    runtime: Runtime,
    caller: Caller,
    /,
    patterns: str | Sequence[str] = "*",
    *,
    after: int | None = None,
    session_id: str = "",
    run_id: str = "",
    with_children: bool = False,
) -> AsyncGenerator[BusEvent, None]:
    """Yield events under all their names, ephemeral ones too; `watch` yields stored facts.

    `with_children` adds those of all sessions that are started from `session_id`.
    """
    family = Family(runtime.sessions, session_id) if with_children and session_id else None
    found = runtime.hooks.bus.events(
        patterns, after=after, session_id="" if family is not None else session_id, run_id=run_id
    )
    async with contextlib.aclosing(found):
        async for event in found:
            if family is None or await family.has(event.session_id):
                yield event


@local("read `events.stream` and write where you are")
async def add_sink(
    runtime: Runtime,
    /,
    sink: EventSink,
    patterns: str | Sequence[str] = "*",
    *,
    after: int | None = None,
) -> Subscription:
    """Write events to a sink, in batches; it is closed with the client."""
    return await runtime.hooks.bus.add_sink(sink, patterns, after=after)


@local("events of an application stay in its process")
async def publish(
    runtime: Runtime, /, name: str, data: JsonObject | None = None, *, where: Where = NOWHERE
) -> bool:
    """Hand an event of the application to its subscribers; it is stored nowhere."""
    return await runtime.hooks.bus.publish(name, data, where=where)


@operation("events:read")
async def timeline(
    runtime: Runtime,
    caller: Caller,
    /,
    *,
    session_id: str = "",
    run_id: str = "",
    correlation_id: str = "",
    limit: int = 10000,
) -> list[BusEvent]:
    """Return stored events in order: of a session, a run, or a correlation."""
    run = await runtime.turns.find(run_id) if run_id and not session_id else None
    return await runtime.hooks.bus.timeline(
        session_id=run.session_id if run is not None else session_id,
        run_id=run_id,
        correlation_id=correlation_id,
        limit=limit,
    )


@local("streams have no queue here")
async def settle(runtime: Runtime, /) -> None:
    """Wait until everything that has happened by now was handled by its subscribers."""
    await runtime.hooks.bus.settle()


@local("read `events.stream` with the pattern `tool.progress`")
async def on_progress(runtime: Runtime, /, function: Callable[[Progress], Any]) -> Subscription:
    """Call a function whenever a tool says how far it is."""
    return await runtime.hooks.bus.subscribe("tool.progress", _convert(function, to_progress))


@local("read `events.stream`")
async def on_notification(
    runtime: Runtime, /, function: Callable[[Notification], Any]
) -> Subscription:
    """Call a function when a run ends or waits, or when consent is needed."""
    return await runtime.hooks.bus.subscribe(NOTIFICATIONS, _convert(function, to_notification))


@local("read `events.stream`")
async def follow_sessions(
    runtime: Runtime, /, lifecycle: SessionLifecycle, *, after: int | None = None
) -> Subscription:
    """Call a lifecycle's methods when sessions change, here or in another process.

    At least once: keep `subscription.position`, and hand it over as `after` next time.
    """
    handler = make_lifecycle_handler(runtime.sessions, lifecycle)
    name = type(lifecycle).__name__
    return await runtime.hooks.bus.subscribe(LIFECYCLE_EVENTS, handler, after=after, name=name)


@operation("sessions:read")
async def list_(
    runtime: Runtime,
    caller: Caller,
    /,
    session_id: str,
    *,
    after: int = 0,
    limit: int = 1000,
    kinds: Sequence[str] = (),
) -> list[Event]:
    """Return the events of a session after a number, in order; with `kinds` only such ones."""
    session = await runtime.sessions.get_session(session_id)
    wanted = frozenset(kinds) or None
    return await runtime.journal.read(session.id, after=after, limit=limit, kinds=wanted)


@operation("sessions:read")
async def count(runtime: Runtime, caller: Caller, /, session_id: str) -> int:
    """Return the number of events of a session."""
    session = await runtime.sessions.get_session(session_id)
    return await runtime.sessions.find_last_number(session.id)


@stream_operation("events:read")
async def watch(
    runtime: Runtime,
    caller: Caller,
    /,
    *,
    after: int | None = None,
    patterns: str | Sequence[str] = ("*",),
    session_id: str = "",
    until: Annotated[Callable[[Event], bool], Local("leave the loop over the events")]
    | None = None,
) -> AsyncGenerator[Event, None]:
    """Yield events as they are stored, here or in another process, without gaps."""
    feed = runtime.journal.subscribe(
        after=after, patterns=patterns, session_id=session_id, until=until
    )
    async with contextlib.aclosing(feed):
        async for event in feed:
            yield event


def _convert(
    function: Callable[[Any], Any], convert: Callable[[BusEvent], Any]
) -> Callable[[BusEvent], Any]:
    """Return a handler that hands over what the function expects; `async` if that is."""
    if inspect.iscoroutinefunction(function):

        async def handle(event: BusEvent) -> None:
            await function(convert(event))

        return handle

    def handle_plainly(event: BusEvent) -> None:
        function(convert(event))

    return handle_plainly
