"""Triggers: add, list, remove, and the loop that fires them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from holdfast.client.workflows import WorkflowMethods
from holdfast.errors import AlreadyExists
from holdfast.orchestration.triggers import (
    TRIGGER_KEY,
    End,
    Firing,
    Start,
    Trigger,
    TriggerBook,
    TriggerLoop,
    TriggerRow,
    read_trigger,
)
from holdfast.orchestration.triggers.events import FiringStatus
from holdfast.orchestration.triggers.loop import LOOK_S
from holdfast.agents.request import RunRequest


class TriggerMethods(WorkflowMethods):
    """What the client can do with triggers."""

    _firing: set[str] | None = None

    async def add_trigger(self, trigger: Trigger | Mapping[str, Any]) -> TriggerRow:
        """Put a trigger in force, from now on; it stays in force after a restart.

        It fires only while some process executes `run_triggers`; events that came before
        that are made up for, ticks as the trigger says.

        Raises:
            TriggerInvalid: something is wrong with it.
            AlreadyExists: there is one of this name.
        """
        chosen = trigger if isinstance(trigger, Trigger) else read_trigger(trigger)
        return await (await self._trigger_book()).add(chosen)

    async def list_triggers(self) -> list[TriggerRow]:
        """Return the triggers in force, by name."""
        return await (await self._trigger_book()).all()

    async def remove_trigger(self, name: str) -> None:
        """Take a trigger out of force; what it has started goes on.

        Raises:
            NotFound: there is none of this name.
        """
        await (await self._trigger_book()).remove(name)

    async def list_firings(
        self, *, name: str = "", status: FiringStatus | None = None, limit: int = 100
    ) -> list[Firing]:
        """Return what triggers have started, newest first."""
        return await (await self._trigger_book()).firings(name=name, status=status, limit=limit)

    async def run_triggers(
        self, stop: asyncio.Event | None = None, *, once: bool = False, most_parallel: int = 4
    ) -> None:
        """Fire triggers until `stop` is set; with `once`, only what is due now.

        Several processes may do so at once: each event and each tick is taken by one of them.
        """
        sessions = await self._ready()
        if self._firing is None:
            self._firing = set()
        loop = TriggerLoop(
            sessions,
            self._start_firing,
            clock=self._journal.clock,
            most_parallel=most_parallel,
            look_s=min(LOOK_S, self.settings.sessions.lease_ttl_s),
            under_way=self._firing,
        )
        if not once:
            await loop.run(stop)
            return
        try:
            await loop.step()
            await loop.settle()
        finally:
            await loop.close()

    # --- inside -----------------------------------------------------------------------

    async def _trigger_book(self) -> TriggerBook:
        return TriggerBook((await self._ready()).journal)

    async def _start_firing(self, start: Start) -> End:
        """Start what a trigger wants, in a session that says which triggers led to it."""
        trigger, firing = start.trigger, start.firing
        about = {"name": firing.name, "chain": list(firing.chain), "occurrence": firing.occurrence}
        with contextlib.suppress(AlreadyExists):
            await self._sessions.create_session(
                f"Trigger {firing.name}: {firing.occurrence}",
                directory=self.settings.workspace,
                metadata={TRIGGER_KEY: about},
                session_id=firing.session_id,
            )
        if trigger.workflow is not None:
            done = await self.run_workflow(
                trigger.workflow,
                start.given.get("inputs", {}),
                run_id=firing.run_id,
                parent_id=firing.session_id,
                on_ask=trigger.on_ask,
            )
            return End(status=done.status, error=done.error)
        result = await self.launch(
            RunRequest(
                agent=trigger.agent or "",
                session_id=firing.session_id,
                message=str(start.given.get("message", "")),
                run_id=firing.run_id,
                on_ask=trigger.on_ask,
            )
        )
        error = result.metadata.get("error")
        return End(status=result.status, error=error if isinstance(error, dict) else {})
