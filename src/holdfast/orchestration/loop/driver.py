"""The loop itself: plan, work, check, review, until the evidence says that it is over.

Facts are kept, never positions in code. The caller that resumes folds them and does the next thing:

    no plan                                  ->  ask the planner
    a step that needs another plan           ->  ask the planner, within bounds
    an attempt without a result              ->  launch the executor, or go on with its run
    a result without checks                  ->  make the checks
    checks that all hold, without a verdict  ->  ask the reviewer
    nothing left                             ->  report
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from holdfast.agents import WAITING_FOR_MCP, WAITING_FOR_MODEL, Agent, Listener
from holdfast.canonical import JsonObject, digest
from holdfast.errors import (
    BudgetExceeded,
    Conflict,
    Damaged,
    GoalNotReached,
    HoldfastError,
    LLMAuthError,
    RunInterrupted,
    StorageError,
)
from holdfast.journal import Event, Payload, decode_payload
from holdfast.messages import ToolPart
from holdfast.orchestration.kinds import LOOP_AGENT
from holdfast.orchestration.loop import roles
from holdfast.orchestration.loop.changes import Snapshot, list_deltas, merge_deltas, take_snapshot
from holdfast.orchestration.loop.checkpoint import RunFiles
from holdfast.orchestration.loop.checks import CheckRound
from holdfast.orchestration.loop.crew import Crew, Worked, waits_for_model
from holdfast.orchestration.loop.events import (
    NOTHING_SPENT,
    FileDelta,
    LoopBegan,
    LoopReported,
    LoopWaited,
    PlanCreated,
    PlanRefused,
    PlanRevised,
    Spent,
    StepChecked,
    StepEnded,
    StepReviewed,
    StepStarted,
    StepWorked,
)
from holdfast.orchestration.loop.lost_servers import find_lost_server
from holdfast.orchestration.loop.options import LoopSetup, StepEvidence
from holdfast.orchestration.loop.plan import DraftPlan, Plan, PlannedStep, find_problems, to_plan
from holdfast.orchestration.loop.report import LoopOutcome, LoopReport, make_report
from holdfast.orchestration.loop.state import LoopState, StepAttempt, StepState, fold
from holdfast.orchestration.loop.verdict import Verdict
from holdfast.providers import Delta
from holdfast.runs import RunServices
from holdfast.sessions import Run, Session
from holdfast.tools import find_new_labels
from holdfast.turns import Outcome, Turn, TurnCancelled, TurnCompleted, TurnFailed, TurnParked

_MOST_ANSWER = 60_000
_FIRST_WAIT_S = 5.0
_LONGEST_WAIT_S = 60.0


class LoopNews(msgspec.Struct, frozen=True, kw_only=True, tag="news"):
    """Something that happened: a fact of the loop, or what one of its agents is doing.

    A fact travels as `kind`, `version` and `data`; `fact` is the same as the event's class.
    """

    time: float
    kind: str = ""
    version: int = 0
    data: JsonObject = msgspec.field(default_factory=dict)
    role: str = ""
    step_id: str = ""
    heard: Delta | ToolPart | None = None

    @classmethod
    def of_fact(cls, fact: Payload, *, time: float) -> LoopNews:
        """Tell a fact of the loop."""
        return cls(
            time=time,
            kind=fact.kind,
            version=fact.schema_version,
            data=msgspec.json.decode(msgspec.json.encode(fact)),
            role=LOOP_AGENT,
            step_id=str(getattr(fact, "step_id", "")),
        )

    @property
    def fact(self) -> Payload | None:
        """The fact, `None` if this tells what an agent is doing."""
        if not self.kind:
            return None
        return decode_payload(self.kind, self.version, msgspec.json.encode(self.data))


LoopListener: TypeAlias = Callable[[LoopNews], None]


class _Ended(Exception):
    """The loop is over; says how."""

    def __init__(
        self,
        outcome: LoopOutcome,
        reason: str = "",
        error: JsonObject | None = None,
        spent: Spent = NOTHING_SPENT,
    ) -> None:
        super().__init__(reason)
        self.outcome: LoopOutcome = outcome
        self.reason = reason
        self.error = error or {}
        self.spent = spent
        """What the run took that is in no fact, because it failed."""


class _Waits(Exception):
    """One of the agents, or a check, waits for a person."""


class LoopDriver:
    """One loop under way, inside its session's lease."""

    def __init__(  # noqa: PLR0913 - what one loop works with
        self,
        services: RunServices,
        turn: Turn,
        session: Session,
        options: LoopSetup,
        *,
        goal: str,
        crew: Crew,
        files: RunFiles,
        state_dir: Path,
        listener: LoopListener,
        inherited: Sequence[Payload] = (),
    ) -> None:
        """Made by the runtime, once per time that the run is taken up.

        `inherited` are facts of another run with which this one begins.
        """
        self._inherited = inherited
        self._turn = turn
        self._session = session
        self._goal = goal
        self._options = options
        self._services = services
        self._crew = crew
        self._files = files
        self._state_dir = state_dir
        self._clock = services.clock
        self._listener = listener
        self._state = LoopState()
        self._marks = asyncio.Lock()
        self._snapshot: Snapshot | None = None
        self._is_marked = True

    async def execute(self) -> Outcome:
        """Work until the loop is over, waits, is cancelled, or its time is over."""
        events = await self._services.sessions.journal.read_all(self._session.id)
        self._state = fold(events, self._turn.run.id)
        await self._files.open()
        if self._state.report:
            return await self._make_outcome(msgspec.convert(self._state.report, LoopReport))
        self._state.goal = self._state.goal or self._goal
        if not self._state.has_begun:
            self._state.limits = self._options.limits
        limits, now = self._state.limits, self._clock.now()
        body = asyncio.create_task(self._read_body())
        stop = asyncio.create_task(self._turn.cancelled.wait())
        try:
            left = max(0.0, limits.wall_s - self._state.measure_elapsed(now))
            await asyncio.wait({body, stop}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if body.done():
                return await body
            await _cancel(body)
            if self._turn.cancelled.is_set():
                return TurnCancelled(reason=self._turn.cancel_reason)
            self._state.spent += self._crew.interrupted
            return await self._finish("time", f"It was not done after {limits.wall_s:g} s of work.")
        finally:
            stop.cancel()
            await asyncio.shield(_cancel(body))
            await asyncio.shield(self._files.close())

    async def _read_body(self) -> Outcome:
        try:
            await self._work()
        except _Ended as ended:
            self._state.spent += ended.spent
            return await self._finish(ended.outcome, ended.reason, ended.error)
        except BudgetExceeded as error:
            return await self._finish("budget", str(error), error.to_dict())
        except _Waits as waits:
            return TurnParked(reason=str(waits))
        except (Conflict, Damaged, StorageError, RunInterrupted):
            raise  # the records themselves, or the machine: nothing can be reported now
        except HoldfastError as error:
            return await self._finish("failed", str(error), error.to_dict())
        return await self._finish("done")

    async def _work(self) -> None:
        state = self._state
        if not state.has_begun:
            await self._look_at_workspace(is_first=True)
            await self._note(
                LoopBegan(
                    goal=self._goal,
                    limits=self._options.limits,
                    planner=self._crew.planner.name,
                    executor=self._crew.executor.name,
                    reviewer=self._crew.reviewer.name,
                ),
                *self._inherited,
            )
        while not state.is_done:
            if state.plan is None:
                await self._make_plan()
            elif state.replan_reason:
                await self._revise_plan()
            else:
                await self._work_on_steps()

    # --- planning ---------------------------------------------------------------------

    async def _make_plan(self) -> None:
        message = roles.ask_for_plan(self._state.goal, self._options.functions)
        draft, worked, session = await self._ask_planner(message)
        plan = to_plan(draft)
        await self._note(PlanCreated(plan=plan, session_id=session.id, spent=worked.spent))

    async def _revise_plan(self) -> None:
        state = self._state
        assert state.plan is not None
        reason = state.replan_reason
        if state.revision >= state.limits.max_replans:
            raise _Ended("retries", f"{reason}\n\nThe plan was revised {state.revision} times.")
        draft, worked, session = await self._ask_planner(roles.ask_for_other_plan(state))
        kept = [step.step for step in state.steps.values() if step.status == "done"]
        plan = to_plan(draft, kept)
        if _is_same(plan, state.plan):
            why = f"{reason}\n\nThe planner handed in the same plan again."
            raise _Ended("stalled", why, spent=worked.spent)
        await self._note(
            PlanRevised(
                revision=state.revision + 1,
                plan=plan,
                reason=reason,
                session_id=session.id,
                spent=worked.spent,
            )
        )

    async def _ask_planner(self, message: str) -> tuple[DraftPlan, Worked, Session]:
        """Return a sound plan; one that is not is sent back with what is wrong, a few times."""
        state = self._state
        title = f"Plan {state.revision + 1}"
        session = await self._crew.child(
            title, self._state.limits, "plan", state.revision, bool(state.plan)
        )
        while True:
            if state.refusals:
                message = roles.ask_again(state.goal, state.problems)
            run_id = self._crew.run_id(session.id, state.refusals)
            worked = await self._ask(
                self._crew.planner,
                session,
                run_id,
                message,
                role="planner",
            )
            await self._read_of(session)
            draft = self._draft_of(worked)
            problems = find_problems(
                draft,
                most_steps=state.limits.max_steps,
                functions=self._options.functions,
                known_ids=state.done,
            )
            if not problems:
                return draft, worked, session
            await self._note(PlanRefused(problems=tuple(problems), spent=worked.spent))
            if state.refusals >= state.limits.max_plan_asks:
                listed = "\n".join(f"- {problem}" for problem in problems)
                raise _Ended("no_plan", f"The plan is not sound:\n{listed}")

    def _draft_of(self, worked: Worked) -> DraftPlan:
        self._check_alive(worked, "planner")
        output = worked.result.output if worked.result is not None else None
        if not isinstance(output, DraftPlan):
            told = str(worked.error.get("message", "")) or f"the planner {worked.status}"
            raise _Ended("no_plan", f"No plan was handed in: {told}", worked.error, worked.spent)
        return output

    # --- steps ------------------------------------------------------------------------

    async def _work_on_steps(self) -> None:
        """Work on whatever is ready until the plan has to change or nothing is left."""
        state = self._state
        assert state.plan is not None
        running: dict[asyncio.Task[None], str] = {}
        waits: _Waits | RunInterrupted | None = None
        try:
            while True:
                if not state.replan_reason and waits is None:
                    free = state.limits.parallel - len(running)
                    for step in state.plan.ready(state.done, set(running.values()))[:free]:
                        task = asyncio.create_task(self._work_on(state.steps[step.id]))
                        running[task] = step.id
                if not running:
                    break
                over, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in over:
                    del running[task]
                    try:
                        task.result()
                    except (_Waits, RunInterrupted) as found:
                        # What does not wait is finished first, so that it is not lost.
                        waits = found
        finally:
            for task in running:
                await asyncio.shield(_cancel(task))
        if waits is not None:
            raise waits

    async def _work_on(self, step: StepState) -> None:
        """Take one step from where it stands to its end."""
        while True:
            attempt = await self._find_current_attempt(step)
            await self._do(step, attempt)
            if attempt.failure == "":
                await self._note(StepEnded(step_id=step.step.id, status="done"))
                return
            if await self._was_cut_off(step, attempt):
                continue
            verdict = attempt.reviewed.verdict if attempt.reviewed is not None else "retry"
            if verdict == "give_up":
                await self._fail(step, "gave_up", attempt.failure)
            if verdict == "replan":
                await self._note(
                    StepEnded(step_id=step.step.id, status="replan", reason=attempt.failure)
                )
                return
            if await self._is_exhausted(step, attempt):
                return

    async def _is_exhausted(self, step: StepState, attempt: StepAttempt) -> bool:
        """Say whether a step gets no further attempt, and note what happens instead."""
        limits = self._state.limits
        is_stalled = step.is_stalled
        if not is_stalled and step.spent < limits.max_attempts:
            return False
        why = (
            f"Nothing changed from attempt {len(step.attempts) - 1} to {len(step.attempts)}."
            if is_stalled
            else f"It was not good enough after {step.spent} attempts."
        )
        reason = f"{why}\n{attempt.failure}"
        if self._state.revision >= limits.max_replans:
            await self._fail(step, "stalled" if is_stalled else "retries", reason)
        await self._note(StepEnded(step_id=step.step.id, status="replan", reason=reason))
        return True

    async def _was_cut_off(self, step: StepState, attempt: StepAttempt) -> bool:
        """Say whether an attempt failed while an MCP server was out; it then does not count.

        The next attempt comes after a wait; after `model_wait_s` of waits the loop parks.
        """
        if not attempt.is_excused:
            journal = self._services.sessions.journal
            reason = await find_lost_server(journal, attempt.started.run_id)
            if not reason:
                return False
            tries = 1 + sum(one.is_excused for one in step.attempts)
            waits = [min(_FIRST_WAIT_S * 2**n, _LONGEST_WAIT_S) for n in range(tries)]
            is_over = sum(waits) > self._state.limits.model_wait_s
            at = 0.0 if is_over else self._clock.now() + waits[-1]
            await self._note(
                LoopWaited(
                    role="mcp", step_id=step.step.id, reason=reason, next_try=at, tries=tries
                )
            )
            if is_over:
                raise _Waits(f"{WAITING_FOR_MCP}: step {step.step.id}: {reason}")
            await asyncio.sleep(waits[-1])
        return True

    async def _fail(self, step: StepState, outcome: LoopOutcome, reason: str) -> None:
        await self._note(StepEnded(step_id=step.step.id, status="failed", reason=reason))
        raise _Ended(outcome, f"Step {step.step.id} ({step.step.title}): {reason}")

    async def _find_current_attempt(self, step: StepState) -> StepAttempt:
        """Return the attempt that is under way, or begin another one."""
        last = step.attempts[-1] if step.attempts else None
        if last is not None and last.failure == "":
            return last
        number = len(step.attempts) + 1
        key = (self._state.revision, step.step.id)
        await self._note(
            StepStarted(
                step_id=step.step.id,
                attempt=number,
                session_id=self._crew.session_id("step", *key),
                run_id=self._crew.run_id("step", *key, number),
                because=last.failure if last is not None else "",
            )
        )
        return step.attempts[-1]

    async def _do(self, step: StepState, attempt: StepAttempt) -> None:
        """Work, check and review, whichever of them is still to be done."""
        if attempt.worked is None:
            await self._note(await self._execute(step.step, attempt))
        assert attempt.worked is not None
        if attempt.worked.status != "completed":
            return
        if attempt.checked is None:
            await self._note(await self._check(step.step, attempt))
        assert attempt.checked is not None
        if attempt.checked.is_passed and attempt.reviewed is None:
            await self._note(await self._review(step.step, attempt))

    async def _execute(self, step: PlannedStep, attempt: StepAttempt) -> StepWorked:
        started = attempt.started
        session = await self._crew.child(
            step.title, self._state.limits, "step", self._state.revision, step.id
        )
        worked = await self._ask(
            self._crew.executor,
            session,
            started.run_id,
            roles.ask_for_work(self._state, step, started.because),
            role="executor",
            step_id=step.id,
        )
        await self._read_of(session)
        self._check_alive(worked, "executor")
        await self._files.track_below(session.id)
        return StepWorked(
            step_id=step.id,
            attempt=started.attempt,
            status=worked.status,
            answer=worked.answer[:_MOST_ANSWER],
            error=worked.error,
            tools_used=worked.result.tools_used if worked.result is not None else (),
            spent=worked.spent,
        )

    async def _check(self, step: PlannedStep, attempt: StepAttempt) -> StepChecked:
        assert attempt.worked is not None
        number = attempt.started.attempt
        key = ("checks", self._state.revision, step.id, number)
        session = await self._crew.child(f"Checks of {step.id}", self._state.limits, *key)
        evidence = StepEvidence(
            goal=self._state.goal,
            step_id=step.id,
            attempt=number,
            answer=attempt.worked.answer,
            workspace=self._session.directory,
        )
        round_ = CheckRound(
            self._services,
            self._crew.executor,
            step,
            evidence,
            functions=self._options.functions,
            terms=msgspec.structs.replace(self._services.terms, on_ask=self._options.on_ask),
        )
        results = await round_.run(session, self._crew.run_id(*key))
        await self._read_of(session)
        if isinstance(results, Run):
            raise _Waits(f"a check of step {step.id} waits: {results.reason}")
        files = await self._look_at_workspace()
        return StepChecked(step_id=step.id, attempt=number, results=results, files=tuple(files))

    async def _review(self, step: PlannedStep, attempt: StepAttempt) -> StepReviewed:
        number = attempt.started.attempt
        key = ("review", self._state.revision, step.id)
        session = await self._crew.child(f"Review of {step.id}", self._state.limits, *key)
        worked = await self._ask(
            self._crew.reviewer,
            session,
            self._crew.run_id(*key, number),
            roles.ask_for_review(self._state, step, attempt),
            role="reviewer",
            step_id=step.id,
        )
        await self._read_of(session)
        self._check_alive(worked, "reviewer")
        output = worked.result.output if worked.result is not None else None
        if not isinstance(output, Verdict):
            told = str(worked.error.get("message", "")) or f"the reviewer {worked.status}"
            why = f"Step {step.id} could not be reviewed: {told}"
            raise _Ended("failed", why, worked.error, worked.spent)
        return StepReviewed(
            step_id=step.id,
            attempt=number,
            verdict=output.verdict,
            reason=output.reason[:_MOST_ANSWER],
            session_id=session.id,
            spent=worked.spent,
        )

    async def _ask(
        self,
        agent: Agent,
        session: Session,
        run_id: str,
        message: str,
        *,
        role: str,
        step_id: str = "",
    ) -> Worked:
        """Let one of the agents work; while nobody answers for its model, ask again.

        That spends no attempt: the same run goes on where it was, with all that it has said and
        done. After `model_wait_s` the loop parks, and whoever resumes it asks again.
        """
        listener = self._hear(role, step_id)
        waited, tries = 0.0, 0
        while True:
            worked = await self._crew.work(
                agent, session, run_id, message, state=self._state, listener=listener
            )
            if not (reason := waits_for_model(worked)):
                return worked
            delay, tries = min(_FIRST_WAIT_S * 2**tries, _LONGEST_WAIT_S), tries + 1
            is_over = waited + delay > self._state.limits.model_wait_s
            at = 0.0 if is_over else self._clock.now() + delay
            await self._note(
                LoopWaited(role=role, step_id=step_id, reason=reason, next_try=at, tries=tries)
            )
            if is_over:
                raise _Waits(f"{WAITING_FOR_MODEL}: the {role}: {reason}")
            await asyncio.sleep(delay)
            waited += delay

    async def _read_of(self, child: Session) -> None:
        """Take on the taint labels of a child: what it answered is in later prompts."""
        journal = self._services.sessions.journal
        if new := await find_new_labels(journal, self._session.id, child.id):
            await self._turn.append(*new, agent_path=LOOP_AGENT)

    def _check_alive(self, worked: Worked, role: str) -> None:
        """Stop at once for what no further attempt can mend."""
        if worked.status == "parked":
            reason = worked.result.metadata.get("reason", "") if worked.result is not None else ""
            raise _Waits(f"the {role} waits: {reason}")
        code = worked.error.get("code")
        if code == BudgetExceeded.code:
            told = str(worked.error.get("message", ""))
            raise _Ended("budget", told, worked.error, worked.spent)
        if code == LLMAuthError.code:
            told = str(worked.error.get("message", ""))
            raise _Ended("failed", told, worked.error, worked.spent)

    # --- facts ------------------------------------------------------------------------

    async def _note(self, *facts: Payload) -> None:
        """Keep facts, fold them, write the checkpoint, and tell a subscriber."""
        events = await self._turn.append(*facts, agent_path=LOOP_AGENT)
        for event, fact in zip(events, facts, strict=True):
            self._state.apply(fact, event.time)
        if self._snapshot is not None and not self._is_marked:
            # Only now that what changed is a fact may it be forgotten that it is news.
            self._is_marked = True
            await asyncio.to_thread(self._snapshot.save, self._files.marks_path)
        await self._files.write()
        for event, fact in zip(events, facts, strict=True):
            self._tell(event, fact)

    def _tell(self, event: Event, fact: Payload) -> None:
        self._listener(LoopNews.of_fact(fact, time=event.time))

    def _hear(self, role: str, step_id: str = "") -> Listener:
        def hear(heard: Delta | ToolPart) -> None:
            if isinstance(heard, ToolPart):
                self._files.write_soon()
            news = LoopNews(time=self._clock.now(), role=role, step_id=step_id, heard=heard)
            self._listener(news)

        return hear

    async def _look_at_workspace(self, *, is_first: bool = False) -> list[FileDelta]:
        """Return what changed since the last look, and remember how things are now."""
        async with self._marks:
            workspace = self._services.confinement.workspace(self._session.directory)
            place = self._files.marks_path
            if self._snapshot is None and not is_first:
                self._snapshot = await asyncio.to_thread(Snapshot.load, place)
            before, hidden = self._snapshot, _limit_within(self._state_dir, workspace.root)
            now = await asyncio.to_thread(take_snapshot, workspace, before=before, hidden=hidden)
            self._snapshot = now
            # Marks of files that did not change are the same objects, so this is quick.
            self._is_marked = is_first or (self._is_marked and now == before)
            if is_first:
                await asyncio.to_thread(now.save, place)
            known = {change.path: change for change in self._state.files}
            return list_deltas(before, now, known) if before is not None else []

    async def _finish(
        self, outcome: LoopOutcome, reason: str = "", error: JsonObject | None = None
    ) -> Outcome:
        """Report, and say how the run ends."""
        state, now = self._state, self._clock.now()
        changes = list(state.files)
        if state.has_begun:
            changes += await self._look_at_workspace()
        marks = self._snapshot.files if self._snapshot is not None else {}
        report = make_report(
            state,
            run_id=self._turn.run.id,
            session_id=self._session.id,
            outcome=outcome,
            reason=reason,
            error=error,
            files=merge_deltas(changes, marks),
            now=now,
        )
        await self._note(LoopReported(report=report.to_json()))
        return await self._make_outcome(report)

    async def _make_outcome(self, report: LoopReport) -> Outcome:
        await self._files.keep_report(report)
        if report.is_done:
            return TurnCompleted(result={"outcome": report.outcome})
        if report.outcome in ("budget", "failed") and report.error.get("code"):
            return TurnFailed(error=report.error)
        stopped: HoldfastError = GoalNotReached(
            outcome=report.outcome, reason=report.reason[:2_000], run_id=report.run_id
        )
        return TurnFailed(error=stopped.to_dict())


def _is_same(one: Plan, other: Plan) -> bool:
    return digest(one.steps) == digest(other.steps)


def _limit_within(path: Path, root: str) -> tuple[str, ...]:
    """Return the relative path of a directory inside the workspace, nothing if it is outside."""
    try:
        relative = path.resolve().relative_to(Path(root).resolve())
    except ValueError:
        return ()
    return (str(relative),)


async def _cancel(task: asyncio.Task[Any]) -> None:
    """End a task and wait for its end; what it raises is no caller's business any more."""
    if not task.done():
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
