"""The list of an agent's tools beside its written rules: it takes away, and lifts no ask."""

from __future__ import annotations

import pytest

from holdfast import Agent
from holdfast.policy import CallRequest
from holdfast.policy.decision import QUESTIONS, decide


def verdict(agent: Agent, permission: str) -> str:
    is_question = permission in QUESTIONS
    request = CallRequest(
        permission=permission,
        targets=("x",),
        default="allow" if permission == "read" else "ask",
        own="ask" if is_question else "allow",
    )
    return decide(request, agent=agent.rule_set).action


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_is_no_tool_is_asked_about_whatever_the_list_holds(question: str) -> None:
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


def test_a_list_lifts_no_ask() -> None:
    assert verdict(Agent("a", allowed_tools=["bash", "read"]), "bash") == "ask"
    asking = [{"permission": "read", "action": "ask"}]
    assert verdict(Agent("a", allowed_tools=["read"], permission=asking), "read") == "ask"
