"""The facts of a loop; a restart folds them and goes on inside the unfinished step."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from holdfast.canonical import JsonObject
from holdfast.journal import Payload, payload
from holdfast.orchestration.loop.options import LoopLimits
from holdfast.orchestration.loop.plan import Check, Plan
from holdfast.orchestration.loop.verdict import Decision

ChangeKind: TypeAlias = Literal["added", "changed", "removed"]
StepEnd: TypeAlias = Literal["done", "replan", "failed"]
_EMPTY_PLAN = Plan(steps=())


class Spent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one run of an agent took."""

    tokens: int = 0
    cost_usd: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        """Return the sum."""
        return Spent(
            tokens=self.tokens + other.tokens,
            cost_usd=self.cost_usd + other.cost_usd,
            seconds=self.seconds + other.seconds,
        )


NOTHING_SPENT = Spent()


class FileDelta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that a step changed; `before` is its text before the loop touched it first.

    `before` is left out where it is not text or too long to be kept.
    """

    path: str
    change: ChangeKind
    sha256: str = ""
    before: str | None = None
    diff: str = ""
    added: int = 0
    removed: int = 0


class CheckResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one check."""

    check: Check
    is_passed: bool
    detail: str = ""
    """What was seen: the end of the output, the text that was missing, who refused."""


@payload("loop.began", is_inherited=False, has_content=True)
class LoopBegan(Payload, frozen=True, kw_only=True):
    """A caller gave a goal; these are the limits and the agents."""

    goal: str
    limits: LoopLimits
    planner: str = ""
    executor: str = ""
    reviewer: str = ""

    def redacted(self) -> LoopBegan:
        """Keep limits and agents; drop the goal."""
        return msgspec.structs.replace(self, goal="")


@payload("plan.created", is_inherited=False, has_content=True)
class PlanCreated(Payload, frozen=True, kw_only=True):
    """A sound plan was handed in."""

    plan: Plan
    session_id: str = ""
    spent: Spent = NOTHING_SPENT

    def redacted(self) -> PlanCreated:
        """Keep what it cost; drop the plan."""
        return msgspec.structs.replace(self, plan=_EMPTY_PLAN)


@payload("plan.refused", is_inherited=False, has_content=True)
class PlanRefused(Payload, frozen=True, kw_only=True):
    """A plan that is not sound was handed in; the planner is told why."""

    problems: tuple[str, ...]
    spent: Spent = NOTHING_SPENT

    def redacted(self) -> PlanRefused:
        """Keep that it happened."""
        return msgspec.structs.replace(self, problems=())


@payload("plan.revised", is_inherited=False, has_content=True)
class PlanRevised(Payload, frozen=True, kw_only=True):
    """Another plan takes the place of what is not done yet."""

    revision: int
    plan: Plan
    reason: str
    session_id: str = ""
    spent: Spent = NOTHING_SPENT

    def redacted(self) -> PlanRevised:
        """Keep number and cost; drop plan and reason."""
        return msgspec.structs.replace(self, plan=_EMPTY_PLAN, reason="")


@payload("step.started", is_inherited=False, has_content=True)
class StepStarted(Payload, frozen=True, kw_only=True):
    """An attempt at a step begins; `because` is why the one before was not good enough."""

    step_id: str
    attempt: int
    session_id: str
    run_id: str
    because: str = ""

    def redacted(self) -> StepStarted:
        """Keep which; drop the reason."""
        return msgspec.structs.replace(self, because="")


@payload("step.worked", is_inherited=False, has_content=True)
class StepWorked(Payload, frozen=True, kw_only=True):
    """The executor's run has ended, with an answer or an error."""

    step_id: str
    attempt: int
    status: str
    answer: str = ""
    error: JsonObject = msgspec.field(default_factory=dict)
    tools_used: tuple[str, ...] = ()
    spent: Spent = NOTHING_SPENT

    def redacted(self) -> StepWorked:
        """Keep how it ended and what it cost."""
        return msgspec.structs.replace(self, answer="", error={})


@payload("step.checked", is_inherited=False, has_content=True)
class StepChecked(Payload, frozen=True, kw_only=True):
    """The checks of an attempt were made, and these files had changed."""

    step_id: str
    attempt: int
    results: tuple[CheckResult, ...] = ()
    files: tuple[FileDelta, ...] = ()

    @property
    def is_passed(self) -> bool:
        """Say whether every check holds."""
        return all(result.is_passed for result in self.results)

    def redacted(self) -> StepChecked:
        """Keep which step; drop results and files."""
        return msgspec.structs.replace(self, results=(), files=())


@payload("step.reviewed", is_inherited=False, has_content=True)
class StepReviewed(Payload, frozen=True, kw_only=True):
    """The reviewer has judged an attempt whose checks all hold."""

    step_id: str
    attempt: int
    verdict: Decision
    reason: str = ""
    session_id: str = ""
    spent: Spent = NOTHING_SPENT

    def redacted(self) -> StepReviewed:
        """Keep the verdict; drop the reason."""
        return msgspec.structs.replace(self, reason="")


@payload("step.ended", is_inherited=False, has_content=True)
class StepEnded(Payload, frozen=True, kw_only=True):
    """A step is done, needs another plan, or failed for good."""

    step_id: str
    status: StepEnd
    reason: str = ""

    def redacted(self) -> StepEnded:
        """Keep how; drop the reason."""
        return msgspec.structs.replace(self, reason="")


@payload("loop.waited", is_inherited=False, has_content=True)
class LoopWaited(Payload, frozen=True, kw_only=True):
    """Nobody answers for one of the agents; it is asked again at `next_try`, no attempt is spent.

    `next_try` 0 says that the loop is parked until it is resumed.
    """

    role: str
    step_id: str = ""
    reason: str = ""
    next_try: float = 0.0
    tries: int = 1

    def redacted(self) -> LoopWaited:
        """Keep who and when; drop the reason."""
        return msgspec.structs.replace(self, reason="")


@payload("loop.reported", is_inherited=False, is_synced=True, has_content=True)
class LoopReported(Payload, frozen=True, kw_only=True):
    """The loop is over; `report` is a `LoopReport`."""

    report: JsonObject

    def redacted(self) -> LoopReported:
        """Keep that it was reported."""
        return LoopReported(report={})
