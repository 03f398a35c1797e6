"""The surroundings of a call, put together in one place for every kind of run.

Agent turns, calls by hand, steps of workflows and checks of loops all get their tools' context
here: gate, labels, state, artifacts, hooks, budgets, grants. Where four places did this, each
forgot something, and what one forgot was a hole.
"""

from __future__ import annotations

from functools import partial

from holdfast.clock import Clock
from holdfast.journal import Journal, Origin
from holdfast.policy import ApprovalBook
from holdfast.runs import (
    CallScope,
    Confinement,
    OpensArtifacts,
    PropagatingApprover,
    RunCalls,
    make_session_actor,
)
from holdfast.runtime.egress import EgressService
from holdfast.runtime.processes import ProcessEnvironment, RawNetworkCommands
from holdfast.state import (
    JournalStateStore,
    LastChanges,
    ScopedState,
    StateEnvironment,
    StateLimits,
    StateManager,
    StateOwner,
    StateScope,
)
from holdfast.tools import (
    Cancellation,
    ChildLimits,
    CommandRunner,
    ContextLabels,
    Gate,
    GateStateAccess,
    NoApprover,
    NoNestedCalls,
    RunArtifacts,
    SandboxedCommands,
    ToolContext,
    ToolExecutionManager,
    ToolHooks,
    give_no_limit,
    read_kept_labels,
    restore_grants,
    share_threads,
    spend_freely,
)

_WORKFLOW = "workflow:"
"""What the name begins with under which a workflow stands in a path of agents."""
_USUAL_LIMITS = StateLimits()
_FIRST_QUEUED, _FIRST_STARTED = 2, 3
"""The numbers of these facts where nothing stands before them but the session's beginning."""


class CallEnvironment:
    """Opens what executes the calls of a run; the only constructor of a `ToolContext`."""

    def __init__(
        self,
        journal: Journal,
        confinement: Confinement,
        artifacts: OpensArtifacts,
        processes: ProcessEnvironment,
        egress: EgressService,
        clock: Clock,
        *,
        tenant: str = "local",
        state_limits: StateLimits = _USUAL_LIMITS,
    ) -> None:
        """Keep facts in this journal, and confine calls as the operator wants."""
        self._journal = journal
        self._artifacts = artifacts
        self._confinement = confinement
        self._processes = processes
        self._egress = egress
        self._clock = clock
        self._tenant = tenant
        self._state_limits = state_limits
        self._last_changes = LastChanges()
        self._threads = share_threads()

    async def open_calls(self, scope: CallScope) -> RunCalls:
        """Return what executes the calls of a run.

        A run that is resumed elsewhere finds everything again: the taint labels of what its
        session has read, the directories that were granted, the state that tools kept.
        """
        turn, session, around = scope.turn, scope.session, scope.instrumentation
        confinement, journal, spending = self._confinement, self._journal, scope.spending
        is_raw = scope.sandbox == "network"
        is_online = is_raw or scope.sandbox == "filtered"
        workspace = confinement.workspace(session.directory)
        egress = None
        if scope.sandbox == "filtered":
            egress = self._egress.open_for_run(turn.run.id, scope.path, scope.rights).serve
        runner = self._processes.open_process(workspace, profile=scope.sandbox, egress=egress)
        # The gate asks about every line that it cannot read; what comes here has passed it.
        commands: CommandRunner = SandboxedCommands(
            runner, passes_unread=True, is_net_open=confinement.is_net_open
        )
        if is_raw:
            # The machine's own network, for which no list of hosts holds.
            commands = RawNetworkCommands(commands, confinement.policies)
        # A session that has just begun has been granted nothing, and nothing was read in it.
        is_known = (
            turn.session is None
            or turn.is_resumed
            or turn.run.queued_at != _FIRST_QUEUED
            or turn.lease.session_seq != _FIRST_STARTED
        )
        labels = (
            *scope.inherited,
            *(await read_kept_labels(journal, session.id) if is_known else ()),
        )
        # The caller that is asked in the name of a child is asked by its children themselves.
        asked = scope.approver
        asked = asked.inner if isinstance(asked, PropagatingApprover) else asked
        # In whose name the session was begun; locally, the owner of the state directory.
        user = around.execution.user_id or session.owner
        make_actor = partial(
            make_session_actor, session, self._artifacts.tenant, user=user, run_id=turn.run.id
        )
        # Below the ceilings that the policies set for every agent of the path.
        gate = Gate(
            policies=confinement.policies,
            agent_path="/".join(scope.path),
            rights=scope.rights,
            approver=scope.approver,
            terms=scope.terms,
            given=scope.given,
        )
        gate.confines = runner.is_boundary
        taint = ContextLabels(labels, is_online=is_online)
        state = self._open_state(scope, gate, taint, user)
        context = ToolContext(
            workspace=workspace,
            session_id=session.id,
            run_id=turn.run.id,
            call_id="",
            idempotency_key="",
            fence=turn.epoch,
            unproved_fence=turn.lease.unproved_epoch,
            is_lease_held=turn.is_still_mine,
            passed_by="rules",
            agent_path=scope.path,
            rights=scope.rights if scope.handed_on is None else scope.handed_on,
            is_read_only=scope.sandbox == "read-only",
            has_network=is_raw if scope.has_network is None else scope.has_network,
            child_limits=ChildLimits(
                shares=spending.shares if spending is not None else (),
                seconds_left=spending.compute_time_left if spending is not None else give_no_limit,
                on_ask=scope.terms.on_ask,
                approver=None if isinstance(asked, NoApprover) else asked,
                skill_names=scope.skill_names,
            ),
            labels=taint,
            cancellation=Cancellation(),
            progress=around.make_progress_sink(),
            state=ScopedState(state, StateScope("session", session.id)),
            artifacts=RunArtifacts(self._artifacts.opened, make_actor, turn, journal, taint),
            http=confinement.http,
            commands=commands,
            open_reader=self._processes.open_reader,
            attendant=around.attendant,
            nested=_NOT_NESTED,
            threads=self._threads,
            clock=self._clock,
            execution=around.execution.inherit(
                {StateManager: StateManager(state)},
                session_id=session.id,
                run_id=turn.run.id,
                conversation_id=around.execution.conversation_id or session.id,
            ),
            deps=scope.deps,
        )
        if is_known:
            await restore_grants(workspace, context.state)
        manager = ToolExecutionManager(
            scope.tools,
            recorder=turn,
            context=context,
            gate=gate,
            # Only a run that was parked or interrupted can have been asked about before.
            approvals=ApprovalBook(journal, session.id) if turn.is_resumed else None,
            spend=spending.spend_tool_call if spending is not None else spend_freely,
            clock=self._clock,
        )
        if scope.before:
            manager.remember(scope.before)
        if not around.hooks.is_empty:
            manager.hooks = ToolHooks(around.hooks, scope.tools, around.where)
        manager.bus, manager.where = around.bus, around.where
        return RunCalls(manager=manager, context=context, runner=runner)

    def _open_state(
        self, scope: CallScope, gate: Gate, taint: ContextLabels, user: str
    ) -> StateEnvironment:
        """Return state in the name of a run: its scopes, its rights, its taint, its lease."""
        turn, session, workflow = scope.turn, scope.session, ""
        for name in scope.path:
            if name.startswith(_WORKFLOW):
                workflow = name.removeprefix(_WORKFLOW)
        agent_path = "/".join(scope.path)
        return StateEnvironment(
            store=JournalStateStore(self._journal, turn),
            clock=self._clock,
            hooks=scope.instrumentation.hooks,
            owner=StateOwner(
                tenant=self._tenant,
                user=user or "local",
                project=session.project_id,
                session=session.id,
                agent=scope.path[-1] if scope.path else "",
                workflow=workflow,
                run=turn.run.id,
            ),
            access=GateStateAccess(gate),
            taint=taint,
            origin=Origin(
                run_id=turn.run.id, agent_path=agent_path, correlation_id=turn.correlation_id
            ),
            limits=self._state_limits,
            last=self._last_changes,
        )


_NOT_NESTED = NoNestedCalls()

__all__ = ["CallEnvironment"]
