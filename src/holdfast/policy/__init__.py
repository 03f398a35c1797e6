"""Permissions, rules, approvals, budgets: pure decisions about what may happen."""

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
from holdfast.policy.store import PolicyStore, Reload

__all__ = [
    "Action",
    "AgentLimits",
    "CallRequest",
    "Change",
    "Decision",
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
