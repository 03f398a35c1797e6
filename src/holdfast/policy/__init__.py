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
from holdfast.policy.explain import Explanation, RuleLine, explain
from holdfast.policy.replay import Change, RecordedCall, compare, record, replay
from holdfast.policy.shadow import Shadow

__all__ = [
    "NO_RULES",
    "Action",
    "CallRequest",
    "Change",
    "Decision",
    "Explanation",
    "Reason",
    "RecordedCall",
    "Rights",
    "RuleLine",
    "RuleSet",
    "Shadow",
    "compare",
    "could_ever",
    "decide",
    "explain",
    "record",
    "replay",
    "same_permission",
]
