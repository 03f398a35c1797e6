"""The decision: last match wins inside a set, the strictest of the four sources wins."""

import pytest

from holdfast.policy import NO_RULES, CallRequest, Rights, RuleSet, could_ever, decide, explain
from holdfast.sessions import PermissionRule


def rules(*lines: str) -> RuleSet:
    """Rules written as `permission pattern action`."""
    made = []
    for line in lines:
        permission, rest = line.split(" ", 1)
        pattern, action = rest.rsplit(" ", 1)
        made.append(PermissionRule(permission=permission, pattern=pattern, action=action))
    return RuleSet(rules=tuple(made))


def ask(permission, *targets, kind="none", default="ask"):
    return CallRequest(
        permission=permission, targets=targets or ("*",), target_kind=kind, default=default
    )


# --- bugs of the ancestors -----------------------------------------------------------


def test_star_matches_bash():
    assert decide(ask("bash", "ls", kind="command"), agent=rules("* * allow")).action == "allow"


def test_pattern_is_honoured():
    agent = rules("read * allow", "read secrets/** deny")
    assert decide(ask("read", "src/a.py", kind="path"), agent=agent).action == "allow"
    assert decide(ask("read", "secrets/key", kind="path"), agent=agent).action == "deny"


@pytest.mark.parametrize(
    "written", ["external_directory", "externaldirectory", "External-Directory"]
)
@pytest.mark.parametrize("asked", ["external_directory", "externaldirectory"])
def test_names_with_and_without_underscore_are_the_same(written, asked):
    assert decide(ask(asked), agent=rules(f"{written} * deny")).action == "deny"


def test_letters_that_merely_look_alike_are_not_the_same():
    # U+212A, the Kelvin sign, and U+017F, the long s, become k and s in some foldings.
    assert decide(ask("tas\u212a"), agent=rules("task * allow")).action == "ask"
    assert decide(ask("ba\u017fh"), agent=rules("bash * allow")).action == "ask"


def test_no_match_asks():
    assert decide(ask("bash", "ls", kind="command"), agent=rules("read * allow")).action == "ask"


@pytest.mark.parametrize("place", ["ceiling", "agent", "parent"])
def test_deny_survives_overrides(place):
    deny, allow = rules("bash * deny"), rules("* * allow", "bash * allow")
    sets = {"ceiling": allow, "agent": allow, "session": allow, "parent": Rights(agent=allow)}
    sets[place] = Rights(agent=deny) if place == "parent" else deny
    assert decide(ask("bash", "ls", kind="command", default="allow"), **sets).action == "deny"


def test_glob_bugs_of_the_ancestors_stay_dead():
    agent = rules("read **/*.py allow", "read **/.git/** deny")
    assert decide(ask("read", "a.py", kind="path"), agent=agent).action == "allow"
    assert decide(ask("read", ".git/config", kind="path"), agent=agent).action == "deny"


# --- the four sources ----------------------------------------------------------------


def test_last_match_wins_inside_one_set():
    agent = rules("read * deny", "read src/** allow", "read src/secret/** deny")
    assert decide(ask("read", "src/a", kind="path"), agent=agent).action == "allow"
    assert decide(ask("read", "src/secret/a", kind="path"), agent=agent).action == "deny"
    assert decide(ask("read", "lib/a", kind="path"), agent=agent).action == "deny"


def test_ask_of_the_ceiling_cannot_be_lifted():
    verdict = decide(
        ask("bash", "ls", kind="command"),
        ceiling=rules("bash * ask"),
        agent=rules("* * allow"),
        session=rules("* * allow"),
    )
    assert verdict.action == "ask"


def test_ceiling_that_allows_grants_nothing_by_itself():
    assert decide(ask("bash", "ls", kind="command"), ceiling=rules("* * allow")).action == "ask"


def test_session_answers_the_agents_ask_but_never_its_deny():
    session = rules("edit src/** allow")
    request = ask("edit", "src/a", kind="path")
    assert decide(request, agent=rules("edit * ask"), session=session).action == "allow"
    assert decide(request, agent=rules("edit * deny"), session=session).action == "deny"


def test_child_gets_no_more_than_its_parents_parent():
    grandparent = Rights(agent=rules("* * allow", "bash * deny"))
    parent = Rights(agent=rules("* * allow"), parent=grandparent)
    verdict = decide(ask("bash", "ls", kind="command"), parent=parent, agent=rules("* * allow"))
    assert verdict.action == "deny"
    assert [reason.source for reason in verdict.because] == ["agent", "parent", "parent"]


def test_call_that_touches_several_things_is_judged_by_the_strictest():
    agent = rules("edit src/** allow", "edit src/gen/** deny")
    assert decide(ask("edit", "src/a", "src/gen/b", kind="path"), agent=agent).action == "deny"
    assert decide(ask("edit", "src/a", "lib/b", kind="path"), agent=agent).action == "ask"


def test_sets_beside_each_other_each_speak_for_themselves():
    ceiling = RuleSet(also=(rules("write * deny"), rules("path * deny", "path src/** allow")))
    agent = rules("* * allow")
    request = ask("write", "src/a", kind="path")
    assert decide(request, ceiling=ceiling, agent=agent).action == "deny"
    request = ask("read", "src/a", kind="path")
    assert decide(request, ceiling=ceiling, agent=agent).action == "allow"


@pytest.mark.parametrize(
    ("rule", "kind", "target"),
    [
        ("bash * perhaps", "command", "ls"),
        ("read [a allow", "path", "a"),
        ("read {a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b} allow", "path", "a"),
        (f"bash {'x' * 2000} allow", "command", "ls"),
        ("webfetch not_a/host allow", "host", "example.org"),
    ],
)
def test_rule_that_cannot_be_read_refuses(rule, kind, target):
    request = ask(rule.split()[0], target, kind=kind, default="allow")
    assert decide(request, agent=rules("* * allow", rule)).action == "deny"
    assert not decide(request, agent=rules(rule, "* * allow")).action == "deny"


def test_explanation_names_the_decisive_rule():
    verdict = decide(ask("bash", "rm x", kind="command"), ceiling=rules("bash rm* deny"))
    assert verdict.explain() == "the ceiling rule `bash rm* deny` holds"
    assert "no rule speaks of it" in decide(ask("bash")).explain()


# --- kinds of targets ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "permission", "target"),
    [("path", "path", "a"), ("host", "network", "example.org"), ("command", "command", "ls")],
)
def test_rule_for_a_kind_covers_every_tool_that_touches_it(kind, permission, target):
    agent = rules("* * allow", f"{permission} * deny")
    assert decide(ask("anything", target, kind=kind), agent=agent).action == "deny"
    assert decide(ask("anything", target), agent=agent).action == "allow"


@pytest.mark.parametrize(
    ("pattern", "target", "is_met"),
    [
        ("src/**", "src/../../etc/passwd", False),
        ("src/**", "./src//a", True),
        ("src/**", "src/a/", True),
        ("etc/**", "/etc/passwd", False),
        ("/etc/**", "/etc/passwd", True),
        ("/etc/**", "etc/passwd", False),
        ("**/.ssh/**", "/home/u/.ssh/id", True),
        ("**/.ssh/**", ".ssh/id", True),
        ("*.py", "a/b.py", False),
        ("**", "/etc/passwd", True),
        ("*", ".", True),
    ],
)
def test_paths_are_matched_in_their_one_spelling(pattern, target, is_met):
    verdict = decide(ask("read", target, kind="path"), agent=rules(f"read {pattern} allow"))
    assert verdict.action == ("allow" if is_met else "ask")


@pytest.mark.parametrize(
    ("pattern", "target", "is_met"),
    [
        ("*.example.org", "API.Example.org.", True),
        ("*.example.org", "example.org", True),
        ("*.example.org", "badexample.org", False),
        ("example.org", "example.org.evil.com", False),
        ("b\u00fccher.example", "xn--bcher-kva.example", True),
        ("*.test", "2130706433", False),
        ("127.0.0.1", "127.0.0.1", True),
        ("api-*.example.org", "api-1.example.org", True),
    ],
)
def test_hosts_are_matched_in_their_one_spelling(pattern, target, is_met):
    verdict = decide(ask("webfetch", target, kind="host"), agent=rules(f"webfetch {pattern} allow"))
    assert verdict.action == ("allow" if is_met else "ask")


@pytest.mark.parametrize(
    "command",
    [
        "git status ; rm -rf x",
        "git status && rm x",
        "git status $(rm x)",
        "git status `rm x`",
        "git status > x",
        "git status \n rm x",
        'git status "$(rm x)"',
        "git status 'a' ; rm 'b'",
        "git status & rm x",
        "git status | sh",
    ],
)
def test_allowed_command_allows_nothing_that_is_more_than_a_command(command):
    agent = rules("bash git status * allow")
    assert decide(ask("bash", command, kind="command"), agent=agent).action == "ask"


@pytest.mark.parametrize("command", ["git status", "git status -s", "git status 'a;b' -- c"])
def test_command_is_allowed_by_its_first_words(command):
    agent = rules("bash git status * allow")
    assert decide(ask("bash", command, kind="command"), agent=agent).action == "allow"


@pytest.mark.parametrize("line", ["", " ", "   ", "\t", "\n", "#", "''", ";"])
def test_line_without_a_command_asks_whatever_is_allowed(line):
    for allowed in ("* * allow", f"bash {line} allow", "bash *? allow"):
        found = decide(ask("bash", line, kind="command"), agent=rules(allowed))
        assert found.action == "ask", allowed


def test_program_whose_name_begins_alike_is_another_program():
    agent = rules("bash git * allow")
    assert decide(ask("bash", "github x", kind="command"), agent=agent).action == "ask"


def test_denied_command_is_denied_wherever_the_pattern_meets_it():
    agent = rules("bash * allow", "bash *rm * deny")
    assert decide(ask("bash", "true; rm x", kind="command"), agent=agent).action == "deny"


# --- hiding --------------------------------------------------------------------------


def test_tool_that_is_denied_for_everything_is_hidden():
    rights = Rights(agent=rules("* * allow", "bash * deny"))
    assert not could_ever("bash", RuleSet(), rights)
    assert could_ever("read", RuleSet(), rights)


def test_tool_with_one_allowed_target_is_shown():
    rights = Rights(agent=rules("edit * deny", "edit .holdfast/plans/** allow"))
    assert could_ever("edit", RuleSet(), rights)


def test_tool_is_hidden_when_a_parent_or_any_set_of_the_ceiling_denies_it():
    allow = rules("* * allow")
    parent = Rights(agent=rules("bash * deny"))
    assert not could_ever("bash", RuleSet(), Rights(agent=allow, parent=parent))
    assert not could_ever("bash", RuleSet(also=(allow, rules("bash * deny"))), Rights(agent=allow))


def test_searches_of_many_permissions_do_not_pile_up():
    agent = rules("* * allow")
    for number in range(2_000):
        assert decide(ask(f"tool{number}"), agent=agent).action == "allow"
    assert len(agent._searches) <= 512


SCRIPT = "for x in 1 2; do echo $x; done"
ALLOWED = RuleSet(rules=(PermissionRule(permission="*", pattern="*", action="allow"),))
NAMES_RM = RuleSet(rules=(PermissionRule(permission="bash", pattern="rm *", action="deny"),))


def decide_script(text=SCRIPT, *, is_confined=True, **sources):
    request = CallRequest(
        permission="bash", targets=(text,), target_kind="command", is_confined=is_confined
    )
    held = {"agent": ALLOWED, **sources}
    rights = Rights(
        agent=held["agent"],
        session=held.get("session", NO_RULES),
        parent=held.get("parent"),
    )
    ceiling = held.get("ceiling", NO_RULES)
    told = explain(request, ceiling, rights)
    assert told.action == told.decision.action
    return told.action


def test_a_script_runs_as_it_is_where_a_sandbox_bounds_it_and_no_rule_names_commands():
    parent = Rights(agent=ALLOWED, parent=Rights(agent=ALLOWED))
    assert decide_script() == "allow"
    assert decide_script(parent=parent) == "allow"
    assert decide_script(ceiling=RuleSet(also=(ALLOWED,))) == "allow"
    assert decide_script(is_confined=False) == "ask"


def test_any_rule_that_names_commands_wants_to_read_them():
    both = RuleSet(rules=ALLOWED.rules + NAMES_RM.rules)
    assert decide_script(agent=both) == "ask"
    assert decide_script(session=NAMES_RM) == "ask"
    assert decide_script(ceiling=RuleSet(also=(NAMES_RM,))) == "ask"
    assert decide_script(parent=Rights(agent=ALLOWED, session=NAMES_RM)) == "ask"
    assert decide_script("echo $(rm x)", session=NAMES_RM) == "deny"


def test_the_sandbox_lifts_no_ask_no_deny_and_no_disguise():
    asks = RuleSet(rules=(PermissionRule(permission="bash", pattern="*", action="ask"),))
    assert decide_script(agent=asks) == "ask"
    assert decide_script(agent=NO_RULES) == "ask"
    assert decide_script("ls \u202etxt") == "deny"
