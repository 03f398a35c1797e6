"""Permissions, rules, approvals, budgets: pure decisions about what may happen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.policy.approvals import APPROVALS as APPROVALS
    from holdfast.policy.approvals import ON_ASK as ON_ASK
    from holdfast.policy.approvals import Approval as Approval
    from holdfast.policy.approvals import ApprovalBook as ApprovalBook
    from holdfast.policy.approvals import Approvals as Approvals
    from holdfast.policy.approvals import ApprovalStatus as ApprovalStatus
    from holdfast.policy.approvals import ApprovalTerms as ApprovalTerms
    from holdfast.policy.approvals import NoApprovals as NoApprovals
    from holdfast.policy.approvals import OnAsk as OnAsk
    from holdfast.policy.approvals import derive_rules as derive_rules
    from holdfast.policy.approvals import seal as seal
    from holdfast.policy.approvals import seal_approval as seal_approval
    from holdfast.policy.approvals import settles as settles
    from holdfast.policy.budgets import NO_BUDGET as NO_BUDGET
    from holdfast.policy.budgets import NOTHING as NOTHING
    from holdfast.policy.budgets import PICO as PICO
    from holdfast.policy.budgets import Amount as Amount
    from holdfast.policy.budgets import Budget as Budget
    from holdfast.policy.budgets import BudgetLedger as BudgetLedger
    from holdfast.policy.budgets import Left as Left
    from holdfast.policy.budgets import Reservation as Reservation
    from holdfast.policy.budgets import Share as Share
    from holdfast.policy.budgets import choose_narrower as choose_narrower
    from holdfast.policy.budgets import choose_stricter as choose_stricter
    from holdfast.policy.bundle import AgentLimits as AgentLimits
    from holdfast.policy.bundle import PolicyBundle as PolicyBundle
    from holdfast.policy.bundle import TestResult as TestResult
    from holdfast.policy.bundle import make_request as make_request
    from holdfast.policy.bundle import request_of as request_of
    from holdfast.policy.commands import ParsedCommand as ParsedCommand
    from holdfast.policy.commands import Pipeline as Pipeline
    from holdfast.policy.commands import SimpleCommand as SimpleCommand
    from holdfast.policy.commands import classify_argv as classify_argv
    from holdfast.policy.commands import classify_command as classify_command
    from holdfast.policy.commands import parse_command as parse_command
    from holdfast.policy.decision import FORBIDS_NOTHING as FORBIDS_NOTHING
    from holdfast.policy.decision import NO_RULES as NO_RULES
    from holdfast.policy.decision import QUESTIONS as QUESTIONS
    from holdfast.policy.decision import Action as Action
    from holdfast.policy.decision import CallRequest as CallRequest
    from holdfast.policy.decision import Decision as Decision
    from holdfast.policy.decision import Reason as Reason
    from holdfast.policy.decision import Rights as Rights
    from holdfast.policy.decision import RuleSet as RuleSet
    from holdfast.policy.decision import could_ever as could_ever
    from holdfast.policy.decision import decide as decide
    from holdfast.policy.decision import is_same_permission as is_same_permission
    from holdfast.policy.decision import is_script_allowed as is_script_allowed
    from holdfast.policy.events import ApprovalAnswered as ApprovalAnswered
    from holdfast.policy.events import ApprovalRequested as ApprovalRequested
    from holdfast.policy.events import ApprovalUsed as ApprovalUsed
    from holdfast.policy.explanation import Explanation as Explanation
    from holdfast.policy.explanation import RuleLine as RuleLine
    from holdfast.policy.explanation import explain as explain
    from holdfast.policy.file_events import PolicyDiffered as PolicyDiffered
    from holdfast.policy.file_events import PolicyLoaded as PolicyLoaded
    from holdfast.policy.file_events import PolicyRejected as PolicyRejected
    from holdfast.policy.file_events import PolicyReloadRequested as PolicyReloadRequested
    from holdfast.policy.file_events import PolicyViolation as PolicyViolation
    from holdfast.policy.file_events import make_violation as make_violation
    from holdfast.policy.hosts import BadHost as BadHost
    from holdfast.policy.hosts import join_port as join_port
    from holdfast.policy.hosts import normalize_host as normalize_host
    from holdfast.policy.hosts import open_every_port as open_every_port
    from holdfast.policy.hosts import split_port as split_port
    from holdfast.policy.idle_rules import IdleRule as IdleRule
    from holdfast.policy.idle_rules import RuledTool as RuledTool
    from holdfast.policy.idle_rules import find_idle_rules as find_idle_rules
    from holdfast.policy.loader import load_policies as load_policies
    from holdfast.policy.network import WEB_PORTS as WEB_PORTS
    from holdfast.policy.network import NetworkRules as NetworkRules
    from holdfast.policy.network import covers as covers
    from holdfast.policy.patterns import clean_name as clean_name
    from holdfast.policy.patterns import compile_matcher as compile_matcher
    from holdfast.policy.patterns import has_fixed_part as has_fixed_part
    from holdfast.policy.patterns import name_matches as name_matches
    from holdfast.policy.people import clean_person as clean_person
    from holdfast.policy.people import is_same_person as is_same_person
    from holdfast.policy.people import make_skeleton as make_skeleton
    from holdfast.policy.recorded_calls import Change as Change
    from holdfast.policy.recorded_calls import RecordedCall as RecordedCall
    from holdfast.policy.recorded_calls import compare as compare
    from holdfast.policy.recorded_calls import record as record
    from holdfast.policy.recorded_calls import replay as replay
    from holdfast.policy.shadow import Shadow as Shadow
    from holdfast.policy.shared_budget import TENANTS as TENANTS
    from holdfast.policy.shared_budget import SharedBudget as SharedBudget
    from holdfast.policy.state_rules import check_state as check_state
    from holdfast.policy.state_rules import decide_state as decide_state
    from holdfast.policy.store import PolicyStatus as PolicyStatus
    from holdfast.policy.store import PolicyStore as PolicyStore
    from holdfast.policy.store import Reload as Reload
    from holdfast.policy.yaml_file import parse_yaml as parse_yaml
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "approvals": """
                APPROVALS Approval ApprovalBook ApprovalStatus ApprovalTerms Approvals NoApprovals
                ON_ASK OnAsk derive_rules seal seal_approval settles
            """,
            "budgets": """
                Amount Budget BudgetLedger Left NOTHING NO_BUDGET PICO Reservation Share choose_narrower
                choose_stricter
            """,
            "bundle": "AgentLimits PolicyBundle TestResult make_request request_of",
            "commands": """
                ParsedCommand Pipeline SimpleCommand classify_argv classify_command parse_command
            """,
            "decision": """
                Action CallRequest Decision FORBIDS_NOTHING NO_RULES QUESTIONS Reason Rights
                RuleSet could_ever decide is_same_permission is_script_allowed
            """,
            "events": "ApprovalAnswered ApprovalRequested ApprovalUsed",
            "explanation": "Explanation RuleLine explain",
            "file_events": "PolicyDiffered PolicyLoaded PolicyRejected PolicyReloadRequested "
            "PolicyViolation make_violation",
            "hosts": "BadHost join_port normalize_host open_every_port split_port",
            "idle_rules": "IdleRule RuledTool find_idle_rules",
            "loader": "load_policies",
            "network": "NetworkRules WEB_PORTS covers",
            "patterns": "has_fixed_part compile_matcher name_matches clean_name",
            "people": "clean_person is_same_person make_skeleton",
            "recorded_calls": "Change RecordedCall compare record replay",
            "shadow": "Shadow",
            "shared_budget": "SharedBudget TENANTS",
            "state_rules": "check_state decide_state",
            "store": "PolicyStatus PolicyStore Reload",
            "yaml_file": "parse_yaml",
        },
    )
