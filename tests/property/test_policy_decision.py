"""What must hold for any rules at all."""

import re

from hypothesis import given
from hypothesis import strategies as st

from holdfast.globs import matches
from holdfast.policy import CallRequest, Rights, RuleSet, could_ever, decide
from holdfast.policy.decision import STRICTNESS, does_rule_match
from holdfast.policy.explanation import explain
from holdfast.policy.patterns import render_wildcard_source
from holdfast.policy.recorded_calls import compare, record, replay
from holdfast.sessions import PermissionRule

ACTIONS = st.sampled_from(["allow", "ask", "deny"])
NAMES = st.sampled_from(["bash", "read", "web_fetch", "mcp_a", "doom-loop"])
NAME_PATTERNS = st.one_of(NAMES, st.sampled_from(["*", "mcp*", "webfetch", "path", "network"]))
KINDS = st.sampled_from(["none", "path", "command", "host"])
TARGETS = st.sampled_from(
    [
        "*",
        "a",
        "a/b",
        "a/b/c.py",
        "../x",
        "/etc/x",
        "ls",
        "ls a",
        "ls; rm a",
        "x.org",
        "a.x.org",
        "",
    ]
)
PATTERNS = st.sampled_from(
    [
        "*",
        "**",
        "a/**",
        "**/b/**",
        "*.py",
        "**/*.py",
        "ls *",
        "ls",
        "*.x.org",
        "x.org",
        "[a",
        "?",
        "/etc/**",
    ]
)
RULES = st.builds(PermissionRule, permission=NAME_PATTERNS, pattern=PATTERNS, action=ACTIONS)
SETS = st.recursive(
    st.builds(RuleSet, rules=st.lists(RULES, max_size=6).map(tuple)),
    lambda inner: st.builds(
        RuleSet,
        rules=st.lists(RULES, max_size=3).map(tuple),
        also=st.lists(inner, max_size=2).map(tuple),
    ),
    max_leaves=3,
)
RIGHTS = st.recursive(
    st.builds(Rights, agent=SETS, session=SETS, parent=st.none()),
    lambda inner: st.builds(Rights, agent=SETS, session=SETS, parent=inner),
    max_leaves=3,
)
REQUESTS = st.builds(
    CallRequest,
    permission=NAMES,
    targets=st.lists(TARGETS, max_size=3).map(tuple),
    target_kind=KINDS,
    default=ACTIONS,
)


def judge(request, ceiling, rights):
    return decide(request, ceiling, rights.parent, rights.agent, rights.session)


def strictness(decision):
    return STRICTNESS[decision.action]


@given(REQUESTS, SETS, RIGHTS, SETS, SETS)
def test_child_never_has_a_right_that_its_parent_lacks(request, ceiling, parent, agent, session):
    child = Rights(agent=agent, session=session, parent=parent)
    assert strictness(judge(request, ceiling, child)) <= strictness(judge(request, ceiling, parent))


@given(
    REQUESTS,
    SETS,
    RIGHTS,
    RULES,
    st.integers(0, 6),
    st.sampled_from(["ceiling", "agent", "session"]),
)
def test_adding_a_deny_never_allows_more(request, ceiling, rights, rule, place, where):
    deny = PermissionRule(permission=rule.permission, pattern=rule.pattern, action="deny")

    def added(rules):
        listed = list(rules.rules)
        listed.insert(place, deny)
        return RuleSet(rules=tuple(listed), also=rules.also)

    before = judge(request, ceiling, rights)
    if where == "ceiling":
        after = judge(request, added(ceiling), rights)
    elif where == "agent":
        changed = Rights(agent=added(rights.agent), session=rights.session, parent=rights.parent)
        after = judge(request, ceiling, changed)
    else:
        changed = Rights(agent=rights.agent, session=added(rights.session), parent=rights.parent)
        after = judge(request, ceiling, changed)
    assert strictness(after) <= strictness(before)


@given(REQUESTS, SETS, RIGHTS)
def test_explain_and_decide_agree(request, ceiling, rights):
    told = explain(request, ceiling, rights)
    assert told.decision == judge(request, ceiling, rights)
    assert told.action == told.decision.action
    assert any(line.is_decisive for line in told.lines)


@given(REQUESTS, SETS, RIGHTS)
def test_replay_under_the_same_policy_changes_nothing(request, ceiling, rights):
    call = record(request, judge(request, ceiling, rights))
    assert list(replay([call], lambda _agent: ceiling)) == []
    assert list(compare([call], lambda _agent: ceiling, lambda _agent: ceiling)) == []


@given(REQUESTS, SETS, SETS, RIGHTS)
def test_replay_under_another_policy_says_what_it_would_have_decided(request, old, new, rights):
    call = record(request, judge(request, old, rights))
    changes = list(replay([call], lambda _agent: new))
    expected = judge(request, new, rights).action
    assert [change.after for change in changes] == ([expected] if expected != call.action else [])


@given(REQUESTS, SETS, RIGHTS, st.data())
def test_order_of_unrelated_rules_does_not_matter(request, ceiling, rights, data):
    targets = request.targets or ("*",)
    related = [
        r for r in rights.agent.rules if any(does_rule_match(r, request, t) for t in targets)
    ]
    unrelated = [r for r in rights.agent.rules if r not in related]
    mixed = list(related)
    for rule in unrelated:
        mixed.insert(data.draw(st.integers(0, len(mixed))), rule)
    shuffled = Rights(
        agent=RuleSet(rules=tuple(mixed), also=rights.agent.also),
        session=rights.session,
        parent=rights.parent,
    )
    assert judge(request, ceiling, shuffled) == judge(request, ceiling, rights)


@given(REQUESTS, SETS, RIGHTS)
def test_what_is_hidden_could_indeed_never_run(request, ceiling, rights):
    if not could_ever(request.permission, ceiling, rights, request.target_kind):
        assert judge(request, ceiling, rights).action == "deny"


@given(st.text("ab*?", max_size=8), st.text("ab", max_size=8))
def test_wildcards_without_backtracking_mean_the_same(pattern, text):
    plain = "".join({"*": ".*", "?": "."}.get(char, char) for char in pattern)
    assert bool(re.fullmatch(render_wildcard_source(pattern), text)) == bool(
        re.fullmatch(plain, text)
    )


@given(
    st.lists(st.sampled_from(["**", "a", "b", "*", "a*", "*b*", "a?"]), min_size=1, max_size=5),
    st.lists(st.sampled_from(["a", "b", "ab", "aab", "x"]), min_size=1, max_size=6),
)
def test_globs_without_backtracking_mean_the_same(pattern, path):
    assert matches("/".join(path), "/".join(pattern)) == _covers(pattern, path)


def _covers(pattern, path):
    """The meaning of globs, spelled out by recursion."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        rest = pattern[1:]
        if not rest:
            return True
        return any(_covers(rest, path[skip:]) for skip in range(len(path) + 1))
    if not path:
        # `a/**` covers `a` itself.
        return False
    first = re.fullmatch(re.escape(pattern[0]).replace(r"\*", ".*").replace(r"\?", "."), path[0])
    if first is None:
        return False
    return True if pattern[1:] and set(pattern[1:]) == {"**"} else _covers(pattern[1:], path[1:])


def test_hostile_targets_take_no_time():
    stars = RuleSet(
        rules=(
            PermissionRule(permission="*", pattern="*a" * 50 + "b", action="allow"),
            PermissionRule(permission="*", pattern="**/a" * 50 + "/b", action="allow"),
            PermissionRule(permission="*", pattern="*a" * 50 + "*b", action="allow"),
        )
    )
    for kind in ("path", "command", "none"):
        for target in ("a" * 5_000, "a/" * 2_000 + "a"):
            request = CallRequest(permission="x", targets=(target,), target_kind=kind)
            assert decide(request, agent=stars).action == "ask"
