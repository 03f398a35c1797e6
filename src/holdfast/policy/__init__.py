"""Permissions, rules, approvals, budgets: pure decisions about what may happen."""

from holdfast.policy.approvals import Approval, ApprovalStatus, ApprovalTerms, OnAsk
from holdfast.policy.budgets import Amount, Budget, BudgetLedger, Reservation
from holdfast.policy.bundle import AgentLimits, PolicyBundle, TestResult
from holdfast.policy.decision import (
    NO_RULES,
    Action,
    CallRequest,
    Decision,
    Reason,
    Rights,
    RuleSet,
    could_ever,
    decide,
    same_permission,
)
from holdfast.policy.explain import Explanation, RuleLine, explain
from holdfast.policy.loader import load_policies
from holdfast.policy.network import NetworkRules
from holdfast.policy.replay import Change, RecordedCall, compare, record, replay
from holdfast.policy.shadow import Shadow
from holdfast.policy.shared_budget import SharedBudget
from holdfast.policy.store import PolicyStore, Reload

__all__ = [
    "Action",
    "Amount",
    "Approval",
    "ApprovalStatus",
    "ApprovalTerms",
    "Budget",
    "BudgetLedger",
    "AgentLimits",
    "CallRequest",
    "Change",
    "Decision",
    "OnAsk",
    "Reason",
    "Reservation",
    "Explanation",
    "NO_RULES",
    "NetworkRules",
    "PolicyBundle",
    "PolicyStore",
    "Reason",
    "RecordedCall",
    "Reload",
    "Rights",
    "RuleLine",
    "RuleSet",
    "SharedBudget",
    "Shadow",
    "TestResult",
    "compare",
    "could_ever",
    "decide",
    "explain",
    "load_policies",
    "record",
    "replay",
    "same_permission",
]
