"""AgentOrchestrator: one agent lets others work, alone or side by side."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from holdfast.agents import Agent, AgentResult, RunExecutor, RunRequest
from holdfast.canonical import JsonObject, digest
from holdfast.errors import RunInterrupted, UsageError
from holdfast.hooks import Emitter
from holdfast.ids import make_id
from holdfast.orchestration.delegation.child import Children, ChildRequest, make_pattern_session
from holdfast.orchestration.delegation.limits import DelegationLimits
from holdfast.policy import NO_BUDGET, Budget, OnAsk, Share
from holdfast.runs import Lineage, list_below, read_session_budget
from holdfast.sessions import NewSession, Session, SessionManager
from holdfast.tools import Label, read_kept_labels
from holdfast.turns import TurnQueue


class AgentTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task for one agent; `None` for tools or skills leaves all that it may use.

    `options` are sent to the provider as they are.
    """

    agent_name: str
    description: str
    tool_ids: tuple[str, ...] | None = None
    skill_names: tuple[str, ...] | None = None
    options: JsonObject = msgspec.field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Common:
    """What all children of one call have in common."""

    session: Session
    above: Lineage
    pattern: NewSession
    budget: Budget


class AgentOrchestrator:
    """Runs agents for others, each in a child session, and brings every result back.

    With a `run_id` of one's own the same calls, made again in the same order, return the
    finished results and go on with what a crash interrupted; nothing is done twice.
    """

    def __init__(  # noqa: PLR0913 - what all of its children share
        self,
        host: RunExecutor,
        sessions: SessionManager,
        turns: TurnQueue,
        *,
        run_id: str = "",
        agent: Agent | None = None,
        limits: DelegationLimits | None = None,
        budget: Budget = NO_BUDGET,
        on_ask: OnAsk = "deny",
        bus: Emitter | None = None,
    ) -> None:
        """Let this host carry out runs in these sessions.

        `agent` starts what `run_parallel_agents` is given: the children get no right that it
        lacks. Without one, the session's rules alone stand above them. All children together
        spend at most `budget`. `on_ask` says what becomes of calls that no approver answers.
        """
        self._children = Children(host, sessions, turns, limits=limits, bus=bus)
        self._sessions = sessions
        self.run_id = run_id or make_id("orc")
        self._agent = agent
        self._budget = budget
        self._on_ask = on_ask
        self._seen: Counter[str] = Counter()

    @property
    def limits(self) -> DelegationLimits:
        """How many agents may be started, how deep, and for how long."""
        return self._children.limits

    async def delegate_task(
        self,
        from_agent: Agent,
        to_agent_name: str,
        task: str,
        session_id: str,
        tool_ids: Sequence[str] | None = None,
        skill_names: Sequence[str] | None = None,
    ) -> AgentResult:
        """Let an agent do a task for another one, in a child of its session.

        The child has no right that `from_agent` lacks in that session. `tool_ids` and
        `skill_names` leave nothing else to it. A failure, an unknown agent, tool or skill and
        a timeout are results too; a child that waits for a person comes back as `parked`.

        Raises:
            NotFound: there is no session `session_id`.
            UsageError: `tool_ids` or `skill_names` is a text instead of a list.
        """
        for given in (tool_ids, skill_names):
            if isinstance(given, str):
                raise UsageError(detail=f"Tools and skills are given as lists, not as {given!r}.")
        asked = AgentTask(
            agent_name=to_agent_name,
            description=task,
            tool_ids=None if tool_ids is None else tuple(tool_ids),
            skill_names=None if skill_names is None else tuple(skill_names),
        )
        session = await self._sessions.get_session(session_id)
        child = self._make_child(asked, await self._find_common(from_agent, session))
        return await self._children.admit(child) or await self._children.run(child)

    async def run_parallel_agents(
        self, tasks: Sequence[AgentTask], session_id: str
    ) -> list[AgentResult]:
        """Run tasks side by side, each in a child session; results come in task order.

        At most `limits.parallel` work at a time. What fails does not stop the others: its
        result says why. Tasks beyond the limits are refused, the first ones run. Cancelling
        this cancels the children.

        Raises:
            NotFound: there is no session `session_id`.
            RunInterrupted: the machine failed in one of them; the others have ended.
        """
        session = await self._sessions.get_session(session_id)
        common = await self._find_common(self._agent, session)
        children = [self._make_child(task, common) for task in tasks]
        results = [await self._children.admit(child) for child in children]
        waiting = iter([place for place, refused in enumerate(results) if refused is None])

        interrupted: list[RunInterrupted] = []

        async def work() -> None:
            for place in waiting:
                try:
                    results[place] = await self._children.run(children[place])
                except RunInterrupted as error:
                    # The others finish first: what is cancelled could not go on later.
                    interrupted.append(error)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self.limits.parallel, len(children))):
                group.create_task(work())
        if interrupted:
            raise interrupted[0]
        return [result for result in results if result is not None]

    # --- inside -----------------------------------------------------------------------

    async def _find_common(self, agent: Agent | None, session: Session) -> _Common:
        labels = await read_kept_labels(self._sessions.journal, session.id)
        above = self._list_above(agent, session, labels)
        return _Common(
            session=session,
            above=above,
            pattern=make_pattern_session(above, session),
            # The starter has no run of its own here whose budget the child could share.
            budget=agent.budget if agent is not None else NO_BUDGET,
        )

    def _list_above(
        self, agent: Agent | None, session: Session, labels: Sequence[Label]
    ) -> Lineage:
        above = list_below(agent, session, run_id=self.run_id, labels=labels)
        shares = list(above.shares)
        limit = read_session_budget(session)
        if limit.has_limits or shares:
            shares.append(Share(scope=f"session {session.id}", session_id=session.id, budget=limit))
        if self._budget.has_limits:
            shares.append(
                Share(
                    scope=f"orchestration {self.run_id}",
                    session_id=session.id,
                    run_id=self.run_id,
                    budget=self._budget,
                )
            )
        return msgspec.structs.replace(above, shares=tuple(shares))

    def _make_child(self, task: AgentTask, common: _Common) -> ChildRequest:
        # The same task for the second time is another one, and found again as the second.
        content = digest([common.session.id, common.above.path, msgspec.to_builtins(task)])
        self._seen[content] += 1
        return ChildRequest(
            key=f"{self.run_id}:{content}:{self._seen[content]}",
            request=RunRequest(
                agent=task.agent_name,
                message=task.description,
                tool_ids=task.tool_ids,
                skill_names=task.skill_names,
                options=task.options,
                budget=common.budget,
                on_ask=self._on_ask,
            ),
            above=common.above,
            parent=common.session,
            pattern=common.pattern,
        )
