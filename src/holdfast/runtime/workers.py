"""Workers: processes that go on with whatever waits in the sessions of a tenant."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from holdfast.dispatch import (
    DeadLetter,
    Dispatcher,
    Progress,
    WorkerOptions,
    WorkerStatus,
    open_dispatcher,
)
from holdfast.errors import StorageError, UsageError
from holdfast.journal import Condition, RowQuery, find_tenant_url
from holdfast.observability import Logger
from holdfast.policy import APPROVALS, Approval
from holdfast.runtime.recovery import FIRST_TRY_S, LONGEST_PAUSE_S, OUTAGES
from holdfast.sessions import RUNS, Run, list_unfinished

if TYPE_CHECKING:
    from holdfast.runtime.runtime import Runtime
    from holdfast.settings import Settings

_log = Logger("holdfast.workers")
_TENANT = "holdfast_tenant"
_MOST = 10_000
_LOOK_FOR_FORGOTTEN_S = 30.0


class WorkerService:
    """Works on wake-ups, and tells who does and what was given up."""

    def __init__(self, runtime: Runtime) -> None:
        """Work on the sessions of this runtime."""
        self._runtime = runtime
        self._dispatcher: Dispatcher | None = None
        self._active: set[str] = set()

    async def list_workers(self) -> list[WorkerStatus]:
        """Return the workers that live, and what they hold."""
        return await (await self._opened()).list_workers()

    async def list_dead(self) -> list[DeadLetter]:
        """Return the wake-ups that were given up."""
        return await (await self._opened()).list_dead()

    async def retry_dead(self, letter_id: int) -> DeadLetter:
        """Have a session tried again whose wake-up was given up."""
        return await (await self._opened()).retry_dead(letter_id)

    async def work(
        self,
        stop: asyncio.Event,
        *,
        concurrency: int = 4,
        name: str = "",
        most_failures: int = 5,
        grace_s: float | None = None,
        queues: Sequence[str] = ("",),
        has_triggers: bool = False,
    ) -> None:
        """Go on with sessions until told to stop; what has not ended then goes on elsewhere.

        With `has_triggers` it fires triggers beside: each event and tick is taken by one process.
        """
        runtime, dispatcher = self._runtime, await self._opened()
        settings = runtime.settings
        options = WorkerOptions(
            name=name or f"{socket.gethostname()}-{os.getpid()}",
            concurrency=concurrency,
            queues=tuple(queues),
            lease_ttl_s=settings.sessions.lease_ttl_s,
            most_failures=most_failures,
            grace_s=settings.server.grace_s if grace_s is None else grace_s,
            on_leaving=self._leave,
        )
        beside = [asyncio.create_task(self._find_forgotten(dispatcher), name="find-forgotten")]
        if not dispatcher.has_store_wakeups:
            beside.append(asyncio.create_task(self._follow_inboxes(dispatcher), name="inboxes"))
        if has_triggers:
            beside.append(asyncio.create_task(runtime.triggers.run(stop), name="triggers"))
        _log.debug("worker.started", worker=options.name, concurrency=concurrency)
        try:
            await dispatcher.work(
                partial(self._go_on, dispatcher, frozenset(queues)), options, stop
            )
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            _log.debug("worker.stopped", worker=options.name)

    async def close(self) -> None:
        """Give the connections back."""
        dispatcher, self._dispatcher = self._dispatcher, None
        if dispatcher is not None:
            await dispatcher.close()

    # --- inside -----------------------------------------------------------------------

    async def _opened(self) -> Dispatcher:
        if self._dispatcher is None:
            runtime = self._runtime
            self._dispatcher = open_dispatcher(
                find_wakeups_url(runtime.settings), clock=runtime.journal.clock
            )
        await self._dispatcher.open()
        return self._dispatcher

    def _leave(self) -> None:
        self._runtime.turns.is_leaving = True

    async def _go_on(
        self, dispatcher: Dispatcher, queues: frozenset[str], session_id: str
    ) -> Progress:
        if session_id in self._active:
            return "later"
        self._active.add(session_id)
        try:
            return await self._execute_all(dispatcher, queues, session_id)
        finally:
            self._active.discard(session_id)

    async def _execute_all(
        self, dispatcher: Dispatcher, queues: frozenset[str], session_id: str
    ) -> Progress:
        """Execute run after run of a session, while the next one is for any process."""
        runtime = self._runtime
        settings = runtime.settings.workers
        is_fresh = True
        while True:
            waiting = await list_unfinished(runtime.journal, session_id)
            if not waiting:
                return "done"
            run = waiting[0]
            if run.status == "parked":
                if not await self._resume_due(dispatcher, run, is_fresh=is_fresh):
                    return "done"
                run = await runtime.turns.get(run.id)
            if not await self._is_free(run):
                return "later"
            queue = settings.find_queue(run.agent)
            if queue not in queues:
                # It is for others, who have the credentials and the policies for it.
                await dispatcher.wake(session_id, queue=queue)
                return "done"
            limits = self._list_limits(run.agent)
            if limits and not await dispatcher.claim(session_id, limits):
                return "later"
            is_fresh = False
            if not await runtime.recovery.go_on(run):
                return "done"
            after = await runtime.turns.get(run.id)
            if not after.has_ended and after.status != "parked":
                return "later"

    def _list_limits(self, agent: str) -> dict[str, int]:
        """Return how many may be executed at once of what a run is, by the settings."""
        settings = self._runtime.settings.workers
        found = {"": settings.most_runs, f"agent {agent}": settings.find_most(agent)}
        return {kind: most for kind, most in found.items() if most is not None}

    async def _resume_due(self, dispatcher: Dispatcher, run: Run, *, is_fresh: bool) -> bool:
        """Say whether a parked run goes on now; else have the session woken when it is time.

        What waits for a model, or an MCP server, is tried again after half of its age; what waits
        for a person, when the time to answer is over: then it asks once more.
        """
        runtime, now = self._runtime, self._runtime.journal.clock.now()
        if run.reason.startswith(OUTAGES):
            if is_fresh:
                return True
            age = now - run.time_queued
            delay = min(max(FIRST_TRY_S, age / 2), LONGEST_PAUSE_S)
            await dispatcher.wake(run.session_id, delay_s=delay)
            return False
        where = (Condition("run_id", "=", run.id), Condition("status", "=", "open"))
        query = RowQuery(projection=APPROVALS, session_id=run.session_id, where=where, limit=_MOST)
        # Of a call that asked more than once, the last request counts.
        asked = sorted((row.row for row in await runtime.journal.rows(query)), key=_get_time)
        ends = {row.call_id: row.expires_at for row in asked}.values()
        if not ends:
            return False
        if min(ends) <= now:
            await runtime.turns.wake(run.id, cause="the time to answer is over")
            return True
        await dispatcher.wake(run.session_id, delay_s=min(ends) - now)
        return False

    async def _is_free(self, run: Run) -> bool:
        """Say whether no living process has a run, or is about to execute it."""
        runtime = self._runtime
        for head in await runtime.journal.store.heads(run.session_id):
            if head.is_held and head.owner != runtime.turns.owner:
                return False
        if run.status == "running" or run.owner in ("", runtime.turns.owner):
            return True
        return not await runtime.journal.store.is_alive(run.owner)

    async def _follow_inboxes(self, dispatcher: Dispatcher) -> None:
        async with contextlib.aclosing(self._runtime.feed.follow_all()) as feed:
            async for event in feed:
                if event.kind in ("run.queued", "run.woken") and event.decode().wakes_session:
                    queue, priority = event.decode().wake_place
                    await dispatcher.wake(event.session_id, queue=queue, priority=priority)

    async def _find_forgotten(self, dispatcher: Dispatcher) -> None:
        """Wake sessions whose process is gone and never left a wake-up, again and again."""
        runtime = self._runtime
        while True:
            with contextlib.suppress(StorageError):
                for status in ("running", "queued"):
                    where = (Condition("status", "=", status),)
                    query = RowQuery(projection=RUNS, where=where, limit=_MOST)
                    for keyed in await runtime.journal.rows(query):
                        run = keyed.row
                        if await self._is_free(run) and await runtime.recovery.can_go_on(run):
                            queue = runtime.settings.workers.find_queue(run.agent)
                            await dispatcher.wake(run.session_id, queue=queue)
            await asyncio.sleep(_LOOK_FOR_FORGOTTEN_S)


def _get_time(row: Approval) -> float:
    return row.time


def find_wakeups_url(settings: Settings) -> str:
    """Return the address of the wake-ups, those of the same tenant as the records."""
    records, chosen = settings.storage.url, settings.storage.wakeups_url
    if not chosen:
        return records
    if urlsplit(records).scheme != urlsplit(chosen).scheme:
        raise UsageError(detail="storage.wakeups_url names another kind of store than storage.url.")
    tenants = [dict(parse_qsl(urlsplit(url).query)).get(_TENANT) for url in (records, chosen)]
    if tenants[0] == tenants[1]:
        return chosen
    if tenants[0] is None or tenants[1] is not None:
        raise UsageError(detail="storage.wakeups_url names another tenant than storage.url.")
    return find_tenant_url(chosen, tenants[0]) or chosen


__all__ = ["WorkerService"]
