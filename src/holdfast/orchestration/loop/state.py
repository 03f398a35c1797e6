"""Where a loop stands: its facts, folded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec

from holdfast.canonical import JsonObject, digest
from holdfast.journal import Event, Payload
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
from holdfast.orchestration.loop.options import LoopLimits
from holdfast.orchestration.loop.plan import Plan, PlannedStep
from holdfast.sessions import events as facts

StepStatus: TypeAlias = Literal["pending", "working", "done", "failed"]


@dataclass
class StepAttempt:
    """One try at a step, as far as it has come."""

    started: StepStarted
    worked: StepWorked | None = None
    checked: StepChecked | None = None
    reviewed: StepReviewed | None = None
    is_excused: bool = False
    """Whether a server was out that it needed: then it does not count."""

    @property
    def failure(self) -> str:
        """Say why the attempt is not good enough; empty if it is, or is not over."""
        if self.worked is not None and self.worked.status != "completed":
            told = str(self.worked.error.get("message", "")) or "it gave no answer"
            return f"The executor {self.worked.status}: {told}"
        if self.checked is not None and not self.checked.is_passed:
            failed = [result for result in self.checked.results if not result.is_passed]
            return "Checks failed:\n" + "\n".join(
                f"- {result.check.label}: {result.detail}" for result in failed
            )
        if self.reviewed is not None and self.reviewed.verdict != "accept":
            return f"The reviewer says {self.reviewed.verdict}: {self.reviewed.reason}"
        return ""

    @property
    def signature(self) -> str:
        """Equal for two attempts that came to the same end without changing a file."""
        files = [[f.path, f.sha256] for f in self.checked.files] if self.checked else []
        worked = self.worked
        answer = worked.answer if worked is not None else ""
        return digest([self.failure, files, answer])


@dataclass
class StepState:
    """What has become of one step."""

    step: PlannedStep
    status: StepStatus = "pending"
    attempts: list[StepAttempt] = field(default_factory=list)
    reason: str = ""

    @property
    def spent(self) -> int:
        """How many attempts count."""
        return sum(not attempt.is_excused for attempt in self.attempts)

    @property
    def is_stalled(self) -> bool:
        """Say whether the last two attempts came to the same end: another one would as well.

        The same failure counts as the same end too, if no file changed in the last attempt.
        """
        if len(self.attempts) < 2:
            return False
        before, last = self.attempts[-2:]
        if not last.failure or before.is_excused or last.is_excused:
            return False
        if before.signature == last.signature:
            return True
        has_changed = last.checked is not None and bool(last.checked.files)
        is_check = last.reviewed is None
        return is_check and before.failure == last.failure and not has_changed


@dataclass
class LoopState:
    """Everything that is known about a loop."""

    goal: str = ""
    limits: LoopLimits = field(default_factory=LoopLimits)
    plan: Plan | None = None
    plan_session: str = ""
    revision: int = 0
    refusals: int = 0
    problems: tuple[str, ...] = ()
    has_begun: bool = False
    steps: dict[str, StepState] = field(default_factory=dict)
    replan_reason: str = ""
    spent: Spent = NOTHING_SPENT
    files: list[FileDelta] = field(default_factory=list)
    """Every change of every attempt, in the order in which they were seen."""
    report: JsonObject = field(default_factory=dict)
    worked_s: float = 0.0
    """Time in which the loop was at work, up to its last fact."""
    began_at: float = 0.0
    done: set[str] = field(default_factory=set)
    """The ids of steps that are done."""
    _segment_start: float = 0.0
    _last_time: float = 0.0

    @property
    def is_done(self) -> bool:
        """Say whether every step of the plan is done."""
        return self.plan is not None and len(self.done) == len(self.plan.steps)

    def measure_elapsed(self, now: float) -> float:
        """Return for how long the loop has worked, the present stretch included."""
        return self.worked_s + max(0.0, now - self._segment_start)

    def apply(self, fact: Payload, time: float) -> None:
        """Fold one fact."""
        if isinstance(fact, facts.RunStarted | facts.RunResumed):
            if self._segment_start:
                self.worked_s += max(0.0, self._last_time - self._segment_start)
            self._segment_start = time
            self.began_at = self.began_at or time
        self._last_time = time
        self.spent += getattr(fact, "spent", NOTHING_SPENT)
        match fact:
            case LoopBegan(goal=goal, limits=limits):
                self.goal, self.limits, self.has_begun = goal, limits, True
            case PlanRefused(problems=problems):
                self.refusals += 1
                self.problems = problems
            case PlanCreated(plan=plan, session_id=session_id):
                self._take(plan, session_id)
            case PlanRevised(plan=plan, session_id=session_id, revision=revision):
                self.revision = revision
                self._take(plan, session_id)
            case LoopReported(report=report):
                self.report = report
            case LoopWaited(role="mcp", step_id=step_id):
                if step_id in self.steps and self.steps[step_id].attempts:
                    self.steps[step_id].attempts[-1].is_excused = True
            case StepStarted() | StepWorked() | StepChecked() | StepReviewed() | StepEnded():
                self._apply_step(fact)

    def _take(self, plan: Plan, session_id: str) -> None:
        """Work by another plan; what is done stays done, everything else begins anew."""
        kept = {name: self.steps[name] for name in self.done}
        self.plan, self.plan_session = plan, session_id
        self.steps = {step.id: kept.get(step.id, StepState(step)) for step in plan.steps}
        self.done &= self.steps.keys()
        self.refusals, self.problems, self.replan_reason = 0, (), ""

    def _apply_step(
        self, fact: StepStarted | StepWorked | StepChecked | StepReviewed | StepEnded
    ) -> None:
        state = self.steps.get(fact.step_id)
        if state is None:
            return
        match fact:
            case StepStarted():
                state.attempts.append(StepAttempt(started=fact))
                state.status = "working"
            case StepWorked():
                state.attempts[-1].worked = fact
            case StepChecked():
                state.attempts[-1].checked = fact
                self.files += fact.files
            case StepReviewed():
                state.attempts[-1].reviewed = fact
            case StepEnded(status=status, reason=reason):
                state.status = "done" if status == "done" else "failed"
                state.reason = reason
                if status == "done":
                    self.done.add(fact.step_id)
                if status == "replan":
                    self.replan_reason = f"Step {fact.step_id}: {reason}"


def carry_over(state: LoopState) -> list[Payload]:
    """Return the facts with which another run goes on from here: the plan, and what is done.

    What it cost stays with the run that spent it. Steps that are not done begin anew.
    """
    if state.plan is None:
        return []
    carried: list[Payload] = [PlanCreated(plan=state.plan, session_id=state.plan_session)]
    for step in state.steps.values():
        if step.status == "done":
            last = step.attempts[-1]
            made = (last.started, last.worked, last.checked, last.reviewed)
            carried += [_strip_usage(fact) for fact in made if fact is not None]
            carried.append(StepEnded(step_id=step.step.id, status="done"))
    return carried


def _strip_usage(fact: Payload) -> Payload:
    if isinstance(fact, StepWorked | StepReviewed):
        return msgspec.structs.replace(fact, spent=NOTHING_SPENT)
    return fact


def fold(events: Iterable[Event], run_id: str) -> LoopState:
    """Return where a loop stands, from the events of its session."""
    state = LoopState()
    for event in events:
        if event.run_id == run_id:
            state.apply(event.decode(), event.time)
    return state
