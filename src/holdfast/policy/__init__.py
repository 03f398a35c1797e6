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
    "AgentLimits",
    "Amount",
    "Approval",
    "ApprovalStatus",
    "ApprovalTerms",
    "Budget",
    "BudgetLedger",
    "CallRequest",
    "Change",
    "Decision",
    "Explanation",
    "NO_RULES",
    "NetworkRules",
    "OnAsk",
    "PolicyBundle",
    "PolicyStore",
    "Reason",
    "RecordedCall",
    "Reload",
    "Reservation",
    "Rights",
    "RuleLine",
    "RuleSet",
    "Shadow",
    "SharedBudget",
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
