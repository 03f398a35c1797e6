"""Permissions, rules, approvals, budgets: pure decisions about what may happen."""

from holdfast.policy.approvals import Approval, ApprovalStatus, ApprovalTerms, OnAsk
from holdfast.policy.budgets import Amount, Budget, BudgetLedger, Reservation
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
from holdfast.policy.shared_budget import SharedBudget

__all__ = [
    "NO_RULES",
    "Action",
    "Amount",
    "Approval",
    "ApprovalStatus",
    "ApprovalTerms",
    "Budget",
    "BudgetLedger",
    "CallRequest",
    "Decision",
    "OnAsk",
    "Reason",
    "Reservation",
    "Rights",
    "RuleSet",
    "SharedBudget",
    "could_ever",
    "decide",
    "same_permission",
]
