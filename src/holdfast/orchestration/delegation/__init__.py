"""Delegation: agents that let others work, below their own rights, budgets and time."""

from holdfast.orchestration.delegation.calls import CallDelegation
from holdfast.orchestration.delegation.child import Children, ChildRequest
from holdfast.orchestration.delegation.family import Family, FamilyEvent
from holdfast.orchestration.delegation.limits import Census, DelegationLimits
from holdfast.orchestration.delegation.orchestrator import AgentOrchestrator, AgentTask
from holdfast.orchestration.delegation.task_tool import subagents_for, task, task_tool

__all__ = [
    "AgentOrchestrator",
    "AgentTask",
    "CallDelegation",
    "Census",
    "Children",
    "DelegationLimits",
    "Family",
    "FamilyEvent",
    "ChildRequest",
    "subagents_for",
    "task",
    "task_tool",
]
