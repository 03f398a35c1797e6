"""The three agents at work: each run in a child session, under ids that follow from the loop's.

The same question again, in this process or another one, therefore meets the same run: finished,
it is returned; interrupted, it goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from holdfast.agents import (
    WAITING_FOR_MODEL,
    Agent,
    AgentResult,
    Listener,
    RunExecutor,
    RunRequest,
)
from holdfast.canonical import digest
from holdfast.clock import Clock
from holdfast.errors import AlreadyExists, BudgetExceeded, HoldfastError
from holdfast.messages import sum_usage
from holdfast.orchestration.loop.events import Spent
from holdfast.orchestration.loop.options import LoopLimits, LoopSetup
from holdfast.orchestration.loop.roles import make_crew, make_loop_agent
from holdfast.orchestration.loop.state import LoopState
from holdfast.policy import Budget, Share
from holdfast.runs import list_below
from holdfast.sessions import Session, SessionManager
from holdfast.tools import read_kept_labels
from holdfast.turns import finish

NewSession: TypeAlias = Callable[[str], None]
_TITLE = 60


@dataclass(frozen=True, kw_only=True)
class Worked:
    """How a run of an agent ended; `status` is the result's, or `ran out of time`."""

    status: str
    result: AgentResult | None
    spent: Spent
    error: dict[str, object]

    @property
    def answer(self) -> str:
        """What the agent said."""
        return self.result.response if self.result is not None else ""


class Crew:
    """Runs planner, executor and reviewer for one loop."""

    def __init__(
        self,
        executor: RunExecutor,
        sessions: SessionManager,
        session: Session,
        run_id: str,
        options: LoopSetup,
        *,
        clock: Clock,
        is_new: NewSession,
    ) -> None:
        """Work below a loop's session; `is_new` hears of every child session."""
        self.planner, self.executor, self.reviewer = make_crew(options.agents)
        self._executor = executor
        self._sessions = sessions
        self._session = session
        self._run_id = run_id
        self._options = options
        self._clock = clock
        self._is_new = is_new
        self._busy = 0
        self.interrupted = Spent()
        """What runs took that were broken off with the loop."""

    def session_id(self, *key: object) -> str:
        """Return the id of a child session: always the same for the same purpose."""
        return f"ses_{digest([self._run_id, *key])[:26]}"

    def run_id(self, *key: object) -> str:
        """Return the id of a child run: always the same for the same purpose."""
        return f"run_{digest([self._run_id, 'run', *key])[:26]}"

    async def child(self, title: str, limits: LoopLimits, *key: object) -> Session:
        """Return a child session below the loop's limits, made with the first call."""
        name = self.session_id(*key)
        self._is_new(name)
        labels = await read_kept_labels(self._sessions.journal, self._session.id)
        lineage = list_below(make_loop_agent(), self._session, run_id=self._run_id, labels=labels)
        budget = msgspec.structs.replace(limits.budget, max_wall_s=None)
        if budget.has_limits:
            # What agents below these spend counts for the loop as well.
            share = Share(
                scope=f"loop {self._run_id}",
                session_id=self._session.id,
                run_id=self._run_id,
                budget=budget,
            )
            lineage = msgspec.structs.replace(lineage, shares=(*lineage.shares, share))
        try:
            return await self._sessions.create_session(
                title[:_TITLE],
                project_id=self._session.project_id,
                directory=self._session.directory,
                parent_id=self._session.id,
                metadata=lineage.to_metadata(),
                session_id=name,
            )
        except AlreadyExists:
            return await self._sessions.get_session(name)

    async def work(
        self,
        agent: Agent,
        session: Session,
        run_id: str,
        message: str,
        *,
        state: LoopState,
        listener: Listener,
    ) -> Worked:
        """Run one of the agents within what is left of the loop's budget and time.

        Raises:
            BudgetExceeded: nothing is left.
        """
        began = self._clock.monotonic()
        self._busy += 1
        request = RunRequest(
            message=message,
            agent=agent,
            session_id=session.id,
            run_id=run_id,
            model="" if agent.model else self._options.model,
            on_ask=self._options.on_ask,
            on_outage="park",
            budget=_compute_left(state, max(self._busy, 1)),
        )
        try:
            async with asyncio.timeout(state.limits.agent_wall_s) as timer:
                result = await self._executor.execute(request, listener)
        except TimeoutError:
            if not timer.expired():
                raise
            seconds = self._clock.monotonic() - began
            error = HoldfastError(detail=f"It did not end within {state.limits.agent_wall_s:g} s.")
            spent = await self._compute_spent(session, run_id, seconds)
            return Worked(status="ran out of time", result=None, spent=spent, error=error.to_dict())
        except asyncio.CancelledError:
            seconds = self._clock.monotonic() - began
            await finish(self._note_interrupted(session, run_id, seconds))
            raise
        finally:
            self._busy -= 1
        spent = Spent(
            tokens=result.tokens_used.total, cost_usd=result.cost_usd, seconds=result.duration
        )
        error_facts = result.metadata.get("error") or {}
        if result.status == "cancelled":
            reason = result.metadata.get("reason") or "the run was cancelled"
            error_facts = HoldfastError(detail=str(reason)).to_dict()
        return Worked(status=result.status, result=result, spent=spent, error=dict(error_facts))

    async def _note_interrupted(self, session: Session, run_id: str, seconds: float) -> None:
        self.interrupted += await self._compute_spent(session, run_id, seconds)

    async def _compute_spent(self, session: Session, run_id: str, seconds: float) -> Spent:
        """Return what a run took that gave no result."""
        current = await self._sessions.get_session(session.id)
        said = [m for m in await self._sessions.messages.all(current) if m.run_id == run_id]
        return Spent(
            tokens=sum_usage([m.usage for m in said if m.usage is not None]).total,
            cost_usd=sum(m.cost_usd for m in said),
            seconds=seconds,
        )


def waits_for_model(worked: Worked) -> str:
    """Return why an agent waits for its model; empty if it does not."""
    if worked.status != "parked" or worked.result is None:
        return ""
    reason = str(worked.result.metadata.get("reason", ""))
    return reason.removeprefix(WAITING_FOR_MODEL).lstrip(": ") if _is_outage(reason) else ""


def _is_outage(reason: str) -> bool:
    return reason.startswith(WAITING_FOR_MODEL)


def check_budget(limits: LoopLimits, spent: Spent) -> None:
    """Refuse to go on when nothing is left.

    Raises:
        BudgetExceeded: it says of what.
    """
    budget = limits.budget
    if budget.max_cost_usd is not None and spent.cost_usd >= budget.max_cost_usd:
        raise BudgetExceeded(
            kind="cost",
            scope="loop",
            used=f"${spent.cost_usd:.6f}",
            limit=f"${budget.max_cost_usd:.6f}",
        )
    if budget.max_tokens is not None and spent.tokens >= budget.max_tokens:
        raise BudgetExceeded(kind="token", scope="loop", used=spent.tokens, limit=budget.max_tokens)


def _compute_left(state: LoopState, sharers: int) -> Budget | None:
    """Return what one run may spend: an equal share of what is left, if anything is limited."""
    check_budget(state.limits, state.spent)
    budget, spent = state.limits.budget, state.spent
    if not budget.has_limits:
        return None
    cost, tokens = budget.max_cost_usd, budget.max_tokens
    return Budget(
        max_cost_usd=(cost - spent.cost_usd) / sharers if cost is not None else None,
        max_tokens=(tokens - spent.tokens) // sharers if tokens is not None else None,
        max_calls=budget.max_calls,
        max_tool_calls=budget.max_tool_calls,
        max_wall_s=budget.max_wall_s,
        on_unknown_price=budget.on_unknown_price,
    )
