"""The life of an agent in this process: made ready once, used by runs, shut down at the end.

    uninitialized -> initializing -> ready <-> running -> paused
                          |            |          |         |
                          v            v          v         v
                        error <------------------------- (any)
                          |
                          v
                     recovering -> ready           (all) -> terminated

The states and their events live in memory only: they say what this process does with the
agent. What happened in conversations is in the journal (`run.*`), and stays true after a crash.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Literal, TypeAlias

import msgspec

from holdfast.agents.definition import Agent
from holdfast.agents.result import AgentResult
from holdfast.errors import HoldfastError, InvalidTransition, UsageError
from holdfast.hooks import (
    AgentAfterExecution,
    AgentAfterInit,
    AgentAfterShutdown,
    AgentBeforeExecution,
    AgentBeforeInit,
    AgentBeforeShutdown,
    AgentError,
    AgentResourceAcquired,
    AgentResourceReleased,
    AgentStateChanged,
    Emitter,
    Hooks,
    Silence,
    Where,
)

AgentState: TypeAlias = Literal[
    "uninitialized",
    "initializing",
    "ready",
    "running",
    "paused",
    "terminated",
    "error",
    "recovering",
]
Resource: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]
"""Makes what an agent needs while it lives, such as a connection; closed at its end."""

LEGAL: dict[AgentState, tuple[AgentState, ...]] = {
    "uninitialized": ("initializing", "terminated"),
    "initializing": ("ready", "error"),
    "ready": ("running", "error", "terminated"),
    "running": ("ready", "paused", "error", "terminated"),
    "paused": ("running", "ready", "error", "terminated"),
    "error": ("recovering", "terminated"),
    "recovering": ("ready", "error", "terminated"),
    "terminated": (),
}
"""Which state may follow which."""

_EVENTS: dict[AgentState, str] = {
    "ready": "agent.ready",
    "running": "agent.executing",
    "paused": "agent.paused",
    "error": "agent.error",
    "terminated": "agent.cleanup",
}

_ENDS: dict[str, AgentState] = {"failed": "error", "parked": "paused"}
"""How an agent is after a run that did not end well."""


class AgentLifecycle:
    """One agent in this process, with its state and its resources.

    Many runs may use it at once: it is `running` while at least one does. The state after
    the last one says how that one ended.
    """

    def __init__(
        self, name: str, hooks: Hooks, bus: Emitter, resources: dict[str, Resource]
    ) -> None:
        """Start uninitialized; resources are opened by name when the agent is first used."""
        self.name = name
        self.state: AgentState = "uninitialized"
        self.active_runs = 0
        self._hooks = hooks
        self._bus = bus
        self._resources = resources
        self._opened = AsyncExitStack()
        self._count = 0
        self._lock = asyncio.Lock()

    async def enter_run(self, where: Where) -> None:
        """Bring the agent to `running`: initialize or recover it first, if need be.

        Raises:
            HookRefused: a hook does not want it to be initialized.
            InvalidTransition: it was shut down.
        """
        async with self._lock:
            if self.state == "uninitialized":
                await self._initialize(where)
            elif self.state == "error":
                await self.go("recovering", where)
                await self._open_resources(where)
                await self.go("ready", where)
            if self.state != "running":
                await self.go("running", where)
            self.active_runs += 1

    def enter_at_once(self, where: Where) -> bool:
        """Do what `enter_run` does if no caller has to be waited for; says whether it did."""
        if not self._hooks.is_empty or self._lock.locked():
            return False
        if self.state != "running":
            if self.state not in ("ready", "paused"):
                return False
            self._move("running", where)
        self.active_runs += 1
        return True

    async def leave_run(self, where: Where, status: str) -> None:
        """Take note of how a run ended."""
        async with self._lock:
            self.active_runs -= 1
            if not self.active_runs and self.state == "running":
                await self.go(_ENDS.get(status, "ready"), where)

    def leave_at_once(self, where: Where, status: str) -> bool:
        """Take note of how a run ended if no caller has to be waited for; says whether it did."""
        if not self._hooks.is_empty or self._lock.locked():
            return False
        self.active_runs -= 1
        if not self.active_runs and self.state == "running":
            self._move(_ENDS.get(status, "ready"), where)
        return True

    async def shut_down(self) -> None:
        """Give the resources back, last one first; safe to repeat."""
        where = Where(agent_path=self.name)
        async with self._lock:
            if self.state == "terminated":
                return
            if self.state != "uninitialized":
                await self._hooks.notify(AgentBeforeShutdown(agent=self.name))
                await self._opened.aclose()
            was_used = self.state != "uninitialized"
            await self.go("terminated", where)
            if was_used:
                await self._hooks.notify(AgentAfterShutdown(agent=self.name))

    async def go(self, wanted: AgentState, where: Where) -> None:
        """Change the state, and tell hooks and subscribers.

        Raises:
            InvalidTransition: that state cannot follow this one.
        """
        old = self._move(wanted, where)
        if self._hooks.has(AgentStateChanged):
            changed = AgentStateChanged(
                agent=self.name,
                old=old,
                new=wanted,
                session_id=where.session_id,
                run_id=where.run_id,
            )
            await self._hooks.notify(changed)

    # --- inside -----------------------------------------------------------------------

    def _move(self, wanted: AgentState, where: Where) -> AgentState:
        """Change the state, tell subscribers, and return what it was."""
        old = self.state
        if wanted not in LEGAL[old]:
            raise InvalidTransition(
                what=f"Agent {self.name}",
                current=old,
                wanted=wanted,
                allowed=", ".join(LEGAL[old]) or "none; make a new client",
            )
        self.state = wanted
        name = _EVENTS.get(wanted, "")
        if name and self._bus.wants(name):
            self._bus.emit(name, {"agent": self.name, "from": old}, where=where)
        return old

    async def _initialize(self, where: Where) -> None:
        fired = await self._hooks.fire(
            AgentBeforeInit(agent=self.name, session_id=where.session_id, run_id=where.run_id)
        )
        fired.raise_if_cancelled()
        await self.go("initializing", where)
        await self._open_resources(where)
        if self._bus.wants("agent.initialized"):
            self._bus.emit("agent.initialized", {"agent": self.name}, where=where)
        await self.go("ready", where)
        await self._hooks.notify(
            AgentAfterInit(
                agent=self.name,
                resources=tuple(self._resources),
                session_id=where.session_id,
                run_id=where.run_id,
            )
        )

    async def _open_resources(self, where: Where) -> None:
        """Open what is not open yet; one that fails leaves the agent in `error`."""
        for name, make in list(self._resources.items())[self._count :]:
            try:
                guarded = _Guarded(name, make(), self._note_released)
                await self._opened.enter_async_context(guarded)
            except BaseException:
                await self.go("error", where)
                raise
            self._count += 1
            await self._hooks.notify(AgentResourceAcquired(agent=self.name, resource=name))

    async def _note_released(self, resource: str, error: str) -> None:
        await self._hooks.notify(
            AgentResourceReleased(agent=self.name, resource=resource, error=error)
        )


class _Guarded(AbstractAsyncContextManager[None]):
    """A resource whose closing cannot keep the others from being closed."""

    def __init__(
        self,
        name: str,
        inner: AbstractAsyncContextManager[Any],
        released: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._name = name
        self._inner = inner
        self._released = released

    async def __aenter__(self) -> None:
        await self._inner.__aenter__()

    async def __aexit__(self, *_: object) -> None:
        failure = ""
        try:
            await self._inner.__aexit__(None, None, None)
        except Exception as error:  # noqa: BLE001 - told to hooks; the others must be closed
            failure = f"{type(error).__name__}: {error}"
        await self._released(self._name, failure)


class AgentManager:
    """The lives of all agents that a client uses, and the hooks around their runs."""

    def __init__(self, hooks: Hooks | None = None, bus: Emitter | None = None) -> None:
        """Start with no agent."""
        self._hooks = hooks if hooks is not None else Hooks()
        self._bus: Emitter = bus if bus is not None else Silence()
        self._lives: dict[str, AgentLifecycle] = {}
        self._resources: dict[str, dict[str, Resource]] = {}

    def add_resource(self, agent: str, name: str, make: Resource) -> None:
        """Let an agent have a resource: opened before its first run, closed at the end.

        Raises:
            UsageError: the agent is in use already, or has a resource of this name.
        """
        key = agent.casefold()
        if key in self._lives:
            raise UsageError(detail=f"Agent {agent} is in use; add resources before its first run.")
        known = self._resources.setdefault(key, {})
        if name in known:
            raise UsageError(detail=f"Agent {agent} has a resource {name!r} already.")
        known[name] = make

    def find_state(self, agent: str) -> AgentState:
        """Return the state of an agent in this process."""
        life = self._lives.get(agent.casefold())
        return life.state if life is not None else "uninitialized"

    async def run(
        self,
        agent: Agent,
        where: Where,
        message: str,
        execute: Callable[[str], Awaitable[AgentResult]],
    ) -> AgentResult:
        """Execute a run inside the agent's life, with the hooks around it.

        Raises:
            HookRefused: a hook cancelled it; nothing has happened.
        """
        life = self._lives.get(agent.name.casefold()) or self._make_life(agent.name)
        ids = {"session_id": where.session_id, "run_id": where.run_id, "agent": agent.name}
        status = "failed"
        if not life.enter_at_once(where):
            await life.enter_run(where)
        try:
            if not self._hooks.is_empty and self._hooks.has(AgentBeforeExecution):
                fired = await self._hooks.fire(AgentBeforeExecution(message=message, **ids))
                # A refusal is no failure of the agent.
                status = "cancelled"
                fired.raise_if_cancelled()
                message = fired.payload.message
            status = "failed"
            result = await execute(message)
            status = result.status
        except asyncio.CancelledError:
            status = "cancelled"
            raise
        except HoldfastError as error:
            if self._hooks.has(AgentError) and status == "failed":
                await self._hooks.notify(AgentError(error=error.to_dict(), **ids))
            raise
        finally:
            if not life.leave_at_once(where, status):
                # A run that is cancelled must still leave; the state would be wrong forever.
                await asyncio.shield(life.leave_run(where, status))
        return result if self._hooks.is_empty else await self._after(result, ids)

    async def close(self) -> None:
        """Shut every agent down."""
        for life in self._lives.values():
            with contextlib.suppress(HoldfastError):
                await life.shut_down()

    async def _after(self, result: AgentResult, ids: dict[str, str]) -> AgentResult:
        if result.status == "failed" and self._hooks.has(AgentError):
            failure = result.metadata.get("error", {})
            await self._hooks.notify(AgentError(error=failure, **ids))
        if not self._hooks.has(AgentAfterExecution):
            return result
        done = AgentAfterExecution(
            response=result.response,
            status=result.status,
            tools_used=result.tools_used,
            cost_usd=result.cost_usd,
            duration=result.duration,
            **ids,
        )
        response = (await self._hooks.fire(done)).payload.response
        if response == result.response:
            return result
        return msgspec.structs.replace(result, response=response)

    def _make_life(self, agent: str) -> AgentLifecycle:
        key = agent.casefold()
        resources = self._resources.get(key, {})
        life = self._lives[key] = AgentLifecycle(agent, self._hooks, self._bus, resources)
        return life
