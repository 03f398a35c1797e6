"""Rules about commands: what an allow covers, and what a deny also holds back."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from holdfast.policy import CallRequest, PolicyBundle, RuleSet, decide, explain
from holdfast.policy.commands import is_allowed_by, parse_command
from holdfast.policy.commands.wrappers import list_wrappers
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
    ceiling = PolicyBundle(tools=tools).find_ceiling("build")
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


WRAPPERS = yaml.safe_load((CORPORA / "wrappers.yaml").read_text("utf-8"))


@pytest.mark.parametrize("case", WRAPPERS, ids=lambda case: f"{case['entries']} {case['command']}")
def test_what_starts_other_commands_allows_only_what_is_allowed_by_itself(case):
    agent = RuleSet(rules=tuple(rule(f"{entry} *", "allow") for entry in case["entries"]))
    request = request_of(case["command"])
    verdict = decide(request, agent=agent)
    assert (verdict.action == "allow") is case["allows"], verdict
    assert explain(request, rights=Rights(agent=agent)).action == verdict.action
    [argv] = [one.argv for one in parse_command(case["command"]).commands()]
    assert is_allowed_by(argv, case["entries"]) is case["allows"]


@pytest.mark.parametrize("entry", sorted(list_wrappers()))
def test_no_program_that_starts_others_lets_an_unknown_command_through(entry):
    agent = RuleSet(rules=(rule(f"{entry} *", "allow"),))
    for words in ("rm -rf x", "-- rm x", "5 rm x", "-c 'rm x' a b", "-x 'rm x' a b", "a b rm x"):
        verdict = decide(request_of(f"{entry} {words}"), agent=agent)
        assert verdict.action != "allow", words


def test_an_allow_of_everything_means_wrappers_too():
    agent = RuleSet(rules=(rule("*", "allow"), rule("env *", "allow")))
    assert decide(request_of("env rm x"), agent=agent).action == "allow"
