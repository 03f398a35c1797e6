"""Rules about commands: what an allow covers, and what a deny also holds back."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from holdfast.policy import CallRequest, PolicyBundle, RuleSet, decide, explain
from holdfast.policy.commands import parse_command
from holdfast.policy.decision import Rights
from holdfast.policy.files import ToolsFile
from holdfast.sessions import PermissionRule

CORPORA = Path(__file__).parents[3] / "corpora" / "command_rules"


def cases(name: str) -> list[object]:
    listed = yaml.safe_load((CORPORA / f"{name}.yaml").read_text("utf-8"))
    return [pytest.param(one, id=f"{one['entry']}: {one['command']}") for one in listed]


def request_of(line: str) -> CallRequest:
    return CallRequest(
        permission="bash", targets=parse_command(line).targets(), target_kind="command"
    )


def rule(pattern: str, action: str) -> PermissionRule:
    return PermissionRule(permission="bash", pattern=pattern, action=action)


@pytest.mark.parametrize("case", cases("allow"))
def test_a_rule_that_allows_covers_what_it_says_and_no_worse(case):
    agent = RuleSet(rules=(rule(f"{case['entry']} *", "allow"),))
    request = request_of(case["command"])
    assert (decide(request, agent=agent).action == "allow") is case["allows"]
    assert (
        explain(request, rights=Rights(agent=agent)).action == decide(request, agent=agent).action
    )


@pytest.mark.parametrize("case", cases("allow"))
def test_an_allowlist_of_the_policies_means_the_same(case):
    tools = ToolsFile.model_validate({"defaults": {"allowed_commands": [case["entry"]]}})
    ceiling = PolicyBundle(tools=tools).ceiling_for("build")
    agent = RuleSet(rules=(rule("*", "allow"),))
    verdict = decide(request_of(case["command"]), ceiling, agent=agent).action
    assert (verdict == "allow") is case["allows"]


@pytest.mark.parametrize("case", cases("deny"))
def test_a_rule_that_denies_looks_inside(case):
    agent = RuleSet(rules=(rule("*", "allow"), rule(f"{case['entry']} *", "deny")))
    request = request_of(case["command"])
    verdict = decide(request, agent=agent)
    assert (verdict.action == "deny") is case["denies"], verdict
    assert explain(request, rights=Rights(agent=agent)).action == verdict.action
