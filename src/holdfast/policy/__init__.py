"""Permissions, rules, approvals, budgets: pure decisions about what may happen."""

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

__all__ = [
    "NO_RULES",
    "Action",
    "CallRequest",
    "Decision",
    "Reason",
    "Rights",
    "RuleSet",
    "could_ever",
    "decide",
    "same_permission",
]
