"""Runs of agents: made ready, executed, woken when a child can go on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from holdfast.agents import (
    UNLIMITED,
    WAITING_FOR_MODEL,
    Agent,
    AgentRegistry,
    AgentResult,
    ChildPiece,
    Delegation,
    KeptRequest,
    Listener,
    RunRequest,
    hear_nothing,
    make_title,
)
from holdfast.canonical import hash_sha256
from holdfast.context import ContextBuilder
from holdfast.errors import AlreadyExists, NotFound, RunIdReused, UsageError
from holdfast.hooks import Where
from holdfast.ids import make_id
from holdfast.journal import Journal, Payload
from holdfast.messages import Message, ToolPart
from holdfast.orchestration.delegation import CallDelegation, Children, DelegationLimits
from holdfast.policy import ApprovalTerms, OnAsk
from holdfast.providers import Delta
from holdfast.runs import (
    AgentRuntime,
    Budgets,
    Confinement,
    Lineage,
    MessageFiles,
    OpensCalls,
    PropagatingApprover,
    RunPosition,
    RunServices,
    StartedRun,
    StreamItem,
    TakeOver,
    add_rules_above,
    check_client_tools,
    list_children_of,
    list_runs_below,
    locate_run,
    read_lineage,
    run_messages,
    stream_model,
    summarize,
)
from holdfast.runtime.hooks import HookService
from holdfast.runtime.memory import MemoryService
from holdfast.runtime.models import ModelService
from holdfast.runtime.run_kinds import check_is_agents, name_begun_session
from holdfast.runtime.skills import SkillService
from holdfast.runtime.toolbox import ToolService
from holdfast.sessions import (
    MessageCreated,
    PermissionRule,
    Run,
    Session,
    SessionManager,
    compose,
    make_new_session,
    request_of,
)
from holdfast.settings import Settings
from holdfast.tools import (
    Approver,
    NoApprover,
    ToolRegistry,
    find_result_labels,
    list_missing_labels,
)
from holdfast.turns import TurnQueue

_MOST_WAKINGS = 100
_LOOK_S = 1.0
_MOST_GIVEN = 1000
_NO_APPROVER = NoApprover()
_Hearer: TypeAlias = Callable[[ChildPiece], None]


async def _check_nothing() -> None:
    """There are no policies."""


class RunService:
    """Carries out runs of agents; everything that starts one comes through `execute`."""

    def __init__(  # noqa: PLR0913 - what all runs work with
        self,
        settings: Settings,
        sessions: SessionManager,
        turns: TurnQueue,
        *,
        agents: AgentRegistry,
        models: ModelService,
        hooks: HookService,
        skills: SkillService,
        memory: MemoryService,
        toolbox: ToolService,
        confinement: Confinement,
        context: ContextBuilder,
        budgets: Budgets,
        calls: OpensCalls,
        files: MessageFiles,
    ) -> None:
        """Carry runs out with these services."""
        self._settings = settings
        self._sessions = sessions
        self._journal: Journal = sessions.journal
        self._turns = turns
        self._agents = agents
        self._models = models
        self._hooks = hooks
        self._skills = skills
        self._memory = memory
        self._toolbox = toolbox
        self.context = context
        """The builder of all contexts; put another one in its place to change its steps."""
        self.approver: Approver | None = None
        """Who answers when a call asks; no caller unless set."""
        self.check_policies: Callable[[], Awaitable[object]] = _check_nothing
        """Raises where a policy file is wrong, before anything is kept."""
        self.take_over: TakeOver | None = None
        """Executes runs that were left behind and are no agent's."""
        self._is_unchecked = True
        self._remembers = settings.memory.remember_conversations != "off"
        self._hearers: dict[str, _Hearer] = {}
        self._started: dict[str, StartedRun] = {}
        self._given: dict[str, tuple[Agent, object]] = {}
        """Agents that runs were started with as objects, and their `deps`."""
        self._services = RunServices(
            sessions=sessions,
            turns=turns,
            context=context,
            approver=_NO_APPROVER,
            terms=self.terms(),
            budgets=budgets,
            confinement=confinement,
            instrumentation=hooks.instrumentation,
            calls=calls,
            files=files,
            executor=self,
            clock=self._journal.clock,
        )
        limits = DelegationLimits(**settings.orchestration.model_dump())
        self.limits = limits
        delegation = CallDelegation(Children(self, sessions, turns, limits=limits, bus=hooks.bus))
        hooks.execution.provide(Delegation, delegation)  # type: ignore[type-abstract]

    @property
    def services(self) -> RunServices:
        """What every kind of run works with right now."""
        approver, around = self.approver or _NO_APPROVER, self._hooks.instrumentation
        known = self._services
        if (
            known.approver is not approver
            or known.instrumentation is not around
            or known.context is not self.context
        ):
            known = self._services = replace(
                known, approver=approver, instrumentation=around, context=self.context
            )
        return known

    def terms(self, on_ask: OnAsk = "deny") -> ApprovalTerms:
        """Return the terms of the settings, with what becomes of calls that no approver answers."""
        chosen = self._settings.approvals
        return ApprovalTerms(
            on_ask=on_ask, expires_after_s=chosen.expires_after_s, required=chosen.required
        )

    # --- starting ---------------------------------------------------------------------

    async def execute(self, request: RunRequest, listener: Listener = hear_nothing) -> AgentResult:
        """Execute a run, or resume it, and return its result; the base of all other ways.

        A run that waited for one that it started goes on when that one can go on.

        Raises:
            NotFound: there is no such agent or session, or no such tool or skill as are left
                to the run.
            UsageError: the message is no text, the agent neither an Agent nor a name, the run
                that of another agent, or a choice none that there is.
        """
        if request.hear_children is None and request.starter is None:
            return await self._see_through(request, listener)
        with self._open_hearing(request) as chosen:
            return await self._see_through(chosen, _to_both(chosen, listener))

    async def _see_through(self, chosen: RunRequest, hear: Listener) -> AgentResult:
        """Execute a run; one that waited for a child goes on when that one can."""
        if chosen.on_outage == "park" and chosen.run_id:
            await self._wake_after_outage(chosen.run_id)
        for wakings_left in range(_MOST_WAKINGS, -1, -1):
            session_id, execute = await self._prepare(chosen, hear)
            try:
                result = await execute()
            finally:
                if self._remembers:
                    await self._memory.remember_turns(session_id)
            if result.status != "parked" or not wakings_left:
                break
            if not await self._can_go_on(result.run_id):
                break
            await self._turns.wake(result.run_id, cause="a child can go on")
            chosen = replace(
                chosen, session_id=result.session_id, new_session=None, run_id=result.run_id
            )
        return result

    async def _wake_after_outage(self, run_id: str) -> None:
        """Let a run go on that was parked because its model could not be reached."""
        run = await self._turns.find(run_id)
        if run is not None and run.status == "parked" and run.reason.startswith(WAITING_FOR_MODEL):
            await self._turns.wake(run_id, cause="the model is asked again")

    def stream(
        self, request: RunRequest, *, with_children: bool = False
    ) -> AsyncGenerator[StreamItem, None]:
        """Execute a run and yield what happens; the last item is the result.

        Leaving early cancels the run.
        """

        async def start(hear: Callable[[StreamItem], None]) -> AgentResult:
            below = hear if with_children else None
            return await self.execute(replace(request, hear_children=below), hear)

        return stream_model(start)

    async def start(self, request: RunRequest, listener: Listener = hear_nothing) -> Run:
        """Begin a run in the background and return it, as soon as it is queued.

        It goes on until it ends or parks; closing the runtime cancels it.

        Raises:
            NotFound, UsageError: as for `execute`; nothing was begun.
        """
        await self._check_message(request)
        is_new = not request.run_id and not request.place and not request.history
        if is_new and isinstance(request.message, str):
            # Nobody can have begun it before: its session begins in the transaction of the run.
            title = make_title(request.message)
            opening = make_new_session(title, directory=self._settings.workspace)
            request = replace(request, new_session=opening)
        run_id = request.run_id or make_id("run")
        started = self._started.get(run_id)
        if started is not None:
            started.add_listener(listener)
        else:
            started = self._started[run_id] = StartedRun(listener)
            if isinstance(request.agent, Agent):
                self._given[run_id] = (request.agent, request.deps)
                if len(self._given) > _MOST_GIVEN:
                    del self._given[next(iter(self._given))]
            started.task = asyncio.create_task(
                self.execute(replace(request, run_id=run_id), started.hear)
            )
            started.task.add_done_callback(partial(self._make_ended, run_id))
        while True:
            seq = await self._journal.read_last_seq()
            run = await self._turns.find(run_id)
            if run is not None:
                return run
            if started.task is not None and started.task.done():
                await started.task
            await self._journal.store.changed(seq, _LOOK_S)

    async def submit(self, request: RunRequest, *, priority: int = 0) -> Run:
        """Put a run into the queue of its session, for any process, and return it.

        Where workers are busy, sessions with a higher `priority` are taken first.

        Raises:
            NotFound, UsageError: as for `execute`; nothing was begun.
        """
        request.check()
        await self._check_message(request)
        run_id = request.run_id or make_id("run")
        if isinstance(request.agent, str) and request.agent:
            await self._agents.require(request.agent)
        session = await self._find_session(replace(request, run_id=run_id))
        agent = await self.resolve_agent(request.agent, session)
        text = await agent.prepare(request.message) if agent.is_wrapped else request.message
        kept = msgspec.structs.replace(
            request.keep(agent, None),
            on_ask=request.on_ask,
            queue=self._settings.workers.find_queue(agent.name),
            priority=priority,
        )
        return await self._turns.submit(
            session.id,
            compose(session.id, "user", text, self._journal.clock.now()),
            on_busy=request.on_busy or self._settings.sessions.on_busy,
            agent=agent.name,
            options=kept.to_options() if kept != UNLIMITED else {},
            run_id=run_id,
            is_for_any_process=True,
        )

    async def wait(self, run_id: str) -> Run:
        """Return a run when it rests, without executing it here."""
        while True:
            seq = await self._journal.read_last_seq()
            run = await self._turns.get(run_id)
            if run.has_ended or run.status == "parked":
                return run
            await self._journal.store.changed(seq, _LOOK_S)

    async def result(self, run_id: str, *, may_go_on: bool = True) -> AgentResult:
        """Wait for the end of an agent's run and return its result; one that parks comes back.

        A run that no caller executes any more is gone on with here, if that `may_go_on`; else it
        is waited for. One that has ended is read from the journal, also where its agent is known
        no more.
        """
        started = self._started.get(run_id)
        if started is not None and started.task is not None:
            return await asyncio.shield(started.task)
        run = await self._turns.get(run_id)
        if not may_go_on:
            return await self._read_result(run_id)
        agent: str | Agent
        agent, deps = self._given.get(run_id, (run.agent, None))
        if run.has_ended and isinstance(agent, str):
            await check_is_agents(self._turns, self._journal, run_id)
            agent = await self._agents.get_agent(agent) or Agent(agent)
        request = RunRequest(agent=agent, message="", run_id=run_id, deps=deps)
        if not run.has_ended:
            # In the background: a caller that no longer waits must not end it.
            await self.start(request)
            started = self._started.get(run_id)
            if started is not None and started.task is not None:
                return await asyncio.shield(started.task)
        return await self.execute(request)

    async def _read_result(self, run_id: str) -> AgentResult:
        """Wait until a run rests and return what the journal says of it; nothing is executed."""
        run = await self.wait(run_id)
        await check_is_agents(self._turns, self._journal, run_id)
        agent = await self._agents.get_agent(run.agent) or Agent(run.agent)
        return summarize(agent, run, await run_messages(self._sessions, run), 0.0)

    async def follow(
        self, run_id: str, *, may_go_on: bool = True
    ) -> AsyncGenerator[StreamItem, None]:
        """Yield what a run does that was started here, from the present message on.

        The last item is the result, as `result` gives it. A run of another process gives its
        result alone.
        """
        started = self._started.get(run_id)
        if started is not None:
            async with contextlib.aclosing(started.items()) as items:
                async for item in items:
                    yield item
        yield await self.result(run_id, may_go_on=may_go_on)

    def _make_ended(self, run_id: str, task: asyncio.Task[AgentResult]) -> None:
        started = self._started.pop(run_id, None)
        if started is not None:
            started.end()
        if not task.cancelled():
            task.exception()  # the caller that waits for the result is told; no caller has to

    async def close(self) -> None:
        """Cancel what was started here and has not ended, and wait until that is recorded."""
        tasks = [one.task for one in self._started.values() if one.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def get_agent(self, name: str) -> Agent | None:
        """Return an agent by name, `None` if there is none."""
        return await self._agents.get_agent(name)

    async def require_agent(self, name: str) -> Agent:
        """Return an agent by name; raises NotFound."""
        return await self._agents.require(name)

    async def resolve_agent(self, agent: str | Agent, session: Session) -> Agent:
        """Return the agent that was named, else the session's own, else the default one."""
        if isinstance(agent, Agent):
            return agent
        return await self._agents.require(agent or session.agent or self._settings.default_agent)

    async def find_session_for(self, title: str, run_id: str) -> str:
        """Return the id of the session of a run; one that is not there yet begins now."""
        known = await self._turns.find(run_id) if run_id else None
        if known is not None:
            return known.session_id
        session_id = name_begun_session(run_id)
        with contextlib.suppress(AlreadyExists):
            await self._sessions.create_session(
                title, directory=self._settings.workspace, session_id=session_id
            )
        return session_id

    # --- ending -----------------------------------------------------------------------

    async def cancel(self, run_id: str, *, reason: str = "") -> Run:
        """Ask for a run to end, and for all that it started; works from any process."""
        run = await self._turns.cancel(run_id, reason=reason)
        await self.cancel_children(run_id, reason=reason)
        return run

    async def cancel_children(self, run_id: str, *, reason: str = "") -> int:
        """Ask for all runs to end that a run has started; returns how many had not ended."""
        count = 0
        told = reason or f"{run_id} was cancelled"
        for child in await list_runs_below(self._journal, run_id):
            run = await self._turns.find(child.id)
            if run is not None and not run.has_ended:
                await self._turns.cancel(run.id, reason=told)
                count += 1
        return count

    # --- answers ----------------------------------------------------------------------

    async def tell_above(
        self, session_id: str, cause: str, rules: Sequence[PermissionRule] = (), by: str = ""
    ) -> None:
        """Let rules hold for the whole line, and wake the runs that wait for one below."""
        above = await self._list_above(session_id)
        if above is not None and rules:
            await add_rules_above(self._journal, above, rules, by)
        while above is not None:
            run = await self._turns.find(above.run_id) if above.run_id else None
            if run is not None and run.status == "parked":
                await self._turns.wake(run.id, cause=cause, is_for_any_process=True)
            above = await self._list_above(above.session_id)

    async def _list_above(self, session_id: str) -> Lineage | None:
        """Who started the runs of a session, as long as it is there."""
        try:
            return read_lineage(await self._sessions.get_session(session_id))
        except NotFound:
            return None

    async def _can_go_on(self, run_id: str) -> bool:
        """Say whether a run waits for a child that no longer waits itself."""
        own = await list_children_of(self._journal, "parent_run", (run_id,))
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

    # --- making ready -----------------------------------------------------------------

    async def _prepare(
        self, request: RunRequest, listener: Listener
    ) -> tuple[str, Callable[[], Coroutine[Any, Any, AgentResult]]]:
        """Make everything ready for a run; returns its session, and what executes it."""
        request.check()
        if isinstance(request.agent, str) and request.agent:
            await self._agents.require(request.agent)
        run_id = request.run_id
        if run_id and request.new_session is None:
            await check_is_agents(self._turns, self._journal, run_id)
            await self._check_message(request)
        if request.tool_ids is not None or request.skill_names is not None:
            await self._check_names(request)
        # Where a subscriber listens it begins before, since they want to find it.
        is_observed = not self._hooks.hooks.is_empty or bool(self._hooks.bus.subscriptions)
        opening = request.new_session
        if is_observed or request.content or request.history:
            # What comes with the message belongs to the session, which must be there then.
            opening = None
        elif opening is None and not request.session_id and not run_id:
            # In the transaction of its first run; before that, where the run may be there.
            opening = make_new_session(
                make_title(request.message), directory=self._settings.workspace
            )
        if opening is not None:
            session = opening.as_of(self._journal.clock.now())
        else:
            session = await self._find_session(request)
        agent = request.agent
        if not isinstance(agent, Agent):
            agent = await self.resolve_agent(agent, session)
        if opening is None and run_id:
            request = await self._make_resuming(request, agent)
        if self._is_unchecked:
            await self.check_policies()
            self._is_unchecked = False
        at = locate_run(agent, session)
        tools = await self._toolbox.select_tools_for(agent, at)
        runtime = await self._make_runtime(request, agent, at, tools)
        runtime.opening = opening
        # Skills of a folder are for agents that can load them, and for runs that name them.
        skills = self._skills.registered
        if tools.find("skill") is not None or request.skill_names:
            skills = await self._skills.list_offered_in(session)
        if not run_id and is_observed:
            # A subscriber wants to know which run it is about to be.
            run_id = make_id("run")
        execute = partial(
            runtime.execute_agent,
            agent,
            session,
            tools=tools,
            skills=skills,
            options=request.options,
            run_id=run_id,
            scope=request.keep(agent, at.above.starter if at.above is not None else None),
            listener=listener,
            content=request.content,
            deps=request.deps,
        )
        where = Where(session_id=session.id, run_id=run_id, agent_path=at.agent_path)
        return session.id, partial(self._hooks.lives.run, agent, where, request.message, execute)

    async def _check_deps(self, request: RunRequest, agent: Agent, tools: ToolRegistry) -> None:
        """Refuse a run that is not handed what it needs; one that has ended needs nothing."""
        known = await self._turns.find(request.run_id) if request.run_id else None
        if known is None or not known.has_ended:
            agent.check_deps(request.deps, tools.needs, self._hooks.execution)

    async def _make_runtime(
        self, request: RunRequest, agent: Agent, at: RunPosition, tools: ToolRegistry
    ) -> AgentRuntime:
        """Return what executes a request, with the model, the consents and the limits of it."""
        if request.client.tools:
            check_client_tools(request.client.tools, tools)
        wants = agent.written or agent.lacks_instructions or agent.required_deps or agent.deps_type
        if wants or tools.needs or request.deps is not None:
            await self._check_deps(request, agent, tools)
        ready = await self._models.ready(request.model or agent.model)
        if ready.notice:
            self._models.announce(ready)
        services = self.services
        approver = agent.approve or request.approver or self.approver
        if approver is not None and at.above is not None:
            # Below others, what is allowed for always holds for the whole line.
            approver = PropagatingApprover(approver, self._journal, at.above)
        if approver is not None or request.on_ask != services.terms.on_ask:
            terms = self.terms(request.on_ask)
            services = replace(services, approver=approver or _NO_APPROVER, terms=terms)
        runtime = AgentRuntime(services, model=ready.model, charge=ready.charge)
        runtime.on_busy = request.on_busy or self._settings.sessions.on_busy
        runtime.find_agent = self._agents.get_agent
        runtime.find_model = self._models.open
        runtime.find_sibling = self._models.open_sibling
        runtime.find_tools = self._find_tools
        if self.take_over is not None:
            runtime.take_over = self.take_over
        return runtime

    async def _find_tools(self, agent: Agent, session: Session) -> ToolRegistry:
        """Return the tools of the agent of a run that was left behind."""
        return await self._toolbox.select_tools_for(agent, locate_run(agent, session))

    async def _find_session(self, request: RunRequest) -> Session:
        """The session that a run is meant for, which begins now if it is not there yet."""
        if request.history:
            known = await self._turns.find(request.run_id) if request.run_id else None
            return await self._begin_with_history(request, known.session_id if known else "")
        new = request.new_session
        if new is not None:
            with contextlib.suppress(AlreadyExists):
                await self._journal.append(new.id, [new.created], must_be_new=True)
        place = request.place or await self.find_session_for(
            make_title(request.message), request.run_id
        )
        return await self._turns.executor.look_up(place)

    async def _begin_with_history(self, request: RunRequest, session_id: str) -> Session:
        """Return a session that begins with the messages of a request, the same one each time."""
        if not session_id:
            session_id = await self.find_session_for(make_title(request.message), request.run_id)
            session = await self._sessions.get_session(session_id)
            parts = [part for one in request.history for part in one.tool_calls]
            labels = find_result_labels(parts)
            facts: list[Payload] = [*await list_missing_labels(self._journal, session_id, labels)]
            for one in request.history:
                kept = await self.services.files.keep(session, one.parts)
                facts.append(MessageCreated(message=_take_over(replace(one, parts=kept))))
            async with self._sessions.writing(session_id) as hold:
                if not (await self._sessions.get_session(session_id)).message_count:
                    await hold.append(*facts, is_last=True)
        return await self._turns.executor.look_up(session_id)

    async def _check_names(self, request: RunRequest) -> None:
        """Refuse tools and skills that there are not, before anything is kept.

        A run that has begun goes on with what there is now.
        """
        if request.run_id and await self._turns.find(request.run_id) is not None:
            return
        if request.session_id:
            session = await self._sessions.get_session(request.session_id)
        else:
            new = request.new_session or make_new_session("New", directory=self._settings.workspace)
            session = new.as_of(self._journal.clock.now())
        agent = await self.resolve_agent(request.agent, session)
        await self.check_policies()
        tools = await self._toolbox.select_tools_for(agent, locate_run(agent, session))
        request.check_names(tools, await self._skills.list_offered_in(session))

    async def _make_resuming(self, request: RunRequest, agent: Agent) -> RunRequest:
        """Return a request with the model that its run began with, unless it names another.

        What one agent was allowed, no other was: only the same one goes on with a run.

        Raises:
            UsageError: it is the run of another agent.
        """
        known = await self._turns.find(request.run_id)
        if known is None or known.has_ended:
            return request
        if known.agent not in ("", agent.name):
            raise UsageError(
                detail=f"The run {known.id} is one of the agent {known.agent!r}, and only that one "
                f"goes on with it, not {agent.name!r}."
            )
        if request.model:
            return request
        kept = KeptRequest.of((await request_of(self._journal, known)).options)
        return replace(request, model=kept.model)

    async def _check_message(self, request: RunRequest) -> None:
        """Return if the run of a request is new, or began with the same message.

        Raises:
            RunIdReused: it began with another one.
        """
        if not (request.run_id and request.must_repeat and request.message):
            return
        known = await self._turns.find(request.run_id)
        if known is None:
            return
        began = await request_of(self._journal, known)
        kept = KeptRequest.of(began.options) if "call" not in began.options else UNLIMITED
        if request.files_hash not in ("", kept.files_hash):
            raise RunIdReused(run_id=known.id)
        if kept.message_hash:
            is_same = kept.message_hash == hash_sha256(request.message.encode())
        elif began.message is None:
            return  # its content was removed: there is nothing left to compare
        else:
            given, redactor = request.message, self._journal.redactor
            # The journal keeps no secrets, so neither does what it is compared with.
            kept_text = given if redactor is None else redactor.text(given)
            is_same = began.message.text in (given, kept_text)
        if not is_same:
            raise RunIdReused(run_id=known.id)

    def _open_hearing(self, request: RunRequest) -> AbstractContextManager[RunRequest]:
        """Let the listener of a run's children hear theirs, while the run is executed here."""
        starter = request.starter.run_id if request.starter is not None else ""
        hear = request.hear_children or self._hearers.get(starter)
        if hear is None:
            return contextlib.nullcontext(request)
        return _listen(request, hear, self._hearers)


def _take_over(message: Message) -> Message:
    """Return a message of another conversation as one of a session that begins."""
    return replace(message, id=make_id("msg"), session_id="", run_id="", parent_id="")


@contextlib.contextmanager
def _listen(
    request: RunRequest, hear: _Hearer, hearers: dict[str, _Hearer]
) -> Iterator[RunRequest]:
    # Children name the run that started them, so it has to have a name before it begins.
    run_id = request.run_id or make_id("run")
    before = hearers.get(run_id)
    hearers[run_id] = hear
    try:
        yield replace(request, run_id=run_id, hear_children=hear)
    finally:
        hearers.pop(run_id, None)
        if before is not None:
            hearers[run_id] = before


def _to_both(request: RunRequest, listener: Listener) -> Listener:
    """Return a listener that also tells the listener of the children of the run's starter."""
    hear, starter = request.hear_children, request.starter
    if hear is None or starter is None:
        return listener
    path = "/".join((*starter.path, request.agent_name))

    def tell(item: Delta | ToolPart) -> None:
        listener(item)
        hear(ChildPiece(path=path, session_id=request.place, run_id=request.run_id, item=item))

    return tell


__all__ = ["RunService"]
