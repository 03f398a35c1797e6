"""What a model sees: contexts as they would be built now, and compaction by hand."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import msgspec

from holdfast.agents import Agent
from holdfast.context import (
    STATE_MARK,
    AgentContext,
    CompactionHooks,
    Compactor,
    Conversation,
    render_state,
)
from holdfast.messages import Message
from holdfast.policy import NO_RULES
from holdfast.providers import Model, ModelRequest
from holdfast.runs import LOCAL_USER, RunPosition, locate_run, select_visible_tools
from holdfast.runtime.hooks import HookService
from holdfast.runtime.memory import MemoryService
from holdfast.runtime.models import ModelService
from holdfast.runtime.runs import RunService
from holdfast.runtime.skills import SkillService
from holdfast.runtime.state import StateService
from holdfast.runtime.toolbox import ToolService
from holdfast.sessions import Session, SessionManager, check_open
from holdfast.state import StateManager, StateOwner
from holdfast.tools import Gate, GateStateAccess


class ContextService:
    """Builds contexts outside a run."""

    def __init__(
        self,
        sessions: SessionManager,
        *,
        runs: RunService,
        models: ModelService,
        hooks: HookService,
        skills: SkillService,
        memory: MemoryService,
        toolbox: ToolService,
        state: StateService,
    ) -> None:
        """Build them as runs do."""
        self._sessions = sessions
        self._runs = runs
        self._models = models
        self._hooks = hooks
        self._skills = skills
        self._memory = memory
        self._toolbox = toolbox
        self._state = state

    async def read_of_session(self, session_id: str, agent_name: str | Agent) -> AgentContext:
        """Return what a model would see if a turn began now; raises NotFound."""
        session = await self._sessions.get_session(session_id)
        agent = await self._runs.resolve_agent(agent_name, session)
        await self._runs.check_policies()
        at = locate_run(agent, session)
        tools = await self._toolbox.select_tools_for(agent, at)
        if STATE_MARK in agent.prompt:
            agent = await self._render_prompt(session, agent, at)
        return await self._runs.context.build_agent_context(
            session,
            agent,
            select_visible_tools(tools, NO_RULES, at.rights),
            await self._skills.list_offered_in(session),
            await self._memory.would_recall(session),
        )

    async def _render_prompt(self, session: Session, agent: Agent, at: RunPosition) -> Agent:
        """Return the agent with the values in its prompt, read as a run of it would read them.

        Raises:
            PermissionDenied: the agent's rules do not give one; a run would fail too.
        """
        services = self._runs.services
        gate = Gate(
            policies=services.confinement.policies,
            agent_path="/".join(at.path),
            rights=at.rights,
            approver=services.approver,
            terms=services.terms,
        )
        environment = msgspec.structs.replace(
            self._state.manager(session.owner).environment,
            owner=StateOwner(
                tenant=self._state.tenant,
                user=session.owner or LOCAL_USER,
                project=session.project_id,
                session=session.id,
                agent=agent.name,
            ),
            access=GateStateAccess(gate),
        )
        named = copy.copy(agent)
        named.prompt = await render_state(agent.prompt, StateManager(environment))
        return named

    async def compact(self, session_id: str, *, focus: str, model: str | Model) -> Message | None:
        """Summarise a session's older part for the model's view; see `sessions.compact`."""
        sessions = self._sessions
        session = await sessions.get_session(session_id)
        check_open(session, sessions.journal.clock.now())
        ready = await self._models.ready(model)
        compactor = Compactor(
            ready.model,
            charge=ready.charge,
            clock=sessions.journal.clock,
            hooks=CompactionHooks(hooks=self._hooks.hooks),
        )

        async def build(session: Session, messages: Sequence[Message]) -> ModelRequest:
            context = await self._runs.context.build_agent_context(
                session, _NoAgent(), {}, messages=messages
            )
            return ModelRequest(messages=context.messages, system=context.system_prompt)

        async with sessions.writing(session.id) as hold:
            await sessions.check_idle(session.id)
            before = await sessions.messages.all(session)
            talk = Conversation(session=session, messages=before)
            after = await compactor.compact(talk, build, hold, focus=focus)
        return after.messages[-1] if len(after.messages) > len(before) else None


class _NoAgent:
    """No agent: a summary is made for the caller that goes on."""

    name = ""
    prompt = ""
