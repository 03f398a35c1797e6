"""The autonomous loop: give it a goal, resume it, see what it did, move it elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TypeAlias

import msgspec

from holdfast.agents import WAITING_FOR_MODEL
from holdfast.artifacts import ArtifactOptions, forget_missing
from holdfast.canonical import JsonObject
from holdfast.errors import AlreadyExists, InvalidImport, UsageError
from holdfast.journal import SYSTEM_SESSION, Event
from holdfast.messages import ToolPart
from holdfast.orchestration import LOOP_AGENT
from holdfast.orchestration.loop import (
    Crew,
    LoopAgents,
    LoopDriver,
    LoopLimits,
    LoopListener,
    LoopNews,
    LoopOptions,
    LoopOutcome,
    LoopReport,
    LoopSetup,
    LoopState,
    RunFiles,
    RunRecords,
    StepStarted,
    carry_over,
    fold,
    make_report,
    parse_run_file,
)
from holdfast.runtime.artifacts import ArtifactService
from holdfast.runtime.import_rights import list_import_facts
from holdfast.runtime.run_kinds import name_begun_session
from holdfast.runtime.runs import RunService
from holdfast.sessions import (
    MessagePartUpdated,
    Run,
    RunStatus,
    Session,
    SessionChanges,
    SessionManager,
    SessionUpdated,
    compose,
)
from holdfast.settings import Settings
from holdfast.tools import redact_text
from holdfast.turns import Outcome, Turn, TurnQueue

LoopItem: TypeAlias = LoopNews | LoopReport
"""Something that happened, and at the very end the report."""


_ROLES = ("planner", "executor", "reviewer")


def _hear_nothing(_: LoopNews) -> None:
    """There is no subscriber."""


def read_news(event: Event, steps: Mapping[str, str]) -> LoopNews | None:
    """Return what a stored event says to the observer of a loop, `None` if it says nothing.

    `steps` are the sessions of steps, by id.
    """
    if event.is_redacted:
        return None
    if event.kind.startswith(("loop.", "plan.", "step.", "run.")) and event.session_id not in steps:
        fact = event.decode()
        return LoopNews.of_fact(fact, time=event.time)
    if event.kind == MessagePartUpdated.kind and event.session_id in steps:
        part = event.expect(MessagePartUpdated).part
        if isinstance(part, ToolPart) and part.state != "pending":
            step_id = steps[event.session_id]
            return LoopNews(time=event.time, role="executor", step_id=step_id, heard=part)
    return None


class LoopService:
    """Runs autonomous loops: planner, executor, reviewer."""

    def __init__(
        self,
        settings: Settings,
        base_dir: Path,
        sessions: SessionManager,
        turns: TurnQueue,
        runs: RunService,
        artifacts: ArtifactService,
    ) -> None:
        """Work in the workspace of these settings."""
        self._artifacts = artifacts
        self._settings = settings
        self._base_dir = base_dir
        self._sessions = sessions
        self._journal = sessions.journal
        self._turns = turns
        self._runs = runs

    async def run(
        self,
        goal: str,
        *,
        run_id: str = "",
        options: LoopOptions | LoopSetup | None = None,
        listener: LoopListener = _hear_nothing,
    ) -> LoopReport:
        """Plan, work, check and review until the goal is reached or a limit is; then report.

        What it promises and raises stands at the operation `loops.run`.
        """
        chosen = await self._set_up(options or LoopOptions())
        run = await self._find_loop_run(goal, run_id, chosen)
        session = await self._sessions.get_session(run.session_id)

        async def handler(turn: Turn) -> Outcome:
            if turn.run.id != run.id:
                raise turn.make_in_the_way()
            kept = await self._as_begun(chosen, turn.request.options)
            return await self._drive(turn, session, kept, listener)

        run = await self._turns.run(run.id, handler)
        return await self.report(run.id)

    async def submit(
        self, goal: str, *, run_id: str = "", options: LoopOptions | None = None
    ) -> Run:
        """Put a loop into a queue, for a worker on any machine, and return its run."""
        chosen = await self._set_up(options or LoopOptions())
        return await self._find_loop_run(goal, run_id, chosen, is_for_any_process=True)

    async def stream(
        self, goal: str, *, run_id: str = "", options: LoopOptions | LoopSetup | None = None
    ) -> AsyncGenerator[LoopItem, None]:
        """Do the same and yield what happens; the last item is the report.

        Leaving the loop early cancels the run.
        """
        heard: asyncio.Queue[LoopNews | None] = asyncio.Queue()
        work = asyncio.create_task(
            self.run(goal, run_id=run_id, options=options, listener=heard.put_nowait)
        )
        work.add_done_callback(lambda _: heard.put_nowait(None))
        try:
            while (item := await heard.get()) is not None:
                yield item
            yield await work
        finally:
            if not work.done():
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

    async def state(self, run_id: str) -> LoopState:
        """Return where a loop stands: plan, steps, attempts, evidence.

        What it promises and raises stands at the operation `loops.state`.
        """
        run = await self._find_known_loop(run_id)
        return fold(await self._journal.read_all(run.session_id), run.id)

    async def report(self, run_id: str) -> LoopReport:
        """Return the report of a loop; one that is not over is reported as far as it is.

        What it promises and raises stands at the operation `loops.report`.
        """
        run = await self._find_known_loop(run_id)
        state = await self.state(run_id)
        if state.report and run.has_ended and run.status != "cancelled":
            return msgspec.convert(state.report, LoopReport)
        outcomes: dict[RunStatus, LoopOutcome] = {
            "cancelled": "cancelled",
            "failed": "failed",
            "parked": "waiting",
        }
        outcome = outcomes.get(run.status, "working")
        if outcome == "waiting" and run.reason.startswith(WAITING_FOR_MODEL):
            outcome = "waiting_for_model"
        return make_report(
            state,
            run_id=run.id,
            session_id=run.session_id,
            outcome=outcome,
            reason=run.reason or str(run.error.get("message", "")),
            error=run.error,
            files=tuple(state.files),
        )

    async def replay(self, run_id: str) -> list[LoopNews]:
        """Return everything that happened in a loop, in order: its facts and its agents' calls.

        What it promises and raises stands at the operation `loops.replay`.
        """
        run = await self._find_known_loop(run_id)
        events = list(await self._journal.read_all(run.session_id))
        steps = {}
        for event in events:
            if event.kind == StepStarted.kind and not event.is_redacted:
                fact = event.expect(StepStarted)
                steps[fact.session_id] = fact.step_id
        for session_id in steps:
            if await self._journal.head(session_id) is not None:
                events += await self._journal.read_all(session_id)
        events.sort(key=lambda event: event.seq)
        return [news for event in events if (news := read_news(event, steps)) is not None]

    async def export(self, run_id: str, target: str | os.PathLike[str]) -> int:
        """Write a loop as one `run-<id>.jsonl` and return the number of its lines."""
        run = await self._find_known_loop(run_id)
        files = self._run_files(run)
        await files.track_all()
        return await files.write_all(Path(target))

    async def load(self, source: str | os.PathLike[str] | IO[bytes]) -> Run:
        """Bring in a `run-<id>.jsonl`, so that `run` with its id goes on here.

        The whole file is checked before anything is changed. Sessions that are here already
        are left as they are. The run works in this client's workspace from now on. Rights that
        it brings are inert, as those of an imported session are, and calls that it left open are
        given up. Artifacts whose contents are not
        here, because the run comes from another machine, are deleted.

        Raises:
            InvalidImport: the file is none of a run, is damaged or was changed.
        """
        sessions = self._sessions
        records = await asyncio.to_thread(_read_run, source)
        known = await self._turns.find(records.run_id)
        if known is not None and known.session_id != records.session_id:
            raise InvalidImport(detail=f"another run {records.run_id} is here already")
        here = str(await asyncio.to_thread(os.path.abspath, self._settings.workspace))
        for events in records.sessions:
            name = events[0].session_id
            if await self._journal.head(name) is not None or name == SYSTEM_SESSION:
                continue
            # What was allowed there, for there, is not allowed here.
            own = SessionUpdated(changes=SessionChanges(directory=here))
            further = [*list_import_facts(events, workspace=here), own]
            await sessions.import_events(events, further=further)
            await forget_missing(await self._artifacts.opened(), name)
        return await self._turns.get(records.run_id)

    # --- inside -----------------------------------------------------------------------

    async def _set_up(self, options: LoopOptions | LoopSetup) -> LoopSetup:
        """Look up the agents that are named; raises NotFound."""
        if isinstance(options, LoopSetup):
            return options
        named = {role: getattr(options, role) for role in _ROLES if getattr(options, role)}
        return LoopSetup(
            limits=options.limits,
            agents=LoopAgents(**{k: await self._runs.require_agent(v) for k, v in named.items()}),
            model=options.model,
            on_ask=options.on_ask,
            continues=options.continues,
        )

    async def _as_begun(self, chosen: LoopSetup, kept: JsonObject) -> LoopSetup:
        """Put what a loop began with in the place of what whoever resumes it did not say."""
        agents = chosen.agents
        for role in _ROLES:
            name = str(kept.get(role, ""))
            if name and getattr(agents, role) is None:
                agents = replace(agents, **{role: await self._runs.get_agent(name)})
        limits = kept.get("limits")
        return replace(
            chosen,
            limits=msgspec.convert(limits, LoopLimits) if limits else chosen.limits,
            agents=agents,
            on_ask="park" if kept.get("on_ask") == "park" else chosen.on_ask,
            model=chosen.model or str(kept.get("model", "")),
        )

    async def _find_loop_run(
        self, goal: str, run_id: str, options: LoopSetup, *, is_for_any_process: bool = False
    ) -> Run:
        """Return the run of a loop: the known one, woken if it waits, or a new one."""
        sessions = self._sessions
        known = await self._turns.find(run_id) if run_id else None
        if known is None:
            goal = goal.strip() or await self._find_goal(options.continues)
            if not goal:
                raise UsageError(detail="Say what to do: a loop needs a goal.")
            title = " ".join(goal.split())[:60]
            session_id = name_begun_session(run_id)
            with contextlib.suppress(AlreadyExists):
                await sessions.create_session(
                    title, directory=self._settings.workspace, session_id=session_id
                )
            message = compose(session_id, "user", goal, self._journal.clock.now())
            named = {role: getattr(options.agents, role) for role in _ROLES}
            kept = {
                "on_ask": options.on_ask,
                "model": options.model if isinstance(options.model, str) else "",
                **{role: one.name for role, one in named.items() if one is not None},
                "continues": options.continues,
            }
            if is_for_any_process:
                kept["limits"] = msgspec.to_builtins(options.limits)
                kept["queue"] = self._settings.workers.find_queue(LOOP_AGENT)
            return await self._turns.submit(
                session_id,
                message,
                agent=LOOP_AGENT,
                run_id=run_id,
                options=kept,
                is_for_any_process=is_for_any_process,
            )
        if known.agent != LOOP_AGENT:
            raise UsageError(detail=f"The run {run_id} is none of a loop: holdfast run --run-id.")
        if known.status == "parked":
            return await self._turns.wake(
                known.id, cause="resumed", is_for_any_process=is_for_any_process
            )
        return known

    async def _find_goal(self, ended: str) -> str:
        """The goal of a loop that another one is to go on with.

        Raises:
            UsageError: it has not ended, or has reached its goal.
        """
        if not ended:
            return ""
        report = await self.report(ended)
        if report.outcome in ("working", "waiting", "waiting_for_model"):
            raise UsageError(detail=f"The run {ended} has not ended: holdfast runs resume {ended}.")
        if report.is_done:
            raise UsageError(detail=f"The run {ended} has reached its goal.")
        return report.goal

    async def _find_known_loop(self, run_id: str) -> Run:
        run = await self._turns.get(run_id)
        if run.agent != LOOP_AGENT:
            detail = f"The run {run_id} is one of agent {run.agent or 'build'}, not of a loop."
            raise UsageError(detail=detail)
        return run

    def _run_files(self, run: Run) -> RunFiles:
        clock = self._journal.clock
        return RunFiles(self._base_dir, self._sessions, run.id, run.session_id, clock)

    async def _drive(
        self, turn: Turn, session: Session, options: LoopSetup, listener: LoopListener
    ) -> Outcome:
        await self._runs.check_policies()
        clock = self._journal.clock
        files = self._run_files(turn.run)
        crew = Crew(
            self._runs,
            self._sessions,
            session,
            turn.run.id,
            options,
            clock=clock,
            is_new=files.track,
        )
        message = turn.request.message
        ended = str(turn.request.options.get("continues", ""))
        driver = LoopDriver(
            self._runs.services,
            turn,
            session,
            options,
            goal=message.text if message is not None else "",
            crew=crew,
            files=files,
            state_dir=self._base_dir,
            listener=listener,
            inherited=carry_over(await self.state(ended)) if ended else (),
        )
        outcome = await driver.execute()
        state = await self.state(turn.run.id)
        if state.report:
            await self._keep_report(turn, session, msgspec.convert(state.report, LoopReport))
        return outcome

    async def _keep_report(self, turn: Turn, session: Session, report: LoopReport) -> None:
        """Keep the report among the artifacts of the loop's session; again is the same version."""
        store = await self._artifacts.opened()
        actor = msgspec.structs.replace(
            store.actor, session_id=session.id, project_id=session.project_id, run_id=turn.run.id
        )
        content = report.to_markdown().encode()
        if self._journal.redactor is not None:
            content = redact_text(content, self._journal.redactor)
        options = ArtifactOptions(
            media_type="text/markdown", kind="agent_output", tags=("loop-report",)
        )
        await store.act_for(actor, turn).save(
            f"reports/run-{turn.run.id}.md", content, options=options
        )

    async def remove_files(self, runs: Sequence[Run]) -> None:
        """Remove the files of loops among these runs."""
        for run in runs:
            if run.agent == LOOP_AGENT:
                await asyncio.to_thread(self._run_files(run).remove)


def _read_run(source: str | os.PathLike[str] | IO[bytes]) -> RunRecords:
    try:
        if not isinstance(source, str | os.PathLike):
            return parse_run_file(source)
        with open(source, "rb") as file:
            return parse_run_file(file)
    except (OSError, ValueError) as error:
        detail = getattr(error, "strerror", None) or str(error)
        raise InvalidImport(detail=f"it cannot be read: {detail}") from error
