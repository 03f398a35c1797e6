"""Agents: register, list, execute, stream."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast.agents import Agent, AgentRegistry, AgentResult
from holdfast.agents.files import AgentFiles
from holdfast.canonical import JsonObject
from holdfast.client.kinds import check_is_agents, session_begun_by
from holdfast.client.mcp import McpMethods
from holdfast.client.memory import MemoryMethods
from holdfast.client.scripts import ScriptMethods
from holdfast.context import AgentContext
from holdfast.errors import AlreadyExists, UsageError
from holdfast.hooks import Where
from holdfast.ids import new_id
from holdfast.orchestration.delegation import task
from holdfast.policy import NO_RULES
from holdfast.policy.approvals import ON_ASK, OnAsk
from holdfast.policy.budgets import NO_BUDGET, Budget, BudgetLedger
from holdfast.policy.shared_budget import SharedBudget
from holdfast.providers.model import Model
from holdfast.runs import AgentRuntime
from holdfast.runs.confinement import Confinement
from holdfast.runs.history import history_tool
from holdfast.agents.request import KeptRequest, Starter, scope_of
from holdfast.runs.lineage import lineage_of, path_of, rights_of, sandbox_of
from holdfast.runs.propagating_approver import PropagatingApprover
from holdfast.agents.request import RunRequest, check_names
from holdfast.runs.spending import Budgets, Charge
from holdfast.runs.streaming import StreamItem, streamed
from holdfast.runs.tools import compact, plan_tools, visible_tools
from holdfast.runs.turn import Listener, hear_nothing
from holdfast.sessions import NewSession, Run, Session, SessionManager, compose, new_session
from holdfast.sessions.events import ON_BUSY, OnBusy
from holdfast.skills import TrustStore, skill_tool
from holdfast.tools import Tool, ToolRegistry
from holdfast.tools.builtin import builtin_tools
from holdfast.tools.builtin.search import searxng_tools
from holdfast.tools.bundles import register_bundles
from holdfast.tools.gate import Approver
from holdfast.tools.lsp import LanguageServer, LanguageServers
from holdfast.turns import Outcome, Turn

_TITLE = 60
DEFAULT_AGENT = "build"


class Prepared(NamedTuple):
    """A run that is about to begin."""

    session_id: str
    execute: Callable[[], Coroutine[Any, Any, AgentResult]]


class AgentMethods(MemoryMethods, ScriptMethods, McpMethods):
    """What the client can do with agents."""

    _agents: AgentRegistry | None = None
    _tools: ToolRegistry | None = None
    _language_servers: LanguageServers | None = None
    _ledger: BudgetLedger | None = None
    _tenant_budget: SharedBudget | None = None
    approver: Approver | None = None
    """Who answers when a call asks; nobody unless set."""

    # --- definitions ------------------------------------------------------------------

    async def register_agent(self, agent: Agent) -> None:
        """Make an agent known by its name; it is found after a restart too."""
        await (await self._agent_registry()).register_agent(agent)

    async def get_agent(self, name: str) -> Agent | None:
        """Return an agent by name, `None` if there is none."""
        return await (await self._agent_registry()).get_agent(name)

    async def list_agents(self, *, include_hidden: bool = False) -> list[Agent]:
        """Return all agents: built-in ones first."""
        registry = await self._agent_registry()
        return await registry.list_agents(include_hidden=include_hidden)

    async def remove_agent(self, name: str) -> bool:
        """Forget an agent; returns whether there was one."""
        return await (await self._agent_registry()).remove_agent(name)

    async def load_installed_agents(self) -> tuple[Agent, ...]:
        """Import the agents that installed packages offer, and return them.

        They are entry points of the group `holdfast.agents`. Nothing is imported unless this
        is called.

        Raises:
            UsageError: an entry point is no agent, or cannot be imported.
        """
        return (await self._agent_registry()).load_entry_points()

    async def agent_registry(self) -> AgentRegistry:
        """Return the registry, for what the client does not cover."""
        return await self._agent_registry()

    async def register_tool(self, tool: Tool) -> None:
        """Offer a tool to every agent of this client; rules decide who may call it."""
        self._tool_registry().register(tool)

    def tool_registry(self) -> ToolRegistry:
        """Return the tools of this client: the built-in ones, and what was registered."""
        return self._tool_registry()

    # --- execution --------------------------------------------------------------------

    async def execute_agent(  # noqa: PLR0913 - what one run may be told
        self,
        agent_name: str | Agent,
        session_id: str,
        user_message: str,
        options: JsonObject | None = None,
        *,
        run_id: str = "",
        model: str | Model = "",
        on_ask: OnAsk = "deny",
        budget: Budget | None = None,
        on_busy: OnBusy | None = None,
    ) -> AgentResult:
        """Run an agent on a message in a session and return its result.

        An empty `agent_name` means the session's own agent (`plan_enter` and `plan_exit` set
        it), or else `build`. An empty `session_id` means the session of `run_id` if there is
        such a run, or else a new one. `options` are sent to the provider as they are. The
        same `run_id` again returns the finished result, or resumes what was interrupted, with
        the model and the options that it began with unless others are given.

        Where a call asks and nobody is there to answer, `on_ask` refuses it (`deny`) or lets
        the run wait without memory (`park`) until `approve` or `deny` is called, anywhere.

        `budget` limits what this run may spend, besides the limits of its agent, of its
        session (`metadata={"budget": {…}}`) and of the settings. A run that does not fit into
        one of them ends as failed with the error `budget.exceeded`.

        While another turn is under way in the session, `on_busy` waits for it (`queue`),
        raises (`reject`), ends it (`interrupt`), or hands the message to it and returns its
        result (`steer`); the settings say which if the call does not.

        Raises:
            NotFound: there is no such agent or session.
            SessionBusy: another turn is under way and `on_busy` is `reject`.
        """
        return await self.launch(
            RunRequest(
                agent=agent_name,
                session_id=session_id,
                message=user_message,
                options=options or {},
                run_id=run_id,
                model=model,
                on_ask=on_ask,
                budget=budget,
                on_busy=on_busy,
            )
        )

    def stream_agent(  # noqa: PLR0913 - what one run may be told
        self,
        agent_name: str | Agent,
        session_id: str,
        user_message: str,
        options: JsonObject | None = None,
        *,
        run_id: str = "",
        model: str | Model = "",
        on_ask: OnAsk = "deny",
        budget: Budget | None = None,
        on_busy: OnBusy | None = None,
        with_children: bool = False,
    ) -> AsyncGenerator[StreamItem, None]:
        """Run an agent and yield what happens; the last item is the result.

        `with_children` also yields what the runs do that it starts, each piece as a
        `ChildPiece` under the path of its agent, in the order in which it happens.

        Leaving the loop early cancels the run.
        """
        launch = RunRequest(
            agent=agent_name,
            session_id=session_id,
            message=user_message,
            options=options or {},
            run_id=run_id,
            model=model,
            on_ask=on_ask,
            budget=budget,
            on_busy=on_busy,
        )

        async def start(hear: Callable[[StreamItem], None]) -> AgentResult:
            below = hear if with_children else None
            return await self.launch(replace(launch, hear_children=below), hear)

        return streamed(start)

    stream = stream_agent
    """The same by its short name."""

    @abstractmethod
    async def launch(self, launch: RunRequest, listener: Listener = hear_nothing) -> AgentResult:
        """Execute a run, or resume it, and return its result; the base of all other ways."""

    async def _prepare(self, launch: RunRequest, listener: Listener) -> Prepared:
        """Make everything ready for a run, and return what executes it."""
        _check_types(launch)
        sessions = await self._ready()
        if isinstance(launch.agent, str) and launch.agent:
            await self._find(launch.agent)
        if launch.run_id and launch.new_session is None:
            await check_is_agents(self._turns, self._journal, launch.run_id)
        if launch.tool_ids is not None or launch.skill_names is not None:
            await self._check_scope(launch)
        is_observed = self._is_observed()
        # Where somebody listens it begins before, since they want to find it.
        opening = None if is_observed else self._opening(launch)
        if opening is not None:
            session = opening.as_of(self._journal.clock.now())
        else:
            session = await self._session_of(launch)
        agent = await self._agent_for(launch.agent, session)
        if opening is None and launch.run_id:
            launch = await self._resuming(launch, agent)
        confinement = await self._confinement()
        runtime = await self._runtime_for(launch, agent, session, sessions, confinement)
        runtime.opening = opening
        skills = await self._skills_for(session)
        tools = await self._tools_for(agent, session, confinement)
        run_id = launch.run_id
        if not run_id and is_observed:
            # Whoever listens wants to know which run it is about to be.
            run_id = new_id("run")
        scope = KeptRequest(
            budget=launch.budget or NO_BUDGET,
            tool_ids=launch.tool_ids,
            skill_names=launch.skill_names,
            starter=launch.starter or _starter_of(session),
            model=launch.model if isinstance(launch.model, str) else "",
            options=launch.options,
        )

        execute = partial(
            runtime.execute_agent,
            agent,
            session,
            tools=tools,
            skills=skills,
            options=launch.options,
            run_id=run_id,
            scope=scope,
            listener=listener,
        )
        path = "/".join(path_of(agent, session))
        where = Where(session_id=session.id, run_id=run_id, agent_path=path)
        lives = self._agent_lives()
        return Prepared(session.id, partial(lives.run, agent, where, launch.message, execute))

    async def _runtime_for(
        self,
        launch: RunRequest,
        agent: Agent,
        session: Session,
        sessions: SessionManager,
        confinement: Confinement,
    ) -> AgentRuntime:
        """Return what executes a launch, with the model, the consents and the limits of it."""
        ready = await self.ready_model(launch.model or agent.model)
        runtime = AgentRuntime(
            sessions,
            self._turns,
            model=ready.model,
            charge=ready.charge,
            context_builder=self.context_builder,
            approver=self._approver_for(agent.approve or launch.approver, session),
            terms=self.approval_terms(launch.on_ask),
            budgets=self._budgets(),
            confinement=confinement,
            surroundings=self._surroundings(),
        )
        runtime.on_busy = launch.on_busy or self.settings.sessions.on_busy
        runtime.find_agent = self.get_agent
        runtime.find_model = self._open_model
        runtime.take_over = self._take_over
        return runtime

    async def _open_model(self, wanted: str | Model) -> tuple[Model, Charge]:
        ready = await self.ready_model(wanted)
        return ready.model, ready.charge

    async def _take_over(self, turn: Turn) -> Outcome | None:
        """Execute a run that was left behind and is no agent's; `None` for all others."""
        return None

    async def session_context(self, session_id: str, agent_name: str | Agent = "") -> AgentContext:
        """Return what a model would see if a turn began now; `account` says what takes how much.

        Raises:
            NotFound: there is no such agent or session.
        """
        session = await (await self._ready()).get_session(session_id)
        agent = await self._agent_for(agent_name, session)
        rights = rights_of(agent, session)
        tools = await self._tools_for(agent, session, await self._confinement())
        registry = tools.child(agent.tools, scope="agent")
        return await self.context_builder.build_agent_context(
            session,
            agent,
            visible_tools(registry, NO_RULES, rights),
            await self._skills_for(session),
            await self._would_recall(session),
        )

    async def cancel_run(self, run_id: str, *, reason: str = "") -> Run:
        """Ask for a run to end; works from any process."""
        return await (await self.turns()).cancel(run_id, reason=reason)

    async def steer(self, session_id: str, message: str) -> Run:
        """Say something to the run that is under way in a session; returns that run.

        It reads it before its next step. Works from any process.

        Raises:
            NotFound: no run is under way.
        """
        said = compose(session_id, "user", message, self._journal.clock.now())
        return await (await self.turns()).steer(session_id, said)

    async def get_run(self, run_id: str) -> Run:
        """Return a run; raises NotFound."""
        return await (await self.turns()).get(run_id)

    async def close(self) -> None:
        """Close the rest, then end the language servers."""
        await super().close()
        if self._language_servers is not None:
            await self._language_servers.close()

    # --- inside -----------------------------------------------------------------------

    async def _tools_for(
        self, agent: Agent, session: Session, confinement: Confinement
    ) -> ToolRegistry:
        """The tools of one run, besides the agent's own."""
        tools = self._tool_registry()
        await self._prepare_mcp(has_network=sandbox_of(agent, session) == "network")
        return tools

    def _approver_for(self, approver: Approver | None, session: Session) -> Approver | None:
        """Who answers in a session; below others, what is allowed for always holds for all."""
        chosen, above = approver or self.approver, lineage_of(session)
        if chosen is None or above is None:
            return chosen
        return PropagatingApprover(chosen, self._journal, above)

    def _budgets(self) -> Budgets:
        """What limits all runs, with sums that all runs of this client share."""
        if self._ledger is None:
            self._ledger = BudgetLedger()
            limits = Budget(**self.settings.budget.model_dump())
            self._tenant_budget = SharedBudget(
                self._journal, self.tenant, limits, owner=self._keeper.owner
            )
        return Budgets(ledger=self._ledger, tenant=self._tenant_budget)

    def _is_observed(self) -> bool:
        """Say whether somebody listens who wants to find what a run is about to use."""
        hooks, bus = self._hooks, self._bus
        is_hooked = hooks is not None and not hooks.is_empty
        return is_hooked or (bus is not None and bool(bus.subscriptions))

    def _opening(self, launch: RunRequest) -> NewSession | None:
        """The session that begins in the transaction of its first run, if it can.

        It begins before where the run may be there already.
        """
        if launch.place or launch.run_id:
            return launch.new_session
        return new_session(_title_of(launch.message), directory=self.settings.workspace)

    async def _session_of(self, launch: RunRequest) -> Session:
        """The session that a run is meant for, which begins now if it is not there yet."""
        new = launch.new_session
        if new is not None:
            with contextlib.suppress(AlreadyExists):
                await self._journal.append(new.id, [new.created], must_be_new=True)
        place = launch.place or await self._session_for(launch.message, launch.run_id)
        return await self._turns.beginnings.look_up(place)

    async def _session_for(self, message: str, run_id: str) -> str:
        known = await self._turns.find(run_id) if run_id else None
        if known is not None:
            return known.session_id
        session_id = session_begun_by(run_id)
        with contextlib.suppress(AlreadyExists):
            await (await self._ready()).create_session(
                _title_of(message), directory=self.settings.workspace, session_id=session_id
            )
        return session_id

    async def _check_scope(self, launch: RunRequest) -> None:
        """Refuse tools and skills that there are not, before anything is kept.

        A run that has begun goes on with what there is now.
        """
        if launch.run_id and await self._turns.find(launch.run_id) is not None:
            return
        if launch.session_id:
            session = await self._sessions.get_session(launch.session_id)
        else:
            new = launch.new_session or new_session("New", directory=self.settings.workspace)
            session = new.as_of(self._journal.clock.now())
        agent = await self._agent_for(launch.agent, session)
        tools = await self._tools_for(agent, session, await self._confinement())
        check_names(launch, [*tools, *agent.tools], await self._skills_for(session))

    async def _resuming(self, launch: RunRequest, agent: Agent) -> RunRequest:
        """Return a launch with the model that its run began with, unless it names another.

        What one agent was allowed, no other was: only the same one goes on with a run.

        Raises:
            UsageError: it is the run of another agent.
        """
        known = await self._turns.find(launch.run_id)
        if known is None or known.has_ended:
            return launch
        if known.agent not in ("", agent.name):
            raise UsageError(
                detail=f"The run {known.id} is one of the agent {known.agent!r}, and only that one "
                f"goes on with it, not {agent.name!r}."
            )
        if launch.model:
            return launch
        return replace(launch, model=(await scope_of(self._journal, known)).model)

    async def _agent_for(self, agent: str | Agent, session: Session) -> Agent:
        """The agent that was named, else the session's own, else the default one."""
        if isinstance(agent, Agent):
            return agent
        return await self._find(agent or session.agent or DEFAULT_AGENT)

    async def _find(self, name: str) -> Agent:
        return await (await self._agent_registry()).require(name)

    async def _agent_registry(self) -> AgentRegistry:
        await self._ready()
        if self._agents is None:
            files = AgentFiles(
                self.settings.workspace,
                user_folder=self.settings.user_dir / "agents",
                trust=TrustStore(self.base_dir),
            )
            self._agents = AgentRegistry(self._journal, files=files)
        return self._agents

    def _tool_registry(self) -> ToolRegistry:
        if self._tools is None:
            sessions = self._sessions
            own = (
                skill_tool(self._offered_skills),
                compact,
                history_tool(sessions),
                *plan_tools(sessions),
                task,
                *self._memory_tools(),
            )
            servers = [
                LanguageServer(
                    name=name,
                    command=(said.command, *said.args),
                    endings=said.endings,
                    readable=said.readable,
                )
                for name, said in self.settings.tools.language_servers.items()
            ]
            self._language_servers = LanguageServers(servers, hidden=self._hidden)
            builtin = builtin_tools(language_servers=self._language_servers)
            layer = builtin.child(own, scope="built-in")
            if self.settings.mcp_endpoints:
                layer = self._mcp_layer = layer.child(scope="mcp")
            self._tools = layer.child(scope="project")
            if self.settings.tools.searxng_url:
                for made in searxng_tools(str(self.settings.tools.searxng_url)):
                    self._tools.register(made, replace=True)
            register_bundles(self._tools, self.settings.tools.dir)
        return self._tools


def _check_types(launch: RunRequest) -> None:
    if not isinstance(launch.message, str):
        raise UsageError(detail=f"The message of a run is a text, not {launch.message!r:.80}.")
    if not isinstance(launch.agent, str | Agent):
        raise UsageError(detail=f"{launch.agent!r:.80} is neither an Agent nor a name.")
    if not isinstance(launch.session_id, str):
        raise UsageError(detail=f"A session is named by its id, not {launch.session_id!r:.80}.")
    if not isinstance(launch.model, str) and not hasattr(launch.model, "stream"):
        raise UsageError(detail=f"{launch.model!r:.80} is neither a Model nor the name of one.")
    if launch.on_ask not in ON_ASK:
        raise UsageError(detail=f"on_ask is one of {', '.join(ON_ASK)}.")
    if launch.on_busy is not None and launch.on_busy not in ON_BUSY:
        raise UsageError(detail=f"on_busy is one of {', '.join(ON_BUSY)}.")
    if launch.budget is not None and not isinstance(launch.budget, Budget):
        raise UsageError(detail=f"A budget is a Budget, not {launch.budget!r:.80}.")
    if launch.options:
        _check_options(launch.options)


def _check_options(options: object) -> None:
    try:
        msgspec.json.encode(options)
        is_object = isinstance(options, dict)
    except (TypeError, ValueError):
        is_object = False
    if not is_object:
        raise UsageError(detail=f"Options are an object that JSON can hold, not {options!r:.80}.")


def _title_of(message: str) -> str:
    return " ".join(message.split())[:_TITLE] or "A run without words"


def _starter_of(session: Session) -> Starter | None:
    """Who started the runs of a session; a run that a person adds there counts as theirs too."""
    above = lineage_of(session)
    return above.starter if above is not None else None
