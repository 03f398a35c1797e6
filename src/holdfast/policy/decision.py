"""The gate's decision: may a call run, must it wait for a person, or is it refused?

Pure: equal inputs give equal decisions, so that recorded calls can be judged again under
another policy. Everything that executes anything asks here first, with the real arguments.

Four sources speak, and the strictest wins (deny < ask < allow):

1. the **ceiling**, the operator's policy: its deny and its ask cannot be lifted below it;
2. the **parent's** rights: a child never has a right that its parent lacks;
3. the **agent's** rules; and
4. the **session's** rules, which a person has set: they may lift the agent's ask, and add
   asks and denies, but never lift a deny.

Inside one set of rules the last match wins. An allow through the permission `*` does not lift
what a tool says of itself (`own`): only a rule that names the tool does. Where no rule of agent
or session matches, an allow rule with a pattern that names the permission was meant as its limit,
so it asks; else the tool's own word holds; else what was handed over in code is allowed; else the
request's default. `docs/concepts/gate.md` has the whole table.

A rule speaks of a permission by its name (`bash`, `*`, `mcp_*`; underscores, hyphens and
capitals do not count) or by the kind of thing that a call touches: `path`, `network` and
`command` cover every tool with such targets. How patterns meet targets stands in
`patterns.py`. A rule that cannot be read refuses everything that it speaks of.

A rule that allows certain commands allows no option that makes the program worse than the
rule's own words (`find *` allows no `-exec`), and no command that it starts (`env *` allows
`env ls` only where `ls` is allowed); one that denies or asks also means commands
inside others (`env rm x`). A command that cannot be read asks at least, whatever rules say,
unless no rule names commands and a sandbox is the boundary: then it is a script like any other.
One that is not what it looks like is refused. The parser of commands loads with the first command.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from holdfast.policy.patterns import (
    EVERYTHING,
    SEPARATORS,
    Matcher,
    clean_name,
    clean_target,
    compile_matcher,
    find_fixed_word,
    has_fixed_part,
    is_readable,
    is_simple_command,
    list_fixed_words,
    name_matches,
)
from holdfast.sessions import PermissionRule

Action: TypeAlias = Literal["allow", "ask", "deny"]
Source: TypeAlias = Literal["ceiling", "parent", "agent", "session", "default"]

QUESTIONS = ("doom_loop", "egress")
"""Permissions that are no tools: what is asked besides about a call that its own permission
allows. Rules that leave only some tools leave these, or they could not even be asked."""

STRICTNESS: dict[str, int] = {"deny": 0, "ask": 1, "allow": 2}


class CallRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for: a permission and everything that the call touches.

    `own` is what the tool says of itself, `is_given` whether it was handed to the calling agent
    in code. `default` is what holds where neither says anything and no rule speaks: `allow` for
    what is known to read only. `is_confined` says that what runs a command is a boundary by itself:
    it keeps a script, whatever it says, in the caller's sandbox.
    """

    permission: str
    targets: tuple[str, ...] = ("*",)
    target_kind: str = "none"
    default: Action = "ask"
    own: Action = "allow"
    is_given: bool = False
    is_confined: bool = False


class RuleSet(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Rules of one source, in order; without rules it has no opinion.

    `also` are further sets beside it: each speaks for itself, and the strictest wins. A filter,
    such as a list of tools, takes away only: its denies count, and its other rules do no more
    than leave something out of them.
    """

    rules: tuple[PermissionRule, ...] = ()
    also: tuple[RuleSet, ...] = ()
    is_filter: bool = False

    @property
    def every_rule(self) -> tuple[PermissionRule, ...]:
        """Its own rules, then those of the sets beside it."""
        return self.rules + tuple(rule for other in self.also for rule in other.every_rule)

    def find_last_match(self, request: CallRequest, target: str) -> PermissionRule | None:
        """Return the last rule that speaks of a target, or `None` if none does.

        With `also`, the strictest of what the sets say; of equals, the first.
        """
        found: PermissionRule | None = None
        if self.rules:
            kind = request.target_kind
            plain = target if kind == "none" else clean_target(target, kind)
            is_simple = kind != "command" or is_simple_command(plain)
            found = self._searches[request.permission, kind, is_simple].find(plain)
            if self.is_filter and found is not None and found.action != "deny":
                found = None
        for other in self.also:
            said = other.find_last_match(request, target)
            if said is not None and (
                found is None or STRICTNESS[said.action] < STRICTNESS[found.action]
            ):
                found = said
        return found

    def limits(self, request: CallRequest) -> bool:
        """Say whether an allow rule with a pattern names the permission, as its limit."""
        if self.rules and not self.is_filter:
            if self._searches[request.permission, request.target_kind, True].has_limit:
                return True
        return any(other.limits(request) for other in self.also)

    def has_target_rules(self, request: CallRequest) -> bool:
        """Say whether any rule tells one target of the permission from another."""
        key = request.permission, request.target_kind, True
        if self.rules and self._searches[key].has_target_rules:
            return True
        return any(other.has_target_rules(request) for other in self.also)

    @functools.cached_property
    def _searches(self) -> _Searches:
        return _Searches(self.rules)


NO_RULES = RuleSet()
FORBIDS_NOTHING = RuleSet(is_filter=True)
"""What stands for a person, or for what acts in a person's name: it holds nothing back."""
_MOST_SEARCHES = 512


class Rights(msgspec.Struct, frozen=True, kw_only=True):
    """What one agent may do in one session, below whoever started it.

    `is_handed` says that the agent was handed to its parent in code, and its tools with it.
    """

    agent: RuleSet = NO_RULES
    session: RuleSet = NO_RULES
    parent: Rights | None = None
    is_handed: bool = False


class Reason(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One contribution to a decision: which source, which rule, for which target."""

    source: Source
    action: Action
    target: str
    rule: PermissionRule | None = None


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict, and every rule that took part in it."""

    action: Action
    because: tuple[Reason, ...]
    policy_version: str = ""

    def explain(self) -> str:
        """Say in one sentence which rule was decisive."""
        decisive = next((r for r in self.because if r.action == self.action), self.because[0])
        if decisive.rule is None:
            return f"no rule speaks of it, so {decisive.action} holds"
        rule = decisive.rule
        said = f"the {decisive.source} rule `{rule.permission} {rule.pattern} {rule.action}` holds"
        if decisive.source == "ceiling" and (rule.permission, rule.pattern) == ("network", "*"):
            # The first rule that any caller meets: no operator has written it, so it says its way
            # out.
            return f"{said}; ALLOW_NET and allowed_hosts in network.yaml open hosts"
        if decisive.source == "ceiling" and (rule.permission, rule.pattern) == ("command", "*"):
            return (
                f"{said}; allowed_commands in tools.yaml names the programs that may run, and lets "
                "none of them write to a file by > or >>"
            )
        return said


def decide(
    request: CallRequest,
    ceiling: RuleSet = NO_RULES,
    parent: Rights | None = None,
    agent: RuleSet = NO_RULES,
    session: RuleSet = NO_RULES,
    *,
    is_handed: bool = False,
    policy_version: str = "",
) -> Decision:
    """Say whether a call may run, must wait for a person, or is refused.

    Pure: equal inputs give equal decisions. A call that touches several things is judged by
    the strictest verdict. A rule that cannot be read refuses. `is_handed` is as for `Rights`.
    """
    own = Rights(agent=agent, session=session, parent=parent, is_handed=is_handed)
    reasons: list[Reason] = []
    is_script = request.is_confined and is_script_allowed(request, ceiling, own)
    for target in request.targets or ("*",):
        found = ceiling.find_last_match(request, target)
        if found is not None:
            reasons.append(Reason(source="ceiling", action=found.action, target=target, rule=found))
        level: Rights | None = own
        is_given = request.is_given
        while level is not None:
            is_own = level is own
            said = level.agent.find_last_match(request, target)
            spoken = level.session.find_last_match(request, target)
            # A person's allow answers the agent's ask; it never lifts a deny.
            if said is not None and (spoken is None or said.action == "deny"):
                word: Source = "agent" if is_own else "parent"
                reasons.append(Reason(source=word, action=said.action, target=target, rule=said))
            if spoken is not None:
                word = "session" if is_own else "parent"
                reasons.append(
                    Reason(source=word, action=spoken.action, target=target, rule=spoken)
                )
            last = spoken or said
            is_settled = last is not None and (
                last.action != "allow" or request.own == "allow" or lifts(last, request)
            )
            if not is_settled:
                action = decide_unruled(level, request, is_given, is_matched=last is not None)
                if action is not None:
                    reasons.append(Reason(source="default", action=action, target=target))
            is_given = is_given and level.is_handed
            level = level.parent
        if request.target_kind == "command":
            reasons += list_unread(target, is_script=is_script)
    # A person forbids nothing, and neither did anything else.
    reasons = reasons or [Reason(source="default", action="allow", target="*")]
    return Decision(
        action=choose_strictest(reasons), because=tuple(reasons), policy_version=policy_version
    )


def decide_unruled(
    level: Rights, request: CallRequest, is_given: bool, *, is_matched: bool
) -> Action | None:
    """Say what holds at a level where no rule settles it; `None` where the level says nothing.

    `is_matched` says that a rule did match, one that cannot lift the tool's own word.
    """
    is_limited = not is_matched and (level.agent.limits(request) or level.session.limits(request))
    if level.agent.is_filter:
        return "ask" if is_limited else None
    if request.own == "deny":
        return "deny"
    if is_limited or request.own == "ask":
        return "ask"
    return "allow" if is_given else request.default


def lifts(rule: PermissionRule, request: CallRequest) -> bool:
    """Say whether an allow rule settles a request: what a tool says of itself, `*` does not lift.

    Nor does a rule about a kind of target, such as `path`: the rule has to name the tool.
    """
    return request.own == "allow" or (
        has_fixed_part(rule.permission) and name_matches(rule.permission, request.permission)
    )


def is_script_allowed(request: CallRequest, ceiling: RuleSet, rights: Rights) -> bool:
    """Say whether a command that a sandbox bounds need not be read: no rule names commands.

    A rule that names some, to allow, to deny or to ask, wants to know what is inside each line.
    """
    if ceiling.has_target_rules(request):
        return False
    level: Rights | None = rights
    while level is not None:
        if level.agent.has_target_rules(request) or level.session.has_target_rules(request):
            return False
        level = level.parent
    return True


def list_unread(target: str, *, is_script: bool = False) -> tuple[Reason, ...]:
    """Say what becomes of a command that was not understood, whatever rules allow."""
    from holdfast.policy.commands.parse import parse_command  # noqa: PLC0415 - first use

    parsed = parse_command(target)
    if parsed.is_parsed or (is_script and not parsed.is_refused):
        return ()
    action: Action = "deny" if parsed.is_refused else "ask"
    return (Reason(source="default", action=action, target=target),)


def choose_strictest(reasons: list[Reason] | tuple[Reason, ...]) -> Action:
    """Return the strictest action among reasons, of which there is at least one."""
    strict = reasons[0].action
    for reason in reasons:
        if STRICTNESS[reason.action] < STRICTNESS[strict]:
            strict = reason.action
    return strict


def could_ever(permission: str, ceiling: RuleSet, rights: Rights, kind: str = "none") -> bool:
    """Say whether any call of a permission could be allowed or asked for.

    For hiding tools from a model: what is denied for every target is never offered.
    """
    sets = [ceiling]
    level: Rights | None = rights
    while level is not None:
        sets += [level.agent, level.session]
        level = level.parent
    return not any(_denies_everything(rules, permission, kind) for rules in sets)


def is_same_permission(one: str, other: str) -> bool:
    """Names with and without underscores, hyphens and capitals mean the same permission."""
    return clean_name(one) == clean_name(other)


def does_rule_match(
    rule: PermissionRule,
    request: CallRequest,
    target: str,
    among: tuple[PermissionRule, ...] = (),
) -> bool:
    """Say whether one rule, seen alone, speaks of one target of a request.

    `among` are the rules of its set, which decide about a command that the target starts.
    """
    kind = request.target_kind
    if not name_matches(rule.permission, request.permission, kind):
        return False
    plain = clean_target(target, kind)
    is_simple = kind != "command" or is_simple_command(plain)
    meets = compile_matcher(rule.pattern, kind)
    if not _applies(rule, is_simple=is_simple):
        return False
    if kind != "command" or rule.pattern in EVERYTHING:
        return meets(plain)
    if choose_effective_rule(rule, kind).action == "allow":
        return meets(plain) and is_covered(
            rule.pattern, plain, lambda started: _is_allowed_among(among, request, started)
        )
    return meets(plain) or any(map(meets, _list_inner_commands(plain)))


def is_covered(pattern: str, command: str, is_allowed: Callable[[str], bool]) -> bool:
    """Say whether a pattern that allows a simple command also means all that is in it.

    `is_allowed` says so of a command that it starts, in its one spelling.
    """
    from holdfast.policy.commands.allowlist import is_covered_by  # noqa: PLC0415 - first use

    words, argv = list_fixed_words(pattern), tuple(shlex.split(command))
    return is_covered_by(words, argv, lambda started: is_allowed(shlex.join(started)))


def _is_allowed_among(
    rules: tuple[PermissionRule, ...], request: CallRequest, command: str
) -> bool:
    for rule in reversed(rules):
        if does_rule_match(rule, request, command, rules):
            return choose_effective_rule(rule, request.target_kind).action == "allow"
    return False


def choose_effective_rule(rule: PermissionRule, kind: str) -> PermissionRule:
    """Return the rule, or its refusal if its pattern or its action cannot be read."""
    if rule.action in STRICTNESS and is_readable(rule.pattern, kind):
        return rule
    return msgspec.structs.replace(rule, action="deny")


class _Searches(dict[tuple[str, str, bool], "_Search"]):
    """Searches by permission, kind of target and whether that is simple, made on first use."""

    def __init__(self, rules: tuple[PermissionRule, ...]) -> None:
        super().__init__()
        self._rules = rules

    def __missing__(self, key: tuple[str, str, bool]) -> _Search:
        if len(self) >= _MOST_SEARCHES:
            self.clear()
        permission, kind, is_simple = key
        named = [rule for rule in self._rules if name_matches(rule.permission, permission, kind)]
        self[key] = search = _make_search(tuple(named), kind, is_simple)
        return search


class _Search:
    """The rules of one permission, so kept that the last one that matches is found quickly.

    Most patterns hold a fixed word (a directory, a program, a label of a host): only rules
    whose word occurs in the target are tried, and those without any.
    """

    def __init__(self, rules: tuple[PermissionRule, ...], kind: str, *, is_simple: bool) -> None:
        self._is_command = kind == "command"
        self.has_limit = any(
            rule.action == "allow"
            and rule.pattern not in EVERYTHING
            and has_fixed_part(rule.permission)
            for rule in rules
        )
        self.has_target_rules = any(rule.pattern not in EVERYTHING for rule in rules)
        self._separator = SEPARATORS.get(kind, " ")
        self._rules: list[PermissionRule] = []
        self._matchers: list[Matcher] = []
        self._always: list[int] = []
        self._by_word: dict[str, list[int]] = {}
        for rule in reversed(rules):
            if not _applies(rule, is_simple=is_simple):
                continue
            place = len(self._rules)
            self._rules.append(choose_effective_rule(rule, kind))
            self._matchers.append(compile_matcher(rule.pattern, kind))
            word = find_fixed_word(rule.pattern, kind)
            if word:
                self._by_word.setdefault(word, []).append(place)
            else:
                self._always.append(place)
            if rule.pattern in EVERYTHING:
                break  # whatever stood before it can no longer speak

    def find(self, target: str) -> PermissionRule | None:
        inner = _list_inner_commands(target) if self._is_command else ()
        places = self._always
        if self._by_word:
            words = set(target.split(self._separator))
            for one in inner:
                words.update(one.split(self._separator))
            found = [place for word in words for place in self._by_word.get(word, ())]
            if found:
                places = sorted(found + places)
        for place in places:
            rule, meets = self._rules[place], self._matchers[place]
            if rule.pattern in EVERYTHING:
                return rule
            if self._is_command and rule.action == "allow":
                speaks = meets(target) and is_covered(rule.pattern, target, self._allows)
            else:
                speaks = meets(target) or any(map(meets, inner))
            if speaks:
                return rule
        return None

    def _allows(self, command: str) -> bool:
        found = self.find(command)
        return found is not None and found.action == "allow"


def _list_inner_commands(command: str) -> tuple[str, ...]:
    from holdfast.policy.commands.inside import list_inner_commands  # noqa: PLC0415 - first use

    return list_inner_commands(command)


@functools.lru_cache(maxsize=1_024)
def _make_search(rules: tuple[PermissionRule, ...], kind: str, is_simple: bool) -> _Search:
    return _Search(rules, kind, is_simple=is_simple)


def _applies(rule: PermissionRule, *, is_simple: bool) -> bool:
    """A rule that allows certain commands says nothing about what is more than a command."""
    return is_simple or rule.action != "allow" or rule.pattern in EVERYTHING


def _denies_everything(rules: RuleSet, permission: str, kind: str) -> bool:
    if any(_denies_everything(other, permission, kind) for other in rules.also):
        return True
    for rule in reversed(rules.rules):
        if name_matches(rule.permission, permission, kind):
            if choose_effective_rule(rule, kind).action != "deny":
                return False
            if rule.pattern in EVERYTHING:
                return True
    return False
