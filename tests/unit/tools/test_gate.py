"""What a model is shown is what it could ever be allowed to use."""

from __future__ import annotations

import pytest

from holdfast.policy import CallRequest, Rights, RuleSet
from holdfast.sessions import PermissionRule
from holdfast.tools.builtin import builtin_tools
from holdfast.tools.gate import AutoConfirm, Gate, ToolPermissionFilter, choose_default_action


def rules(*texts: str) -> RuleSet:
    made = [
        dict(zip(("permission", "pattern", "action"), text.split(), strict=True)) for text in texts
    ]
    return RuleSet(rules=tuple(PermissionRule(**one) for one in made))


def shown(ceiling: RuleSet) -> set[str]:
    filtered = ToolPermissionFilter(Gate(ceiling=ceiling)).filter_tools(builtin_tools())
    return {tool.name for tool in filtered}


@pytest.mark.parametrize(
    ("rule", "hidden"),
    [
        ("network * deny", {"webfetch"}),
        ("command * deny", {"bash"}),
        ("bash * deny", {"bash"}),
        ("webfetch * deny", {"webfetch"}),
    ],
)
def test_a_rule_about_a_kind_of_target_hides_the_tools_that_touch_nothing_else(rule, hidden):
    assert shown(RuleSet()) - shown(rules(rule)) == hidden


def test_one_allowed_host_shows_the_tool():
    assert "webfetch" in shown(rules("network * deny", "network example.org allow"))


def test_denying_every_path_hides_every_file_tool():
    gone = shown(RuleSet()) - shown(rules("path * deny"))
    assert {"read", "write", "edit", "multiedit", "list", "glob", "grep"} <= gone
    assert "todoread" not in gone


def test_what_holds_without_a_rule_depends_on_who_made_the_tool():
    tools = builtin_tools()
    assert choose_default_action(tools.get("read"), "built-in") == "allow"
    assert choose_default_action(tools.get("bash"), "built-in") == "ask"
    assert choose_default_action(tools.get("bash"), "project") == "ask"
    assert choose_default_action(tools.get("bash"), "agent") == "allow"
    assert choose_default_action(tools.get("read"), "project") == "allow"
    assert [choose_default_action(tools.get("read"), scope) for scope in ("mcp", "bundle", "")] == [
        "ask",
        "ask",
        "ask",
    ]
    assert choose_default_action(tools.get("externaldirectory"), "agent") == "ask"
    assert Gate(rights=Rights(), approver=AutoConfirm()).ceiling.rules == ()


def test_a_request_is_judged_anew_when_any_rule_has_changed():
    gate, request = Gate(), CallRequest(permission="bash", targets=("ls",), target_kind="text")
    assert gate.decide(request).action == "ask"
    assert gate.decide(request) is gate.decide(request)
    gate.add_session_rules([PermissionRule(permission="bash", pattern="*", action="allow")])
    assert gate.decide(request).action == "allow"
    gate.ceiling = RuleSet(rules=(PermissionRule(permission="bash", pattern="*", action="deny"),))
    assert gate.decide(request).action == "deny"
    gate.policy_version = "2"
    assert gate.decide(request).policy_version == "2"


def test_what_was_judged_is_not_kept_without_end():
    gate = Gate()
    for number in range(3_000):
        gate.decide(CallRequest(permission="read", targets=(f"{number}.txt",), target_kind="path"))
    assert len(gate._judged) <= 1_024
