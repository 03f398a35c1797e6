"""What runs of workflows work with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from holdfast.agents import Agent
from holdfast.clock import SYSTEM, Clock
from holdfast.policy.approvals import ApprovalTerms
from holdfast.runs.confinement import Confinement
from holdfast.runs.instrumentation import Instrumentation
from holdfast.runs.request import RunExecutor
from holdfast.runs.spending import Budgets
from holdfast.sessions import SessionManager
from holdfast.tools import ToolRegistry
from holdfast.tools.gate import Approver, NobodyApproves
from holdfast.turns import TurnQueue

Sleep: TypeAlias = Callable[[float], Awaitable[object]]


@dataclass(frozen=True, kw_only=True)
class WorkflowServices:
    """Sessions, tools, agents, and what confines them.

    `agents` are those that were handed over as objects; the launcher knows the others.
    `sleep` waits between attempts.
    """

    sessions: SessionManager
    turns: TurnQueue
    launcher: RunExecutor
    tools: ToolRegistry
    agents: Mapping[str, Agent] = field(default_factory=dict)
    confinement: Confinement = field(default_factory=Confinement)
    approver: Approver = field(default_factory=NobodyApproves)
    budgets: Budgets = field(default_factory=Budgets)
    terms: ApprovalTerms = field(default_factory=ApprovalTerms)
    surroundings: Instrumentation = field(default_factory=Instrumentation)
    clock: Clock = SYSTEM
    sleep: Sleep = asyncio.sleep


__all__ = ["Sleep", "WorkflowServices"]
