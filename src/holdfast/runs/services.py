"""What every kind of run works with: agent turns, calls by hand, workflows, loop checks.

Built once, by the runtime. What surrounds a call (context, gate, labels, state, artifacts,
hooks, budgets, grants) is put together in one place for all of them: `OpensCalls.open_calls`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from holdfast.agents import RunExecutor, Sandbox
from holdfast.clock import Clock
from holdfast.context import ContextBuilder
from holdfast.messages import ToolPart
from holdfast.policy import NO_BUDGET, ApprovalTerms, Budget, Rights, Share
from holdfast.runs.confinement import Confinement
from holdfast.runs.files import MessageFiles
from holdfast.runs.instrumentation import Instrumentation
from holdfast.runs.spending import Budgets, Spending, read_session_budget
from holdfast.sessions import Session, SessionManager
from holdfast.tools import (
    GIVEN,
    Approver,
    Label,
    SandboxRunner,
    ToolContext,
    ToolExecutionManager,
    ToolRegistry,
)
from holdfast.turns import Turn, TurnQueue


class CallScope(msgspec.Struct, frozen=True, kw_only=True):
    """What differs from one run to the next, for the calls that it makes.

    `rights` are what the gate judges by; `handed_on` is what runs may have that a call starts,
    the same unless given. `sandbox` confines commands; `has_network` says whether the run may
    reach the network otherwise, as its sandbox does unless given. `inherited` are labels of
    what was read before by the caller that started the run. `before` are calls of the same run that
    have a result, so that a doom loop is noticed across a restart. Tools of the scopes in `given`
    count as handed over in code.
    """

    turn: Turn
    session: Session
    tools: ToolRegistry
    rights: Rights
    sandbox: Sandbox
    approver: Approver
    terms: ApprovalTerms
    instrumentation: Instrumentation
    path: tuple[str, ...] = ()
    handed_on: Rights | None = None
    has_network: bool | None = None
    inherited: tuple[Label, ...] = ()
    spending: Spending | None = None
    skill_names: tuple[str, ...] | None = None
    before: Sequence[ToolPart] = ()
    given: tuple[str, ...] = GIVEN
    deps: object = None
    """What the application handed to the run; tools find it by its type."""


class RunCalls(msgspec.Struct, frozen=True, kw_only=True):
    """What executes the calls of one run, with everything around them."""

    manager: ToolExecutionManager
    context: ToolContext
    runner: SandboxRunner

    async def close(self) -> None:
        """End what calls have left running."""
        if not self.runner.is_idle:
            await self.runner.aclose()


class OpensCalls(Protocol):
    """Puts the surroundings of calls together; the runtime has the only one."""

    async def open_calls(self, scope: CallScope) -> RunCalls:
        """Return what executes the calls of a run."""
        ...


class RunServices(msgspec.Struct, frozen=True, kw_only=True):
    """All that is there before a run, and stays after it."""

    sessions: SessionManager
    turns: TurnQueue
    context: ContextBuilder
    approver: Approver
    """Who answers where no approver was named."""
    terms: ApprovalTerms
    budgets: Budgets
    confinement: Confinement
    instrumentation: Instrumentation
    calls: OpensCalls
    files: MessageFiles
    """Where the files of messages are kept."""
    executor: RunExecutor
    """Who carries out runs that other runs start."""
    clock: Clock

    async def open_spending(
        self,
        turn: Turn,
        session: Session,
        *,
        agent: str = "",
        own: Budget = NO_BUDGET,
        run: Budget = NO_BUDGET,
        shares: tuple[Share, ...] = (),
        pending: int = 0,
    ) -> Spending | None:
        """Take up what a run may spend; nothing is counted where nothing is limited.

        `own` is the agent's budget, `run` that of this run, `shares` are those of the caller that
        started it. `pending` calls have not run yet.
        """
        confinement, given = self.confinement, self.budgets
        of_session = read_session_budget(session) if "budget" in session.metadata else NO_BUDGET
        # A reload may bring limits to a run that has none yet.
        may_be_limited = bool(confinement.policies.bundle.files)
        shared = given.tenant.budget if given.tenant is not None else NO_BUDGET
        if not shares and not may_be_limited:
            limits = (shared, of_session, given.run, run, own, *confinement.limits(agent))
            if limits == _UNLIMITED:
                return None
        budgets = msgspec.structs.replace(
            given,
            run=run if run.has_limits else given.run,
            operator=lambda: confinement.limits(agent),
        )
        spending = Spending(budgets, own, of_session, turn, self.clock, shares)
        if not spending.is_limited and not may_be_limited:
            return None
        await spending.open(session, self.sessions.journal, pending)
        return spending


_UNLIMITED = (NO_BUDGET,) * 7

__all__ = ["CallScope", "OpensCalls", "RunCalls", "RunServices"]
