"""The gate's decision: may a call run, must it wait for a person, or is it refused?

Pure: equal inputs give equal decisions, so that recorded calls can be judged again under
another policy. Everything that executes anything asks here first, with the real arguments.

Four sources speak, and the strictest wins (deny < ask < allow):

1. the **ceiling**, the operator's policy: its deny and its ask cannot be lifted below it;
2. the **parent's** rights: a child never has a right that its parent lacks;
3. the **agent's** rules; and
4. the **session's** rules, which a person has set: they may lift the agent's ask, and add
   asks and denies, but never lift a deny.

Inside one set of rules the last match wins. Where no rule of agent or session matches, the
request's own default holds, which is `ask` unless somebody handed the tool over in code.
"""

from __future__ import annotations

import functools
import re
from typing import Literal, TypeAlias

import msgspec

from holdfast.errors import UsageError
from holdfast.globs import compile_glob
from holdfast.sessions import PermissionRule

Action: TypeAlias = Literal["allow", "ask", "deny"]
Source: TypeAlias = Literal["ceiling", "parent", "agent", "session", "default"]

_RANK: dict[Action, int] = {"deny": 0, "ask": 1, "allow": 2}
_LONGEST_PATTERN = 1_000


class CallRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants to do: a permission and everything that the call touches.

    `default` is what holds where no rule of agent or session speaks.
    """

    permission: str
    targets: tuple[str, ...] = ("*",)
    target_kind: str = "none"
    default: Action = "ask"


class RuleSet(msgspec.Struct, frozen=True, kw_only=True):
    """Rules of one source, in order; without rules it has no opinion."""

    rules: tuple[PermissionRule, ...] = ()


NO_RULES = RuleSet()


class Rights(msgspec.Struct, frozen=True, kw_only=True):
    """What one agent may do in one session, below whoever started it."""

    agent: RuleSet = NO_RULES
    session: RuleSet = NO_RULES
    parent: Rights | None = None


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
        return f"the {decisive.source} rule `{rule.permission} {rule.pattern} {rule.action}` holds"


def decide(
    request: CallRequest,
    ceiling: RuleSet = NO_RULES,
    parent: Rights | None = None,
    agent: RuleSet = NO_RULES,
    session: RuleSet = NO_RULES,
    *,
    policy_version: str = "",
) -> Decision:
    """Say whether a call may run, must wait for a person, or is refused.

    Pure: equal inputs give equal decisions. A call that touches several things is judged by
    the strictest verdict. A rule that cannot be read refuses.
    """
    reasons: list[Reason] = []
    for target in request.targets or ("*",):
        found = _last_match(ceiling, request, target)
        if found is not None:
            reasons.append(Reason(source="ceiling", action=found.action, target=target, rule=found))
        rights = Rights(agent=agent, session=session, parent=parent)
        reasons.extend(_judge(rights, request, target, is_parent=False))
    action = min((reason.action for reason in reasons), key=_RANK.__getitem__)
    return Decision(action=action, because=tuple(reasons), policy_version=policy_version)


def could_ever(permission: str, ceiling: RuleSet, rights: Rights) -> bool:
    """Say whether any call of a permission could be allowed or asked for.

    For hiding tools from a model: what is denied for every target is never offered.
    """
    sets = [ceiling, *_all_sets(rights)]
    return not any(_denies_everything(rules, permission) for rules in sets)


def same_permission(one: str, other: str) -> bool:
    """Names with and without underscores, hyphens and capitals mean the same permission."""
    return _plain_name(one) == _plain_name(other)


def _judge(rights: Rights, request: CallRequest, target: str, *, is_parent: bool) -> list[Reason]:
    """Judge one level of rights, then the levels above it."""
    agent = _last_match(rights.agent, request, target)
    session = _last_match(rights.session, request, target)
    source: Source = "parent" if is_parent else "agent"
    if agent is not None:
        base = Reason(source=source, action=agent.action, target=target, rule=agent)
    else:
        base = Reason(source="default", action=request.default, target=target)
    reasons = [base]
    if session is not None:
        word: Source = "parent" if is_parent else "session"
        spoken = Reason(source=word, action=session.action, target=target, rule=session)
        # A person's allow answers the agent's ask; it never lifts a deny.
        reasons = [spoken] if base.action != "deny" else [base, spoken]
    if rights.parent is not None:
        reasons += _judge(rights.parent, request, target, is_parent=True)
    return reasons


def _last_match(rules: RuleSet, request: CallRequest, target: str) -> PermissionRule | None:
    for rule in reversed(rules.rules):
        if _matches_name(rule.permission, request.permission) and _matches_target(
            rule.pattern, request.target_kind, target
        ):
            return rule
    return None


def _all_sets(rights: Rights) -> list[RuleSet]:
    above = _all_sets(rights.parent) if rights.parent is not None else []
    return [rights.agent, rights.session, *above]


def _denies_everything(rules: RuleSet, permission: str) -> bool:
    for rule in reversed(rules.rules):
        if _matches_name(rule.permission, permission):
            if rule.action != "deny":
                return False
            if rule.pattern in ("*", "**"):
                return True
    return False


def _plain_name(name: str) -> str:
    return name.replace("_", "").replace("-", "").casefold()


@functools.lru_cache(maxsize=4_096)
def _matches_name(pattern: str, permission: str) -> bool:
    return _wildcard(_plain_name(pattern)).fullmatch(_plain_name(permission)) is not None


@functools.lru_cache(maxsize=16_384)
def _matches_target(pattern: str, kind: str, target: str) -> bool:
    if pattern in ("*", "**"):
        return True
    if kind == "path":
        return compile_glob(pattern).fullmatch(target.removeprefix("./")) is not None
    return _wildcard(pattern).fullmatch(target) is not None


@functools.lru_cache(maxsize=4_096)
def _wildcard(pattern: str) -> re.Pattern[str]:
    """`*` stands for any text, `?` for one character; everything else for itself."""
    if len(pattern) > _LONGEST_PATTERN:
        raise UsageError(detail=f"The pattern {pattern[:80]!r} is too long.")
    parts = re.split(r"(\*+|\?)", pattern)
    return re.compile("".join(_as_regex(part) for part in parts), re.DOTALL)


def _as_regex(part: str) -> str:
    if part.startswith("*"):
        return ".*"
    return "." if part == "?" else re.escape(part)
