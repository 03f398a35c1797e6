"""Surroundings for tests of tools and runs: real parts, in memory, with nothing configured.

Shipping code puts them together in the runtime; a test that calls a tool's function by itself,
or executes agents without a client, takes them from here.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

from holdfast.agents import Agent, AgentResult, Listener, RunRequest, hear_nothing
from holdfast.artifacts import (
    ArtifactActor,
    ArtifactServices,
    ArtifactStore,
    MemoryBlobs,
    ProcessLocks,
)
from holdfast.clock import SYSTEM
from holdfast.context import ContextBuilder
from holdfast.errors import UsageError
from holdfast.hooks import ExecutionContext, Hooks
from holdfast.journal import Journal, MemoryStore
from holdfast.policy import ApprovalTerms, Rights
from holdfast.runs import Budgets, Confinement, Instrumentation, MessageFiles, RunServices
from holdfast.runtime import CallEnvironment, EgressService, ProcessEnvironment
from holdfast.sessions import SessionManager
from holdfast.state import (
    STATE,
    JournalStateStore,
    ScopedState,
    StateEnvironment,
    StateOwner,
    StateScope,
)
from holdfast.tools import (
    Cancellation,
    ChildLimits,
    ClosedNetwork,
    ContextLabels,
    MemoryArtifacts,
    NoApprover,
    NoAttendant,
    NoCommands,
    NoNestedCalls,
    ToolContext,
    ToolThreads,
    Workspace,
    ignore_progress,
    refuse_processes,
)
from holdfast.turns import TurnQueue


def make_tool_context(
    workspace: Workspace | str | os.PathLike[str],
    **fields: Any,  # noqa: ANN401 - the fields of a context
) -> ToolContext:
    """Return a context for calling a tool's function in a test.

    State and artifacts live in memory; network, commands and questions are refused or
    unanswered. Any field can be given: `make_tool_context(tmp_path, commands=my_runner)`.
    """
    place = workspace if isinstance(workspace, Workspace) else Workspace(os.fspath(workspace))
    plain: dict[str, Any] = {
        "workspace": place,
        "session_id": "",
        "run_id": "",
        "call_id": "",
        "idempotency_key": "",
        "fence": 1,
        "unproved_fence": 0,
        "is_lease_held": lambda: True,
        "agent_path": (),
        "rights": Rights(),
        "is_read_only": False,
        "passed_by": "rules",
        "has_network": False,
        "child_limits": ChildLimits(),
        "labels": ContextLabels(),
        "cancellation": Cancellation(),
        "progress": ignore_progress,
        "state": memory_state(),
        "artifacts": MemoryArtifacts(),
        "http": ClosedNetwork(),
        "commands": NoCommands(),
        "open_reader": refuse_processes,
        "attendant": NoAttendant(),
        "nested": NoNestedCalls(),
        "threads": ToolThreads(),
        "clock": SYSTEM,
        "execution": ExecutionContext(),
        "deps": None,
    }
    return ToolContext(**{**plain, **fields})


def memory_state(**fields: Any) -> ScopedState:  # noqa: ANN401 - the fields of the environment
    """Return real state on a journal in memory, with all rights: `state` of a tool in a test.

    Any field of its `StateEnvironment` can be given: `memory_state(access=mine)`.
    """
    clock = fields.get("clock") or SYSTEM
    journal = Journal(MemoryStore(projections=(STATE,), clock=clock), clock=clock)
    owner = StateOwner(session="test", project="test", agent="test", workflow="test")
    plain: dict[str, Any] = {
        "store": JournalStateStore(journal),
        "clock": journal.clock,
        "hooks": Hooks(),
        "owner": owner,
    }
    # A scope of its own, since there is no session whose chain could keep the values.
    return ScopedState(StateEnvironment(**{**plain, **fields}), StateScope("custom", "test"))


class NoExecutor:
    """Refuses runs that other runs start."""

    async def execute(self, request: RunRequest, listener: Listener = hear_nothing) -> AgentResult:
        """Refuse."""
        raise UsageError(detail="These services carry out no runs of their own.")

    async def get_agent(self, name: str) -> Agent | None:
        """Return None: no agent is known by name."""
        return None


class _ArtifactsInMemory:
    """Artifacts of runs in tests: facts in their journal, contents in memory."""

    tenant = "default"

    def __init__(self, journal: Journal) -> None:
        self._services = ArtifactServices(
            journal=journal, blobs=MemoryBlobs(), locks=ProcessLocks(), place="memory://"
        )

    async def opened(self) -> ArtifactStore:
        """Return the store."""
        actor = ArtifactActor(tenant=self.tenant, subject="owner", is_admin=True)
        return ArtifactStore(self._services, actor)


def run_services(
    sessions: SessionManager,
    turns: TurnQueue,
    **fields: Any,  # noqa: ANN401 - the fields of the services
) -> RunServices:
    """Return the services of runs without policies, budgets, hooks or an approver.

    Any field can be given: `run_services(sessions, turns, approver=mine)`.
    """
    journal = sessions.journal
    confinement = fields.get("confinement") or Confinement()
    artifacts = _ArtifactsInMemory(journal)
    plain = RunServices(
        sessions=sessions,
        turns=turns,
        context=ContextBuilder(sessions),
        approver=NoApprover(),
        terms=ApprovalTerms(),
        budgets=Budgets(),
        confinement=confinement,
        instrumentation=Instrumentation(),
        calls=CallEnvironment(
            journal,
            confinement,
            artifacts,
            ProcessEnvironment(confinement, journal.clock),
            EgressService(journal, confinement, journal.clock),
            journal.clock,
        ),
        files=MessageFiles(artifacts),
        executor=NoExecutor(),
        clock=journal.clock,
    )
    return msgspec.structs.replace(plain, **fields)


__all__ = ["NoExecutor", "make_tool_context", "memory_state", "run_services"]
