"""Hooks, callbacks, events and lifecycles of a client."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from holdfast.agents import AgentManager, AgentState
from holdfast.agents.lifecycle import Resource
from holdfast.canonical import JsonObject
from holdfast.client.base import ClientBase
from holdfast.hooks import (
    FACT_POINTS,
    NOWHERE,
    BusEvent,
    Callbacks,
    EventBus,
    EventSink,
    ExecutionContext,
    Hook,
    HookPayload,
    Hooks,
    QueueOptions,
    Subscription,
    Where,
    follow_facts,
)
from holdfast.hooks.notices import (
    NOTIFICATIONS,
    Notification,
    Progress,
    notification_of,
    progress_of,
)
from holdfast.hooks.points import SystemShutdown, SystemStartup
from holdfast.journal import SYSTEM_SESSION, Origin, Payload
from holdfast.runs import Instrumentation
from holdfast.sessions import SessionManager
from holdfast.sessions.lifecycle import LIFECYCLE_EVENTS, SessionLifecycle, lifecycle_handler
from holdfast.tools.services import Attendant, NobodyAttends

_OPTIONS = QueueOptions()
_LAST_WORDS_S = 5.0
_NOBODY = NobodyAttends()


class HookMethods(ClientBase):
    """What the client can do with hooks and events."""

    _hooks: Hooks | None = None
    _bus: EventBus | None = None
    _lives: AgentManager | None = None
    _context: ExecutionContext | None = None
    _around: Instrumentation | None = None
    _is_announced = False
    _follows_facts = False
    attendant: Attendant | None = None
    """Who answers questions of agents while they wait; without anybody, the run parks."""

    # --- hooks and callbacks ----------------------------------------------------------

    @property
    def hooks(self) -> Hooks:
        """The hooks of this client; register before or while it is open."""
        if self._hooks is None:
            self._hooks = Hooks(recorder=self._record)
        return self._hooks

    @property
    def context(self) -> ExecutionContext:
        """What every run of this client inherits: data, and services by type."""
        if self._context is None:
            self._context = ExecutionContext()
        return self._context

    async def use_callbacks(
        self, callbacks: Callbacks, *, agent: str = "", priority: int = 0
    ) -> tuple[Hook, ...]:
        """Call plain functions before and after agents, models and tools."""
        return callbacks.register(self.hooks, agent=agent, priority=priority)

    async def on_progress(self, function: Callable[[Progress], Any]) -> Subscription:
        """Call a function whenever a tool says how far it is."""
        return await self.subscribe("tool.progress", _converted(function, progress_of))

    async def on_notification(self, function: Callable[[Notification], Any]) -> Subscription:
        """Call a function when a run ends or waits, or when consent is needed."""
        return await self.subscribe(NOTIFICATIONS, _converted(function, notification_of))

    async def follow_sessions(
        self, lifecycle: SessionLifecycle, *, after: int | None = None
    ) -> Subscription:
        """Call a lifecycle's methods when sessions change, here or in another process.

        At least once: keep `subscription.position`, and hand it over as `after` next time.
        """
        sessions = await self._ready()
        handler = lifecycle_handler(sessions, lifecycle)
        name = type(lifecycle).__name__
        return await self._event_bus().subscribe(LIFECYCLE_EVENTS, handler, after=after, name=name)

    # --- events -----------------------------------------------------------------------

    async def subscribe(
        self,
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
        await self._ready()
        return await self._event_bus().subscribe(
            patterns,
            handler,
            after=after,
            session_id=session_id,
            run_id=run_id,
            correlation_id=correlation_id,
            options=options,
        )

    async def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription; safe to repeat."""
        await self._event_bus().unsubscribe(subscription)

    async def events(
        self,
        patterns: str | Sequence[str] = "*",
        *,
        after: int | None = None,
        session_id: str = "",
        run_id: str = "",
    ) -> AsyncGenerator[BusEvent, None]:
        """Yield events under all their names, ephemeral ones too; `watch` yields stored facts."""
        await self._ready()
        found = self._event_bus().events(
            patterns, after=after, session_id=session_id, run_id=run_id
        )
        async with contextlib.aclosing(found):
            async for event in found:
                yield event

    async def add_event_sink(
        self, sink: EventSink, patterns: str | Sequence[str] = "*", *, after: int | None = None
    ) -> Subscription:
        """Write events to a sink, in batches; it is closed with the client."""
        await self._ready()
        return await self._event_bus().add_sink(sink, patterns, after=after)

    async def publish(
        self, name: str, data: JsonObject | None = None, *, where: Where = NOWHERE
    ) -> bool:
        """Hand an event of the application to its subscribers; it is stored nowhere."""
        await self._ready()
        return await self._event_bus().publish(name, data, where=where)

    async def timeline(
        self,
        *,
        session_id: str = "",
        run_id: str = "",
        correlation_id: str = "",
        limit: int = 10_000,
    ) -> list[BusEvent]:
        """Return stored events in order: of a session, a run, or a correlation."""
        await self._ready()
        run = await self._turns.find(run_id) if run_id and not session_id else None
        return await self._event_bus().timeline(
            session_id=run.session_id if run is not None else session_id,
            run_id=run_id,
            correlation_id=correlation_id,
            limit=limit,
        )

    async def settle_events(self) -> None:
        """Wait until everything that has happened by now was handled by its subscribers."""
        await self._ready()
        await self._event_bus().settle()

    # --- agents -----------------------------------------------------------------------

    async def add_agent_resource(self, agent: str, name: str, make: Resource) -> None:
        """Let an agent have a resource: opened before its first run, closed with the client."""
        self._agent_lives().add_resource(agent, name, make)

    async def agent_state(self, agent: str) -> AgentState:
        """Return the state of an agent in this process."""
        return self._agent_lives().state_of(agent)

    async def close(self) -> None:
        """Tell hooks and subscribers, shut agents down, then close the rest."""
        if self._is_open and not self._is_closed:
            if self._lives is not None:
                await self._lives.close()
            await self.hooks.notify(SystemShutdown())
            if self._bus is not None:
                self._bus.emit("system.stopping", {})
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LAST_WORDS_S):
                        await self._bus.settle()
                await self._bus.close()
        await super().close()

    # --- inside -----------------------------------------------------------------------

    async def _ready(self) -> SessionManager:
        sessions = await super()._ready()
        if not self._is_announced:
            self._is_announced = True
            await self.hooks.notify(SystemStartup())
        hooks = self._hooks
        if hooks is not None and not hooks.is_empty and not self._follows_facts:
            if hooks.has(*FACT_POINTS):
                self._follows_facts = True
                await follow_facts(self._event_bus(), hooks)
        return sessions

    def _event_bus(self) -> EventBus:
        if self._bus is None:
            self._bus = EventBus(self._journal, hooks=self.hooks, clock=self._journal.clock)
        return self._bus

    def _agent_lives(self) -> AgentManager:
        if self._lives is None:
            self._lives = AgentManager(self.hooks, self._event_bus())
        return self._lives

    def _surroundings(self) -> Instrumentation:
        """What stands around every run: the same for all, while the same one attends."""
        known, attendant = self._around, self.attendant or _NOBODY
        if known is None or known.attendant is not attendant:
            known = self._around = Instrumentation(
                hooks=self.hooks,
                bus=self._event_bus(),
                execution=self.context,
                attendant=attendant,
            )
        return known

    async def _record(self, where: HookPayload, fact: Payload) -> None:
        """Keep what a hook decided with the session and run that it decided about."""
        origin = Origin(run_id=where.run_id, agent_path=where.agent)
        await self._journal.append(where.session_id or SYSTEM_SESSION, [fact], origin=origin)


def _converted(
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
