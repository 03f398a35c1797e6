"""Agents that work for each other: orchestrate, cancel and watch whole trees of runs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TypeAlias

import msgspec

from holdfast.agents import Agent, AgentResult
from holdfast.agents.delegation import Delegation
from holdfast.agents.result import run_messages
from holdfast.client.questions import QuestionMethods
from holdfast.errors import NotFound
from holdfast.hooks import BusEvent
from holdfast.ids import new_id
from holdfast.messages import ToolPart
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
from holdfast.policy.approvals import OnAsk
from holdfast.policy.budgets import NO_BUDGET, Budget
from holdfast.providers.model import Delta
from holdfast.runs import Instrumentation
from holdfast.runs.children import ChildRun, children_of, runs_below
from holdfast.runs.confinement import Confinement
from holdfast.runs.lineage import Lineage, lineage_of, path_of, rights_of
from holdfast.runs.propagating_approver import add_rules_above
from holdfast.agents.request import RunRequest
from holdfast.runs.streaming import ChildPiece
from holdfast.runs.turn import Listener, hear_nothing
from holdfast.sessions import PermissionRule, Run, Session
from holdfast.tools import ToolRegistry

_AGENTS_KNOWN_S = 5.0
_MOST_WAKINGS = 100
_MOST_LAYERS = 64

_Hearer: TypeAlias = Callable[[ChildPiece], None]


class OrchestrationMethods(QuestionMethods):
    """What the client can do with agents that work for each other."""

    _delegation: CallDelegation | None = None
    _sendable: tuple[float, tuple[Agent, ...]] | None = None
    _layers: dict[tuple[tuple[str, str], ...], ToolRegistry] | None = None
    _hearers: dict[str, _Hearer] | None = None

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

    async def launch(self, launch: RunRequest, listener: Listener = hear_nothing) -> AgentResult:
        """Execute a run, or resume it, and return its result; the base of all other ways.

        A run that waited for one that it started goes on when that one can go on.

        Raises:
            NotFound: there is no such agent or session, or no such tool or skill as are left
                to the run.
            UsageError: the message is no text, the agent neither an Agent nor a name, the run
                that of another agent, or a choice none that there is.
        """
        with self._hearing(launch) as chosen:
            hear = _to_both(chosen, listener)
            for wakings_left in range(_MOST_WAKINGS, -1, -1):
                prepared = await self._prepare(chosen, hear)
                try:
                    result = await prepared.execute()
                finally:
                    await self._remember_turns(prepared.session_id)
                if result.status != "parked" or not wakings_left:
                    break
                if not await self._can_go_on(result.run_id):
                    break
                await self._turns.wake(result.run_id, cause="a child can go on")
                chosen = msgspec.structs.replace(
                    chosen, session_id=result.session_id, new_session=None, run_id=result.run_id
                )
        return result

    # --- ending -----------------------------------------------------------------------

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

    def _hearing(self, launch: RunRequest) -> AbstractContextManager[RunRequest]:
        """Let whoever hears a run's children hear theirs, as long as the run is executed here."""
        hearers = self._hearers = {} if self._hearers is None else self._hearers
        starter = launch.starter.run_id if launch.starter is not None else ""
        hear = launch.hear_children or hearers.get(starter)
        return contextlib.nullcontext(launch) if hear is None else _heard(launch, hear, hearers)

    def _limits(self) -> DelegationLimits:
        return DelegationLimits(**self.settings.orchestration.model_dump())

    def _surroundings(self) -> Instrumentation:
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
        ceiling = confinement.ceiling("/".join(path_of(agent, session)))
        chosen = subagents_for(await self._subagents(), ceiling, rights_of(agent, session))
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

    async def _tell_above(
        self, session_id: str, cause: str, rules: Sequence[PermissionRule] = (), by: str = ""
    ) -> None:
        """Let rules hold for the whole line, and wake the runs that wait for one below."""
        above = await self._above(session_id)
        if above is not None and rules:
            await add_rules_above(self._journal, above, rules, by)
        while above is not None:
            run = await self._turns.find(above.run_id) if above.run_id else None
            if run is not None and run.status == "parked":
                await self._turns.wake(run.id, cause=cause, is_for_anyone=True)
            above = await self._above(above.session_id)

    async def _above(self, session_id: str) -> Lineage | None:
        """Who started the runs of a session, as long as it is there."""
        try:
            return lineage_of(await self._sessions.get_session(session_id))
        except NotFound:
            return None


@contextlib.contextmanager
def _heard(launch: RunRequest, hear: _Hearer, hearers: dict[str, _Hearer]) -> Iterator[RunRequest]:
    # Children name the run that started them, so it has to have a name before it begins.
    run_id = launch.run_id or new_id("run")
    before = hearers.get(run_id)
    hearers[run_id] = hear
    try:
        yield msgspec.structs.replace(launch, run_id=run_id, hear_children=hear)
    finally:
        hearers.pop(run_id, None)
        if before is not None:
            hearers[run_id] = before


def _to_both(launch: RunRequest, listener: Listener) -> Listener:
    """Return a listener that also tells whoever hears the children of the run's starter."""
    hear, starter = launch.hear_children, launch.starter
    if hear is None or starter is None:
        return listener
    name = launch.agent if isinstance(launch.agent, str) else launch.agent.name
    path = "/".join((*starter.path, name))

    def tell(item: Delta | ToolPart) -> None:
        listener(item)
        hear(ChildPiece(path=path, session_id=launch.place, run_id=launch.run_id, item=item))

    return tell
