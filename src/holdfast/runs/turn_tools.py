"""The hands of a turn: the tools that it offers, and what executes their calls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from holdfast.agents.definition import Agent
from holdfast.messages import ToolPart
from holdfast.policy import Rights
from holdfast.policy.approvals import ApprovalBook, ApprovalTerms
from holdfast.runs.kept_request import RunScope
from holdfast.runs.lineage import lineage_of, path_of, rights_of, sandbox_of
from holdfast.runs.propagating_approver import unwrapped
from holdfast.runs.services import Services
from holdfast.runs.spending import Spending
from holdfast.runs.tools import visible_tools
from holdfast.sessions import Session
from holdfast.tools import SandboxRunner, Tool, ToolContext, ToolRegistry
from holdfast.tools.artifacts import JournalArtifacts
from holdfast.tools.builtin import restore_grants
from holdfast.tools.child_limits import ChildLimits, without_end
from holdfast.tools.labels import ContextLabels, kept_labels
from holdfast.tools.manager import ToolExecutionManager, spend_freely
from holdfast.tools.state import JournalState
from holdfast.turns import Turn

_FIRST_FACTS = 3
"""Up to here a session has but its own beginning and that of its first run."""


class TurnTools:
    """The tools of one turn.

    Many turns make no call: what only a call needs (workspace, sandbox, grants, gate) is made
    with the first one.
    """

    def __init__(
        self, services: Services, agent: Agent, turn: Turn, scope: RunScope, tools: ToolRegistry
    ) -> None:
        """Begin with the tools of the client; those of the agent lie on top of them."""
        self._services = services
        self._agent = agent
        self._turn = turn
        self._scope = scope
        self._registry = tools
        self._rights = Rights()
        self._runner: SandboxRunner | None = None

    async def offer(self, session: Session) -> dict[str, Tool]:
        """Return the tools that the model may see, in a workspace that can be used.

        Raises:
            UsageError: the session's directory cannot be a workspace.
        """
        services, agent, scope = self._services, self._agent, self._scope
        services.confinement.check_directory(session.directory)
        self._rights = rights_of(agent, session, scope.tool_ids, scope.skill_names)
        if agent.tools:
            self._registry = self._registry.layer(tuple(agent.tools), scope="agent")
        around = services.surroundings
        ceiling = services.confinement.ceiling(around.where.agent_path or agent.name)
        visible = visible_tools(self._registry, ceiling, self._rights)
        return await around.discover(self._registry, visible)

    async def manager(
        self, session: Session, spending: Spending | None, before: Sequence[ToolPart]
    ) -> ToolExecutionManager:
        """Make what executes calls, once per turn; `before` are calls of a run that goes on."""
        services, turn, agent = self._services, self._turn, self._agent
        path, sandbox = path_of(agent, session), sandbox_of(agent, session)
        rights, terms = self._rights, services.terms
        if self._scope.on_ask == "park":
            terms = msgspec.structs.replace(terms, on_ask="park")
        confinement = services.confinement
        gate = confinement.gate(path, rights, services.approver, terms)
        workspace = confinement.workspace(session.directory)
        commands, self._runner = confinement.commands(
            workspace, is_read_only=sandbox == "read-only", has_network=sandbox == "network"
        )
        # A session that has just begun has been granted nothing, and nothing was read in it.
        is_known = turn.is_resumed or turn.lease.session_seq > _FIRST_FACTS
        context = ToolContext(
            workspace=workspace,
            http=confinement.http,
            commands=commands,
            session_id=session.id,
            run_id=turn.run.id,
            agent_path=path,
            rights=rights,
            is_read_only=sandbox == "read-only",
            has_network=sandbox == "network",
            heritage=self._heritage(spending, terms),
            labels=await self._labels(session, is_known=is_known, is_online=sandbox == "network"),
            artifacts=JournalArtifacts(turn, services.sessions.journal, session.id),
            state=JournalState(turn, services.sessions.journal, session.id),
            execution=services.surroundings.execution_of_run(),
            progress=services.surroundings.progress_sink(),
            attendant=services.surroundings.attendant,
        )
        if is_known:
            await restore_grants(workspace, context.state)
        manager = ToolExecutionManager(
            self._registry,
            recorder=turn,
            context=context,
            gate=gate,
            # Only a run that was parked or interrupted can have been asked about before.
            approvals=ApprovalBook(services.sessions.journal, session.id)
            if turn.is_resumed
            else None,
            spend=spending.spend_tool_call if spending is not None else spend_freely,
            clock=services.clock,
        )
        manager.remember(before)
        services.surroundings.attend(manager)
        return manager

    async def close(self) -> None:
        """End what calls have left running."""
        if self._runner is not None and not self._runner.is_idle:
            await asyncio.shield(self._runner.aclose())

    async def _labels(self, session: Session, *, is_known: bool, is_online: bool) -> ContextLabels:
        """The labels of what the model has read: in the session, and before whoever began it."""
        above = lineage_of(session)
        inherited = above.labels if above is not None else ()
        journal = self._services.sessions.journal
        kept = await kept_labels(journal, session.id) if is_known else ()
        return ContextLabels((*inherited, *kept), is_online=is_online)

    def _heritage(self, spending: Spending | None, terms: ApprovalTerms) -> ChildLimits:
        """What runs that a call starts share with this one."""
        return ChildLimits(
            shares=spending.shares if spending is not None else (),
            seconds_left=spending.time_left if spending is not None else without_end,
            on_ask=terms.on_ask,
            approver=unwrapped(self._services.approver),
            skill_names=self._scope.skill_names,
        )
