"""Hooks, events and lifecycles of one runtime."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from holdfast.agents import AgentManager
from holdfast.canonical import JsonObject
from holdfast.hooks import (
    FACT_POINTS,
    EventBus,
    ExecutionContext,
    Hook,
    HookPayload,
    Hooks,
    SystemShutdown,
    SystemStartup,
    follow_facts,
)
from holdfast.journal import SYSTEM_SESSION, Journal, Origin, Payload
from holdfast.policy import PolicyStore
from holdfast.runs import (
    ConfinedScripts,
    HookFile,
    HookFiles,
    Instrumentation,
    register_files,
)
from holdfast.runtime.processes import ProcessEnvironment
from holdfast.settings import Settings
from holdfast.skills import TrustStore
from holdfast.tools import Attendant, NoAttendant

_LAST_WORDS_S = 5.0
_NO_ATTENDANT = NoAttendant()


class HookService:
    """The hooks of one runtime, from Python and from files, and who hears its events."""

    def __init__(
        self,
        settings: Settings,
        journal: Journal,
        trust: TrustStore,
        policies: Callable[[], Awaitable[PolicyStore]],
        processes: ProcessEnvironment,
    ) -> None:
        """Fire for this journal; programs among the hooks run confined."""
        self._journal = journal
        self.files = HookFiles(
            settings.workspace, user_folder=settings.user_dir / "hooks", trust=trust
        )
        self.hooks = Hooks(recorder=self._record)
        self._scripts = ConfinedScripts(
            policies, processes.open_reader, settings.workspace, self.files, report=self._report
        )
        self.hooks.scripts = self._scripts
        self.bus = EventBus(journal, hooks=self.hooks, clock=journal.clock)
        self.lives = AgentManager(self.hooks, self.bus)
        self.execution = ExecutionContext()
        """What every run inherits: data, and services by type."""
        self.attendant = None
        self._of_files: tuple[Hook, ...] | None = None
        self.has_begun = False
        self._follows_facts = False

    @property
    def attendant(self) -> Attendant | None:
        """Who answers questions of agents while they wait; without one, the run parks."""
        return self._attendant

    @attendant.setter
    def attendant(self, attendant: Attendant | None) -> None:
        self._attendant = attendant
        self.instrumentation = Instrumentation(
            hooks=self.hooks,
            bus=self.bus,
            execution=self.execution,
            attendant=attendant or _NO_ATTENDANT,
        )

    async def begin(self) -> None:
        """Let hooks of files take part, tell all that we begin, and follow stored facts."""
        if self._of_files is None:
            self._of_files = ()
            if self.files.has_any():
                found = await asyncio.to_thread(self.files.find)
                self._of_files = register_files(self.hooks, found)
        if not self.has_begun:
            self.has_begun = True
            await self.hooks.notify(SystemStartup())
            self.bus.tell_started()
        if not self._follows_facts and not self.hooks.is_empty and self.hooks.has(*FACT_POINTS):
            self._follows_facts = True
            await follow_facts(self.bus, self.hooks)

    async def trust(self, *, revoke: bool = False) -> list[HookFile]:
        """Vouch for the project's hooks as they are now, or take that back; raises NotFound."""
        found = await asyncio.to_thread(self.files.trust, revoke=revoke)
        for hook in self._of_files or ():
            self.hooks.off(hook)
        self._of_files = None
        await self.begin()
        return found

    async def say_goodbye(self) -> None:
        """Shut agents down, tell hooks and subscribers; what they still do is waited for."""
        await self.lives.close()
        await self.hooks.notify(SystemShutdown())
        self.bus.emit("system.stopping", {})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_S):
                await self.bus.settle()
        await self.bus.close()

    async def close(self) -> None:
        """End the sandbox of programs."""
        await self._scripts.aclose()

    def _report(self, told: JsonObject) -> None:
        """Tell subscribers of a script that ran."""
        self.bus.emit("hook.executed", told)

    async def _record(self, where: HookPayload, fact: Payload) -> None:
        """Keep what a hook decided with the session and run that it decided about."""
        origin = Origin(run_id=where.run_id, agent_path=where.agent)
        await self._journal.append(where.session_id or SYSTEM_SESSION, [fact], origin=origin)
