"""Who may read and write which state: the rules of calls, asked about addresses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import PermissionDenied
from holdfast.policy import FORBIDS_NOTHING, NO_RULES, Rights, RuleSet, check_state, decide_state
from holdfast.sessions import PermissionRule


def rules(*lines: str, also: tuple[RuleSet, ...] = ()) -> RuleSet:
    made = [PermissionRule(permission=p, pattern=t, action=a) for p, t, a in map(str.split, lines)]  # type: ignore[arg-type]
    return RuleSet(rules=tuple(made), also=also)


def may(
    action: Any, target: str, *, own: bool = False, ceiling: RuleSet = NO_RULES, **who: Any
) -> bool:
    rights = Rights(**who)
    return (
        decide_state(action, target, is_own=own, ceiling=ceiling, rights=rights).action == "allow"
    )


def test_without_rules_ones_own_is_free_and_what_is_shared_is_read_only() -> None:
    for action in ("read", "write"):
        assert may(action, "session/x", own=True)
        assert not may(action, "session:other/x")
        assert not may(action, "user:bob/x")
        assert not may(action, "agent:critic/x")
    for target in ("user/x", "project/x", "global/x", "custom:team/x"):
        assert may("read", target)
        assert not may("write", target)


def test_a_rule_gives_what_its_pattern_means_and_no_more() -> None:
    agent = rules("state_write user/* allow")
    assert may("write", "user/deep/key", agent=agent)
    assert not may("write", "user:bob/key", agent=agent)
    assert not may("write", "global/x", agent=agent)
    assert may("read", "global/x", agent=agent)
    chosen = rules("state_read user/public* allow")
    assert may("read", "user/public/x", agent=chosen)
    assert not may("read", "user/private", agent=chosen)
    assert not may("read", "global/x", agent=chosen)
    assert may("read", "session/x", own=True, agent=chosen)
    both = rules("state agent:critic/* allow")
    assert may("read", "agent:critic/x", agent=both) and may("write", "agent:critic/x", agent=both)


def test_the_last_rule_wins_and_ask_means_no() -> None:
    assert not may("write", "user/x", agent=rules("state * allow", "state_write user/x deny"))
    assert may("write", "user/y", agent=rules("state * allow", "state_write user/x deny"))
    assert not may("read", "user/x", agent=rules("state_read * ask"))
    assert not may("write", "session/x", own=True, agent=rules("state_write session/* deny"))


def test_wildcards_are_about_tools_but_what_allows_all_allows_state() -> None:
    assert may("write", "user/x", agent=rules("* * allow"))
    assert not may("write", "user/x", agent=rules("* * allow", "* * deny"))
    assert may("write", "session/x", own=True, agent=rules("* * deny"))
    assert may("read", "user/x", agent=rules("* * deny", "bash * allow"))
    assert may("write", "user/x", agent=rules("* * deny", "state * allow"))
    assert not may("write", "user/x", agent=rules("* rm* deny", "bash * allow"))
    beside = rules("state_write user/* allow", also=(rules("state_write user/x deny"),))
    assert not may("write", "user/x", agent=beside)
    assert may("write", "user/y", agent=beside)


def test_a_child_never_has_more_than_its_parent_nor_either_than_the_ceiling() -> None:
    wide, narrow = rules("state * allow"), rules("state user/* allow")
    assert not may("write", "global/x", agent=wide, parent=Rights(agent=narrow))
    assert may("write", "user/x", agent=wide, parent=Rights(agent=narrow))
    assert not may("write", "user/x", agent=wide, parent=Rights())
    assert not may("write", "user/x", agent=wide, ceiling=rules("state_write user/* deny"))
    assert not may("write", "user/x", agent=wide, session=rules("state_write user/* deny"))


def test_a_list_of_tools_gives_no_state_and_a_person_is_held_back_by_nothing() -> None:
    tools = RuleSet(rules=rules("* * deny", "state * allow").rules, is_filter=True)
    assert not may("write", "user/x", agent=tools)
    assert may("write", "session/x", own=True, agent=tools)
    assert may("write", "user/x", agent=FORBIDS_NOTHING)
    assert may("write", "session/x", own=True, agent=FORBIDS_NOTHING)
    assert not may(
        "write", "user/x", agent=rules("bash * allow"), parent=Rights(agent=FORBIDS_NOTHING)
    )


def test_a_refusal_says_which_rule_would_help() -> None:
    with pytest.raises(PermissionDenied, match="state_write.*user/"):
        check_state("write", "user/x", is_own=False, ceiling=NO_RULES, rights=Rights())
    check_state("read", "user/x", is_own=False, ceiling=NO_RULES, rights=Rights())


lines = st.lists(
    st.tuples(
        st.sampled_from(["*", "state", "state_read", "state_write", "bash", "state*"]),
        st.sampled_from(["*", "user/*", "user/x", "global/*", "custom:t/*", "session/*"]),
        st.sampled_from(["allow", "ask", "deny"]),
    ).map(" ".join),
    max_size=4,
)
targets = st.sampled_from(["user/x", "user/y", "global/x", "custom:t/x", "user:bob/x", "session/x"])


@given(lines, lines, targets, st.sampled_from(["read", "write"]), st.booleans())
def test_nothing_is_gained_below_a_parent(
    own: list[str], above: list[str], target: str, action: str, is_own: bool
) -> None:
    child = may(action, target, own=is_own, agent=rules(*own), parent=Rights(agent=rules(*above)))
    assert not child or may(action, target, own=is_own, agent=rules(*above))
