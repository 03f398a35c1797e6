"""The short list of an agent's tools beside its written rules: the stricter of both holds."""

from __future__ import annotations

import pytest

from holdfast import Agent
from holdfast.policy import CallRequest
from holdfast.policy.decision import QUESTIONS, decide


def verdict(agent: Agent, permission: str) -> str:
    request = CallRequest(permission=permission, targets=("x",), default="ask")
    return decide(request, agent=agent.rule_set).action


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_is_no_tool_is_asked_about_although_the_list_leaves_it_out(question: str) -> None:
    everything = [{"permission": "*", "action": "allow"}]
    assert verdict(Agent("a", allowed_tools=["read"]), question) == "ask"
    assert verdict(Agent("a", allowed_tools=["read"], permission=everything), question) == "ask"


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("action", ["allow", "ask", "deny"])
def test_written_rules_decide_about_what_they_name(question: str, action: str) -> None:
    agent = Agent(
        "a", allowed_tools=["read"], permission=[{"permission": question, "action": action}]
    )
    assert verdict(agent, question) == action


def test_a_written_rule_narrows_a_listed_tool_and_widens_none() -> None:
    rules = [{"permission": "bash", "action": "deny"}, {"permission": "write", "action": "allow"}]
    agent = Agent("a", allowed_tools=["bash", "read"], permission=rules)
    assert [verdict(agent, name) for name in ("bash", "read", "write")] == ["deny", "allow", "deny"]
