"""The explanation says of every target what the decision says, and who was heard."""

from __future__ import annotations

import pytest

from holdfast.policy import CallRequest, Explanation, Rights, RuleSet, could_ever, explain
from holdfast.policy.hosts import BadHost, render_host_source
from holdfast.sessions import PermissionRule


def rules(*lines: str, is_filter: bool = False) -> RuleSet:
    """Rules written as `permission pattern action`."""
    made = [
        PermissionRule(permission=permission, pattern=pattern, action=action)  # type: ignore[arg-type]
        for permission, pattern, action in (line.split(" ") for line in lines)
    ]
    return RuleSet(rules=tuple(made), is_filter=is_filter)


def heard(explanation: Explanation) -> list[tuple[str, str, str]]:
    """Who was heard about which target; the verdict of both ways is the same."""
    assert explanation.action == explanation.decision.action
    return [(one.source, one.target, one.action) for one in explanation.lines if one.speaks]


def test_each_path_is_explained_by_itself() -> None:
    request = CallRequest(permission="read", targets=("a.csv", "b.key"), target_kind="path")
    told = explain(request, rights=Rights(agent=rules("read *.csv allow", "read *.key deny")))
    assert heard(told) == [("agent", "a.csv", "allow"), ("agent", "b.key", "deny")]
    assert told.action == "deny"
    assert [one.target for one in told.lines if one.is_decisive] == ["b.key"]


def test_what_a_person_said_is_heard_instead_of_the_agents_ask_and_beside_its_deny() -> None:
    request = CallRequest(permission="read", targets=("a.csv",), target_kind="path")
    session = rules("read * allow")
    asked = explain(request, rights=Rights(agent=rules("read * ask"), session=session))
    assert heard(asked) == [("session", "a.csv", "allow")]
    denied = explain(request, rights=Rights(agent=rules("read * deny"), session=session))
    assert ("agent", "a.csv", "deny") in heard(denied)
    assert denied.action == "deny"


def test_what_only_forbids_says_nothing_of_what_it_does_not_forbid() -> None:
    request = CallRequest(permission="read", targets=("a.csv",), target_kind="path")
    filtering = rules("read * deny", "read *.csv allow", is_filter=True)
    parent = Rights(agent=rules("read * allow"))
    told = explain(request, rights=Rights(agent=filtering, parent=parent, is_handed=True))
    assert heard(told) == [("parent", "a.csv", "allow")]


def test_tool_that_refuses_itself_is_refused_where_no_rule_names_it() -> None:
    request = CallRequest(permission="deploy", own="deny", default="allow")
    told = explain(request, rights=Rights(agent=rules("* * allow")))
    assert told.action == "deny"
    assert ("default", "*", "deny") in heard(told)
    assert explain(request, rights=Rights(agent=rules("deploy * allow"))).action == "allow"


def test_what_is_denied_once_more_for_some_targets_stays_denied_for_all() -> None:
    denied = rules("bash * deny", "bash rm deny")
    assert not could_ever("bash", denied, Rights(), "command")
    assert could_ever("bash", rules("bash rm deny"), Rights(), "command")


@pytest.mark.parametrize("pattern", ["b\u00fc*cher.example", "a b*.example", "*.*", "x/*"])
def test_pattern_that_no_host_can_meet_is_refused(pattern: str) -> None:
    with pytest.raises(BadHost):
        render_host_source(pattern)
