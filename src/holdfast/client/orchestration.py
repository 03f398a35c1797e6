"""Agents that work for each other: orchestrate, cancel and watch whole trees of runs."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncGenerator, Sequence
from typing import Literal

from holdfast.agents import Agent, AgentResult, Surroundings
from holdfast.agents.children import ChildRun, children_of, runs_below
from holdfast.agents.confinement import Confinement
from holdfast.agents.consent_above import add_rules_above
from holdfast.agents.delegation import Delegation
from holdfast.agents.launch import Launch
from holdfast.agents.lineage import lineage_of, path_of, rights_of
from holdfast.agents.result import run_messages
from holdfast.agents.turn import Listener, hear_nothing
from holdfast.canonical import JsonObject
from holdfast.client.questions import QuestionMethods
from holdfast.errors import NotFound
from holdfast.hooks import BusEvent
from holdfast.orchestration.delegation import (
    AgentOrchestrator,
    CallDelegation,
    Children,
    DelegationLimits,
    Family,
    FamilyEvent,
    subagents_for,
    task_tool,
)
from holdfast.policy.approvals import Approval, OnAsk
from holdfast.policy.budgets import NO_BUDGET, Budget
from holdfast.sessions import Run, Session
from holdfast.tools import ToolRegistry
from holdfast.tools.gate import NobodyApproves

_AGENTS_KNOWN_S = 5.0
_MOST_WAKINGS = 100
_MOST_LAYERS = 64


class OrchestrationMethods(QuestionMethods):
    """What the client can do with agents that work for each other."""

    _delegation: CallDelegation | None = None
    _sendable: tuple[float, tuple[Agent, ...]] | None = None
    _layers: dict[tuple[tuple[str, str], ...], ToolRegistry] | None = None

    # --- starting ---------------------------------------------------------------------

    async def orchestrator(
        self,
        *,
        run_id: str = "",
        agent: Agent | None = None,
        limits: DelegationLimits | None = None,
        budget: Budget = NO_BUDGET,
        on_ask: OnAsk = "deny",
    ) -> AgentOrchestrator:
        """Return an orchestrator that lets agents of this client work for each other.

        With a `run_id` the same calls again return what is finished and go on with the rest.
        `limits` are those of the settings unless given.
        """
        sessions = await self._ready()
        return AgentOrchestrator(
            self,
            sessions,
            self._turns,
            run_id=run_id,
            agent=agent,
            limits=limits or self._limits(),
            budget=budget,
            on_ask=on_ask,
        )

    async def launch(self, launch: Launch, listener: Listener = hear_nothing) -> AgentResult:
        """Execute a run, or resume it, and return its result; the base of all other ways.

        A run that waited for one that it started goes on when that one can go on.

        Raises:
            NotFound: there is no such agent or session.
        """
        result = await super().launch(launch, listener)
        for _ in range(_MOST_WAKINGS):
            if result.status != "parked" or not await self._can_go_on(result.run_id):
                break
            await self._turns.wake(result.run_id, cause="a child can go on")
            again = dataclasses.replace(
                launch, session_id=result.session_id, new_session=None, run_id=result.run_id
            )
            result = await super().launch(again, listener)
        return result

    # --- ending, answering ------------------------------------------------------------

    async def cancel_run(self, run_id: str, *, reason: str = "") -> Run:
        """Ask for a run to end, and for all that it started; works from any process."""
        run = await super().cancel_run(run_id, reason=reason)
        await self.cancel_children(run_id, reason=reason)
        return run

    async def cancel_children(self, run_id: str, *, reason: str = "") -> int:
        """Ask for all runs to end that a run, or an orchestrator of this id, has started.

        Returns how many had not ended.
        """
        await self._ready()
        count = 0
        told = reason or f"{run_id} was cancelled"
        for child in await runs_below(self._journal, run_id):
            run = await self._turns.find(child.id)
            if run is not None and not run.has_ended:
                await self._turns.cancel(run.id, reason=told)
                count += 1
        return count

    async def approve(
        self,
        approval_id: str,
        *,
        by: str,
        always: bool = False,
        arguments: JsonObject | None = None,
        reason: str = "",
    ) -> Approval:
        """Consent to a call; its run, and those that wait for it, go on.

        `always` also writes the rules that `get_approval` shows (`asked.rules`) into the
        session, and into those of all agents above it. `arguments` replace those of the call:
        they are checked by the tool, judged by the rules and sealed anew.

        Raises:
            NotFound: there is no such approval.
            ApprovalExpired: it is too old, answered or used already.
            ToolInputInvalid: the arguments do not fit the tool.
            UsageError: no rule would be as narrow as the call, or nobody is named.
        """
        approval = await super().approve(
            approval_id, by=by, always=always, arguments=arguments, reason=reason
        )
        if always:
            session = await self._sessions.get_session(approval.session_id)
            above = lineage_of(session)
            if above is not None:
                asked = (await self.get_approval(approval_id)).asked
                await add_rules_above(self._journal, above, asked.rules, by)
        await self._wake_above(approval.session_id, f"{by} said: allow")
        return approval

    async def deny(self, approval_id: str, *, by: str, reason: str = "") -> Approval:
        """Refuse a call; the model is told the reason, and the run goes on.

        Raises:
            NotFound: there is no such approval.
            ApprovalExpired: it is too old, answered or used already.
        """
        approval = await super().deny(approval_id, by=by, reason=reason)
        await self._wake_above(approval.session_id, f"{by} said: deny")
        return approval

    async def decide_outcome(
        self,
        session_id: str,
        call_id: str,
        verdict: Literal["happened", "not_happened", "abort"],
        *,
        by: str,
        result: str = "",
    ) -> Run:
        """Say what became of a call whose outcome a crash left unknown; its run goes on.

        `happened` takes the result to show to the model; `not_happened` lets the call run
        again; `abort` tells the model that it was given up.

        Raises:
            NotFound: no such call waits for a verdict.
        """
        run = await super().decide_outcome(session_id, call_id, verdict, by=by, result=result)
        await self._wake_above(run.session_id, f"{by} said: {verdict}")
        return run

    async def answer_question(self, session_id: str, call_id: str, answer: str, *, by: str) -> Run:
        """Answer an agent's question; its run goes on with the answer as the result.

        Raises:
            NotFound: no such call waits for an answer.
        """
        run = await super().answer_question(session_id, call_id, answer, by=by)
        await self._wake_above(run.session_id, f"{by} answered")
        return run

    # --- watching ---------------------------------------------------------------------

    async def child_runs(self, run_id: str) -> list[ChildRun]:
        """Return all runs that a run, or an orchestrator of this id, has started."""
        await self._ready()
        return await runs_below(self._journal, run_id)

    async def family_events(
        self, session_id: str, *, after: int = 0, limit: int = 1_000
    ) -> list[FamilyEvent]:
        """Return the events of a session and of all that were started from it, in order.

        Each stands under the path of the agent in whose run it happened.
        """
        sessions = await self._ready()
        session = await sessions.get_session(session_id)
        return await Family(sessions, session.id).events(after=after, limit=limit)

    async def watch_family(
        self, session_id: str, *, after: int | None = None
    ) -> AsyncGenerator[FamilyEvent, None]:
        """Yield the events of a session and of all that are started from it, as they happen."""
        sessions = await self._ready()
        family = Family(sessions, (await sessions.get_session(session_id)).id)
        feed = self._journal.subscribe(after=after)
        async with contextlib.aclosing(feed):
            async for event in feed:
                view = await family.view(event)
                if view is not None:
                    yield view

    async def events(
        self,
        patterns: str | Sequence[str] = "*",
        *,
        after: int | None = None,
        session_id: str = "",
        run_id: str = "",
        with_children: bool = False,
    ) -> AsyncGenerator[BusEvent, None]:
        """Yield events under all their names, ephemeral ones too; `watch` yields stored facts.

        `with_children` adds those of all sessions that are started from `session_id`.
        """
        sessions = await self._ready()
        family = Family(sessions, session_id) if with_children and session_id else None
        found = super().events(
            patterns,
            after=after,
            session_id="" if family is not None else session_id,
            run_id=run_id,
        )
        async with contextlib.aclosing(found):
            async for event in found:
                if family is None or await family.has(event.session_id):
                    yield event

    # --- inside -----------------------------------------------------------------------

    def _limits(self) -> DelegationLimits:
        return DelegationLimits(**self.settings.orchestration.model_dump())

    def _surroundings(self) -> Surroundings:
        if self._delegation is None:
            children = Children(self, self._sessions, self._turns, limits=self._limits())
            self._delegation = CallDelegation(children)
            self.context.provide(Delegation, self._delegation)  # type: ignore[type-abstract]
        return super()._surroundings()

    async def _tools_for(
        self, agent: Agent, session: Session, confinement: Confinement
    ) -> ToolRegistry:
        """The tools of one run: `task` names the agents that this one may send."""
        tools = await super()._tools_for(agent, session, confinement)
        gate = confinement.gate(
            path_of(agent, session),
            rights_of(agent, session),
            NobodyApproves(),
            self.approval_terms(),
        )
        chosen = subagents_for(await self._subagents(), gate)
        if not chosen:
            return tools
        known = self._layers = self._layers or {}
        key = tuple([(one.name, one.description) for one in chosen])
        if key not in known:
            if len(known) >= _MOST_LAYERS:
                known.clear()
            known[key] = tools.child(scope="built-in")
            known[key].register(task_tool(chosen), replace=True)
        return known[key]

    async def _subagents(self) -> tuple[Agent, ...]:
        """The agents that can be sent; those of other processes are seen a moment later."""
        now, known = self._journal.clock.monotonic(), self._sendable
        if known is not None and now - known[0] <= _AGENTS_KNOWN_S:
            return known[1]
        # One looks again; whoever comes meanwhile takes what was known a moment ago.
        before = self._sendable = (now, known[1]) if known is not None else None
        agents = tuple([one for one in await self.list_agents() if one.mode != "primary"])
        if self._sendable is before:
            self._sendable = (now, agents)
        return agents

    async def register_agent(self, agent: Agent) -> None:
        """Make an agent known by its name; it is found after a restart too."""
        await super().register_agent(agent)
        self._sendable = None

    async def remove_agent(self, name: str) -> bool:
        """Forget an agent; returns whether there was one."""
        self._sendable = None
        return await super().remove_agent(name)

    async def _can_go_on(self, run_id: str) -> bool:
        """Say whether a run waits for a child that no longer waits itself."""
        own = await children_of(self._journal, "parent_run", (run_id,))
        if not own:
            return False
        messages = await run_messages(self._sessions, await self._turns.get(run_id))
        calls = messages[-1].tool_calls if messages else ()
        waiting = tuple(part.call_id for part in calls if part.state == "pending")
        for row in own:
            # A call inside a batch bears the batch's id, a dot and its number.
            if row.parent_call.partition(".")[0] in waiting or row.parent_call in waiting:
                child = await self._turns.find(row.id)
                if child is not None and child.status != "parked":
                    return True
        return False

    async def _wake_above(self, session_id: str, cause: str) -> None:
        """Wake the runs that wait for one of this session, up to the first one."""
        while True:
            try:
                above = lineage_of(await self._sessions.get_session(session_id))
            except NotFound:
                return
            if above is None:
                return
            run = await self._turns.find(above.run_id) if above.run_id else None
            if run is not None and run.status == "parked":
                await self._turns.wake(run.id, cause=cause, is_for_anyone=True)
            session_id = above.session_id
