"""Delegation: agents that let others work, below their own rights, budgets and time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.orchestration.delegation.calls import CallDelegation as CallDelegation
    from holdfast.orchestration.delegation.child import Children as Children
    from holdfast.orchestration.delegation.child import ChildRequest as ChildRequest
    from holdfast.orchestration.delegation.family import Family as Family
    from holdfast.orchestration.delegation.family import FamilyEvent as FamilyEvent
    from holdfast.orchestration.delegation.limits import Census as Census
    from holdfast.orchestration.delegation.limits import DelegationLimits as DelegationLimits
    from holdfast.orchestration.delegation.orchestrator import (
        AgentOrchestrator as AgentOrchestrator,
    )
    from holdfast.orchestration.delegation.orchestrator import AgentTask as AgentTask
    from holdfast.orchestration.delegation.subagent_tool import make_task_tool as make_task_tool
    from holdfast.orchestration.delegation.subagent_tool import select_subagents as select_subagents
    from holdfast.orchestration.delegation.subagent_tool import task as task
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "calls": "CallDelegation",
            "child": "ChildRequest Children",
            "family": "Family FamilyEvent",
            "limits": "Census DelegationLimits",
            "orchestrator": "AgentOrchestrator AgentTask",
            "subagent_tool": "select_subagents task make_task_tool",
        },
    )
