"""Triggers: add, list, remove, and the loop that fires them."""

from __future__ import annotations

import asyncio
import contextlib

from holdfast.agents import RunRequest
from holdfast.errors import AlreadyExists
from holdfast.orchestration.triggers import (
    LABELS,
    LOOK_S,
    TRIGGER_KEY,
    End,
    Start,
    TriggerBook,
    TriggerLoop,
)
from holdfast.runtime.runs import RunService
from holdfast.runtime.workflows import WorkflowService
from holdfast.sessions import SessionManager
from holdfast.settings import Settings
from holdfast.tools import keep_labels


class TriggerService:
    """Fires triggers: agents and workflows that start on an event or a schedule."""

    def __init__(
        self,
        settings: Settings,
        sessions: SessionManager,
        runs: RunService,
        workflows: WorkflowService,
    ) -> None:
        """Start runs in the workspace of these settings."""
        self._settings = settings
        self._sessions = sessions
        self._journal = sessions.journal
        self._runs = runs
        self._workflows = workflows
        self._firing: set[str] = set()
        self.book = TriggerBook(sessions.journal)

    async def run(
        self, stop: asyncio.Event | None = None, *, once: bool = False, most_parallel: int = 4
    ) -> None:
        """Fire triggers until `stop` is set; with `once`, only what is due now.

        Several processes may do so at once: each event and each tick is taken by one of them.
        """
        loop = TriggerLoop(
            self._sessions,
            self._start_firing,
            clock=self._journal.clock,
            most_parallel=most_parallel,
            look_s=min(LOOK_S, self._settings.sessions.lease_ttl_s),
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

    async def _start_firing(self, start: Start) -> End:
        """Start what a trigger wants, in a session that says which triggers led to it."""
        trigger, firing = start.trigger, start.firing
        about = {"name": firing.name, "chain": list(firing.chain), "occurrence": firing.occurrence}
        with contextlib.suppress(AlreadyExists):
            await self._sessions.create_session(
                f"Trigger {firing.name}: {firing.occurrence}",
                directory=self._settings.workspace,
                metadata={TRIGGER_KEY: about},
                session_id=firing.session_id,
            )
        if labels := start.given.get(LABELS):
            # What is started has read what the words that it is given were made from.
            await keep_labels(self._sessions, firing.session_id, labels)
        if trigger.workflow is not None:
            done = await self._workflows.run(
                trigger.workflow,
                start.given.get("inputs", {}),
                run_id=firing.run_id,
                parent_id=firing.session_id,
                on_ask=trigger.on_ask,
            )
            return End(status=done.status, error=done.error)
        result = await self._runs.execute(
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
