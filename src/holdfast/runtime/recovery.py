"""What becomes of runs when a process stops and another one starts in its place.

A process that is told to stop lets running turns go on for a while, then leaves them as a crash
would, only with their leases given back. A process that starts goes on with every run that was
under way, whatever started it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from holdfast.agents import WAITING_FOR_MCP, WAITING_FOR_MODEL, KeptRequest, RunRequest
from holdfast.errors import HoldfastError, StorageError
from holdfast.journal import Condition, RowQuery
from holdfast.observability import Logger
from holdfast.orchestration import AGENT_PREFIX, LOOP_AGENT
from holdfast.runtime.import_rights import HELD_RUNS
from holdfast.runtime.load_watch import LoadWatch
from holdfast.runtime.run_kinds import find_called_tool
from holdfast.sessions import RUNS, Run, request_of
from holdfast.sessions import events as facts

if TYPE_CHECKING:
    from holdfast.runtime.runtime import Runtime

_log = Logger("holdfast.recovery")
_MOST = 10_000
_LOOK_S = 0.05
FIRST_TRY_S = 30.0
"""So long a run waits for its model before it is asked again by itself."""
LONGEST_PAUSE_S = 900.0
_LOOK_FOR_OUTAGES_S = 5.0
OUTAGES = (WAITING_FOR_MODEL, WAITING_FOR_MCP)


class RecoveryService:
    """Leaves runs to the next process, and takes over those of the last one."""

    def __init__(self, runtime: Runtime) -> None:
        """Look after the runs of this runtime."""
        self._runtime = runtime
        self._tasks: set[asyncio.Task[Any]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._counting: asyncio.Task[None] | None = None

    async def resume_all(self) -> list[str]:
        """Begin to go on with every run that was under way or queued, and return their ids.

        Each goes on in the background. One whose process still lives is left to it; one that
        another run started goes on with that one.
        """
        runtime = self._runtime
        found: list[Run] = []
        for status in ("running", "queued"):
            query = RowQuery(
                projection=RUNS, where=(Condition("status", "=", status),), limit=_MOST
            )
            found += [keyed.row for keyed in await runtime.journal.rows(query)]
        return [run.id for run in sorted(found, key=lambda one: one.id) if await self._resume(run)]

    def follow_answers(self) -> None:
        """Go on from now on with every run that somebody has answered, in whichever process."""
        self._keep(asyncio.create_task(self._follow_answers(), name="follow-answers"))

    def follow_outages(self) -> None:
        """Go on by itself from now on with every run that waits for a model or an MCP server.

        Each is asked again after 30 s, then after twice as long each time, up to 15 minutes; one
        that still gets no answer parks again, and nothing is spent.
        """
        if self._watching is None:
            self._watching = asyncio.create_task(self._follow_outages(), name="follow-outages")
            runtime = self._runtime
            watch = LoadWatch(runtime.settings, runtime.journal, runtime.tenant)
            self._counting = asyncio.create_task(watch.follow(), name="load-watch")

    async def _follow_outages(self) -> None:
        waits: dict[str, tuple[float, float]] = {}
        loop = asyncio.get_running_loop()
        query = RowQuery(projection=RUNS, where=(Condition("status", "=", "parked"),), limit=_MOST)
        while True:
            with contextlib.suppress(StorageError):
                now = loop.time()
                rows = [keyed.row for keyed in await self._runtime.journal.rows(query)]
                waiting = {run.id: run for run in rows if run.reason.startswith(OUTAGES)}
                for run_id, run in waiting.items():
                    due, pause = waits.setdefault(run_id, (now + FIRST_TRY_S, FIRST_TRY_S))
                    if due <= now:
                        pause = min(pause * 2, LONGEST_PAUSE_S)
                        waits[run_id] = (now + pause, pause)
                        await self._resume(run)
            await asyncio.sleep(min(_LOOK_FOR_OUTAGES_S, FIRST_TRY_S))
            # Those that work, or ended, begin anew should they wait once more, much later.
            waits = {one: (due, p) for one, (due, p) in waits.items() if due > now - 2 * p}

    async def close(self) -> None:
        """Stop looking for runs that wait; those that go on are left to their rooms."""
        for task in (self._watching, self._counting):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._watching = self._counting = None

    async def _follow_answers(self) -> None:
        runtime = self._runtime
        async with contextlib.aclosing(runtime.feed.follow_all()) as feed:
            async for event in feed:
                if event.kind != facts.RunWoken.kind:
                    continue
                run = await runtime.turns.find(event.expect(facts.RunWoken).run_id)
                if run is not None and not run.has_ended:
                    await self._resume(run)

    async def can_go_on(self, run: Run) -> bool:
        """Say whether a run goes on by itself, and not with the run that started it."""
        return await self._work_of(run) is not None

    async def go_on(self, run: Run) -> bool:
        """Execute a run until it rests; `False` if it goes on with the run that started it.

        Raises:
            HoldfastError: it cannot be gone on with here.
        """
        work = await self._work_of(run, is_awaited=True)
        if work is None:
            return False
        await work()
        return True

    async def _resume(self, run: Run) -> bool:
        work = await self._work_of(run)
        if work is None:
            return False
        self._keep(asyncio.create_task(self._see_to(run, work), name=f"resume-{run.id}"))
        return True

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def let_go(self, grace_s: float) -> int:
        """Wait for running turns, at most so long; returns how many are left to the next process.

        From then on what is cancelled here stays interrupted, and goes on elsewhere.
        """
        turns = self._runtime.turns
        deadline = asyncio.get_running_loop().time() + grace_s
        # Asked again and again, for a few seconds of a shutdown.
        while turns.executor.active and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)
        turns.is_leaving = True
        await self.close()
        left = turns.executor.active
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return left

    async def _work_of(
        self, run: Run, *, is_awaited: bool = False
    ) -> Callable[[], Awaitable[object]] | None:
        """Return what goes on with a run; `None` if that is not for us to do.

        An agent's run goes on in the background unless it is awaited.
        """
        runtime = self._runtime
        if await self._is_held(run):
            return None
        if run.agent == LOOP_AGENT:
            return lambda: runtime.loops.run("", run_id=run.id)
        if run.agent.startswith(AGENT_PREFIX):
            return lambda: runtime.workflows.resume(run.id)
        if await find_called_tool(runtime.journal, run):
            return lambda: runtime.hand_calls.call("", {}, session_id="", run_id=run.id)
        kept = KeptRequest.of((await request_of(runtime.journal, run)).options)
        if kept.starter is not None:
            return None
        request = RunRequest(agent=run.agent, message="", run_id=run.id, on_ask=kept.on_ask)
        execute = runtime.runs.execute if is_awaited else runtime.runs.start
        return lambda: execute(request)

    async def _is_held(self, run: Run) -> bool:
        """Say whether a run was imported: it goes on only by its own id."""
        session = await self._runtime.sessions.get_session(run.session_id)
        held = session.metadata.get(HELD_RUNS)
        return isinstance(held, list) and run.id in held

    async def _see_to(self, run: Run, work: Callable[[], Awaitable[object]]) -> None:
        try:
            await work()
        except HoldfastError as error:
            _log.warning("a run could not be gone on with", run_id=run.id, error=str(error))


__all__ = ["RecoveryService"]
