"""Surroundings for tests of tools and runs: real parts, in memory, with nothing configured.

Shipping code puts them together in the runtime; a test that calls a tool's function by itself,
or executes agents without a client, takes them from here.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

from holdfast.agents import Agent, AgentResult, Listener, RunRequest, hear_nothing
from holdfast.clock import SYSTEM
from holdfast.context import ContextBuilder
from holdfast.errors import UsageError
from holdfast.hooks import ExecutionContext
from holdfast.policy import ApprovalTerms, Rights
from holdfast.runs import Budgets, Confinement, Instrumentation, RunServices
from holdfast.runtime import CallEnvironment, EgressService, ProcessEnvironment
from holdfast.sessions import SessionManager
from holdfast.tools import (
    Cancellation,
    ChildLimits,
    ClosedNetwork,
    ContextLabels,
    MemoryArtifacts,
    MemoryState,
    NobodyApproves,
    NobodyAttends,
    NoCommands,
    NoNestedCalls,
    ToolContext,
    ToolThreads,
    Workspace,
    ignore_progress,
    refuse_processes,
)
from holdfast.turns import TurnQueue


def tool_context(
    workspace: Workspace | str | os.PathLike[str],
    **fields: Any,  # noqa: ANN401 - the fields of a context
) -> ToolContext:
    """Return a context for calling a tool's function in a test.

    State and artifacts live in memory; network, commands and questions are refused or
    unanswered. Any field can be given: `tool_context(tmp_path, commands=my_runner)`.
    """
    place = workspace if isinstance(workspace, Workspace) else Workspace(os.fspath(workspace))
    plain: dict[str, Any] = {
        "workspace": place,
        "session_id": "",
        "run_id": "",
        "call_id": "",
        "idempotency_key": "",
        "agent_path": (),
        "rights": Rights(),
        "is_read_only": False,
        "has_network": False,
        "child_limits": ChildLimits(),
        "labels": ContextLabels(),
        "cancellation": Cancellation(),
        "progress": ignore_progress,
        "state": MemoryState(),
        "artifacts": MemoryArtifacts(),
        "http": ClosedNetwork(),
        "commands": NoCommands(),
        "open_reader": refuse_processes,
        "attendant": NobodyAttends(),
        "nested": NoNestedCalls(),
        "threads": ToolThreads(),
        "clock": SYSTEM,
        "execution": ExecutionContext(),
    }
    return ToolContext(**{**plain, **fields})


class NobodyExecutes:
    """Refuses runs that other runs start."""

    async def execute(self, request: RunRequest, listener: Listener = hear_nothing) -> AgentResult:
        """Refuse."""
        raise UsageError(detail="These services carry out no runs of their own.")

    async def get_agent(self, name: str) -> Agent | None:
        """Return None: nobody is known by name."""
        return None


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
    plain = RunServices(
        sessions=sessions,
        turns=turns,
        context=ContextBuilder(sessions),
        approver=NobodyApproves(),
        terms=ApprovalTerms(),
        budgets=Budgets(),
        confinement=confinement,
        instrumentation=Instrumentation(),
        calls=CallEnvironment(
            journal,
            confinement,
            ProcessEnvironment(confinement, journal.clock),
            EgressService(journal, confinement, journal.clock),
            journal.clock,
        ),
        executor=NobodyExecutes(),
        clock=journal.clock,
    )
    return msgspec.structs.replace(plain, **fields)


__all__ = ["NobodyExecutes", "run_services", "tool_context"]
