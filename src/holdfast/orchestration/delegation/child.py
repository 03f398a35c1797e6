"""One child: its session, its run, and its end, whatever happens.

Ids follow from the starter's, so that the same errand after a crash finds the session and the
run that are there: a finished one gives its result, an unfinished one goes on.
"""

from __future__ import annotations

import asyncio
import functools
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from holdfast.agents import Agent, AgentResult
from holdfast.agents.handoff import STATE_KEY
from holdfast.canonical import JsonObject, digest
from holdfast.errors import AgentTimeout, HoldfastError, NotFound
from holdfast.orchestration.delegation.limits import Census, DelegationLimits
from holdfast.policy.approvals import OnAsk
from holdfast.policy.budgets import NO_BUDGET, Budget
from holdfast.runs.lineage import LINEAGE_KEY, Lineage, lineage_of
from holdfast.runs.request import Launch, RunExecutor
from holdfast.sessions import NewSession, Session, SessionManager, new_session
from holdfast.tools.gate import Approver
from holdfast.turns import TurnQueue

STOP_GRACE_S = 10.0
"""How long a child that was told to stop may take to do so."""
_TITLE = 60
_TOO_LONG = "it took longer than "

_left_behind: set[asyncio.Task[AgentResult]] = set()


class AgentHost(RunExecutor, Protocol):
    """Whoever knows agents by name and carries their runs out; the client is one."""

    async def get_agent(self, name: str) -> Agent | None:
        """Return an agent by name, `None` if there is none."""
        ...


@dataclass(frozen=True, kw_only=True)
class ChildRequest:
    """Everything about one child; `key` is the same whenever the same errand is meant."""

    key: str
    agent: str | Agent
    task: str
    above: Lineage
    parent: Session
    """The starter's session, which `above` speaks of."""
    pattern: NewSession | None = None
    """What the child's session begins like, where several orders share it (`pattern_below`)."""
    session_id: str = ""
    tool_ids: tuple[str, ...] | None = None
    skill_names: tuple[str, ...] | None = None
    options: JsonObject = field(default_factory=dict)
    state: JsonObject = field(default_factory=dict)
    budget: Budget = NO_BUDGET
    on_ask: OnAsk = "deny"
    approver: Approver | None = None
    seconds: float | None = None

    @property
    def name(self) -> str:
        """The agent's name."""
        return self.agent if isinstance(self.agent, str) else self.agent.name

    @functools.cached_property
    def run_id(self) -> str:
        """The id of the child's run."""
        return derived_id("run", self.key)


def derived_id(prefix: str, key: str) -> str:
    """Return an id that follows from a key, the same in every process."""
    return f"{prefix}_{digest(['child', prefix, key])[:26]}"


class Children:
    """Starts children and brings back a result from each."""

    def __init__(
        self,
        host: AgentHost,
        sessions: SessionManager,
        turns: TurnQueue,
        *,
        limits: DelegationLimits | None = None,
        census: Census | None = None,
    ) -> None:
        """Let this host carry out runs in these sessions, within these limits."""
        self.host = host
        self.sessions = sessions
        self.turns = turns
        self.limits = limits or DelegationLimits()
        self.census = census or Census(sessions.journal)

    async def admit(self, order: ChildRequest) -> AgentResult | None:
        """Count a child in; returns the result of one that may not begin.

        An unknown agent is one that may not.
        """
        try:
            if isinstance(order.agent, str) and await self.host.get_agent(order.agent) is None:
                raise NotFound(kind="agent", value=order.agent)
            await self.census.admit(order.above, order.run_id, order.name, self.limits)
        except HoldfastError as error:
            return failed(order, error)
        return None

    async def run(self, order: ChildRequest) -> AgentResult:
        """Run a child to its end, or to where it parks, and return its result.

        A failure is a result too. A caller that is cancelled takes the child with it.
        """
        try:
            return await self._in_time(order, await self._launch(order))
        except HoldfastError as error:
            return failed(order, error)
        except Exception as error:  # noqa: BLE001 - others' code, such as a wrapper's, may fail
            detail = f"{type(error).__name__}: {error}"
            return failed(order, HoldfastError(detail=detail))

    # --- inside -----------------------------------------------------------------------

    async def _launch(self, order: ChildRequest) -> Launch:
        """Return the run to start: in a session of its own, or in that of an earlier errand."""
        return Launch(
            message=order.task,
            agent=order.agent,
            session_id=(await self._known(order)).id if order.session_id else "",
            new_session=None if order.session_id else _session_for(order),
            run_id=order.run_id,
            options=order.options,
            on_ask=order.on_ask,
            budget=_within(order.budget, order.seconds),
            tool_ids=order.tool_ids,
            skill_names=order.skill_names,
            starter=order.above.starter,
            approver=order.approver,
        )

    async def _known(self, order: ChildRequest) -> Session:
        """Return the session of an earlier child, now below whoever sends this errand.

        Raises:
            NotFound: it is no child of the same session.
        """
        session = await self.sessions.get_session(order.session_id)
        before = lineage_of(session)
        if before is None or before.session_id != order.above.session_id:
            raise NotFound(kind="child session", value=order.session_id)
        now = order.above.to_metadata()
        if session.metadata[LINEAGE_KEY] == now[LINEAGE_KEY]:
            return session
        if await self.turns.find(order.run_id) is not None:
            return session
        return await self.sessions.update_session(session.id, metadata=now)

    async def _in_time(self, order: ChildRequest, launch: Launch) -> AgentResult:
        limit = self.limits.time_s
        if order.seconds is not None:
            limit = min(limit, order.seconds)
        task = asyncio.create_task(self.host.launch(launch))
        try:
            await asyncio.wait((task,), timeout=limit)
            if not task.done() and await self.turns.find(order.run_id) is not None:
                # By way of the journal, so that it ends wherever it is executed.
                await self.turns.cancel(order.run_id, reason=f"{_TOO_LONG}{limit:g} s")
                await asyncio.wait((task,), timeout=STOP_GRACE_S)
        except asyncio.CancelledError:
            await _stop(task)
            raise
        if not task.done():
            await _stop(task)
            return _timed_out(order, launch, limit)
        if task.cancelled():
            return _timed_out(order, launch, limit)
        return _as_told(order, task.result())


def pattern_below(above: Lineage, parent: Session, state: JsonObject | None = None) -> NewSession:
    """Return what sessions below a parent begin like; each gets its own title and id."""
    metadata: JsonObject = {**above.to_metadata()}
    if state:
        metadata[STATE_KEY] = state
    return new_session(
        "Below another",
        project_id=parent.project_id,
        directory=parent.directory,
        parent_id=parent.id,
        metadata=metadata,
    )


def _session_for(order: ChildRequest) -> NewSession:
    """Return the child's own session; one that a crash left has the same id."""
    pattern = order.pattern or pattern_below(order.above, order.parent, order.state)
    title = " ".join(order.task.split())[:_TITLE] or f"Errand for {order.name}"
    return pattern.named(title, derived_id("ses", order.key))


async def _stop(task: asyncio.Task[AgentResult]) -> None:
    """Stop a child and wait a little; one that goes on is left behind."""
    task.cancel()
    _left_behind.add(task)
    task.add_done_callback(_forget)
    await asyncio.wait((task,), timeout=STOP_GRACE_S)


def _forget(task: asyncio.Task[AgentResult]) -> None:
    _left_behind.discard(task)
    if not task.cancelled():
        task.exception()


def _within(budget: Budget, seconds: float | None) -> Budget | None:
    """Return the budget with no more time than is left to the caller."""
    if seconds is not None:
        limit = seconds if budget.max_wall_s is None else min(budget.max_wall_s, seconds)
        budget = msgspec.structs.replace(budget, max_wall_s=limit)
    return budget if budget.has_limits else None


def _as_told(order: ChildRequest, result: AgentResult) -> AgentResult:
    """Return the result; one that ended by its time limit says so, in every process."""
    reason = str(result.metadata.get("reason", ""))
    if result.status != "cancelled" or not reason.startswith(_TOO_LONG):
        return result
    limit = reason.removeprefix(_TOO_LONG).removesuffix(" s")
    error = AgentTimeout(agent=order.name, limit_s=limit)
    told = {**result.metadata, "reason": "timeout", "error": error.to_dict()}
    return msgspec.structs.replace(result, metadata=told)


def _timed_out(order: ChildRequest, launch: Launch, limit: float) -> AgentResult:
    error = AgentTimeout(agent=order.name, limit_s=f"{limit:g}")
    return AgentResult(
        agent_name=order.name,
        response="",
        status="cancelled",
        metadata={"reason": "timeout", "error": error.to_dict()},
        run_id=order.run_id,
        session_id=launch.place,
    )


def failed(order: ChildRequest, error: HoldfastError) -> AgentResult:
    """Return the result of a child that could not run."""
    return AgentResult(
        agent_name=order.name,
        response="",
        status="failed",
        metadata={"error": error.to_dict()},
        run_id=order.run_id,
    )
