"""Which state a run may read and write: the same rules as for calls, asked about addresses.

The permissions are `state_read` and `state_write` (`state` means both), the pattern is an
address: `user/*`, `custom:team-red/board`. Ceiling, parent, agent and session speak as they do
about calls, and the strictest wins, so a child never reaches more than its parent. Where no rule
speaks:

- what belongs to the caller alone (its session, run, agent, tool, workflow) may be read and
  written; only rules that name state can take it away, since `*` is about tools;
- what is shared (user, project, global, custom) may be read and not written; an agent with a
  rule that allows certain addresses reads those and no others;
- what belongs to somebody else (`user:ann/…` of another user) may be neither.

There is nobody to ask in the midst of a call, so `ask` refuses.
"""

from __future__ import annotations

import functools
from typing import Literal

from msgspec.structs import replace

from holdfast.errors import PermissionDenied
from holdfast.policy.decision import Action, CallRequest, Decision, Rights, RuleSet, decide
from holdfast.policy.patterns import EVERYTHING, clean_name, name_matches
from holdfast.sessions import PermissionRule

_BOTH = "state_*"
_SHARED = ("user/", "project/", "global/", "custom:")


def decide_state(
    action: Literal["read", "write"],
    target: str,
    *,
    is_own: bool,
    ceiling: RuleSet,
    rights: Rights,
) -> Decision:
    """Say whether an address may be read or written. Pure; `ask` means no here."""
    permission = f"state_{action}"
    spoken = _select_spoken(rights)
    ceiling = _select_speaking(ceiling)
    default: Action = "allow"
    if not is_own:
        is_given = action == "read" and target.startswith(_SHARED)
        default = "allow" if is_given and not _chooses(permission, ceiling, spoken) else "deny"
    request = CallRequest(permission=permission, targets=(target,), default=default)
    if is_own:
        ceiling, spoken = _select_naming(ceiling), _find_named_rules(spoken)
    return decide(request, ceiling, spoken.parent, spoken.agent, spoken.session)


def check_state(
    action: Literal["read", "write"],
    target: str,
    *,
    is_own: bool,
    ceiling: RuleSet,
    rights: Rights,
) -> None:
    """Return if an address may be read or written; raises PermissionDenied."""
    decision = decide_state(action, target, is_own=is_own, ceiling=ceiling, rights=rights)
    if decision.action != "allow":
        permission = f"state_{action}"
        raise PermissionDenied(
            permission=permission,
            target=target,
            because=f"{decision.explain()}; a rule such as {{permission: {permission}, "
            f"pattern: {target.partition('/')[0]}/*, action: allow}} gives it",
        )


@functools.lru_cache(maxsize=512)
def _select_speaking(rules: RuleSet) -> RuleSet:
    """Return the rules that speak of state.

    One that refuses everything is about tools: of state it only takes back what stood before it.
    """
    if rules.is_filter and not rules.rules:
        return rules  # whoever acts in a person's name is held back by nothing of its own
    kept: list[PermissionRule] = []
    for rule in rules.rules:
        if rules.is_filter and rule.action == "allow":
            continue  # a list of tools gives no state
        if rule.permission in EVERYTHING:
            if rule.action == "allow":
                kept.append(rule)
            elif rule.pattern in EVERYTHING:
                kept = [one for one in kept if one.action != "allow"]
        elif clean_name(rule.permission) == "state":
            kept.append(replace(rule, permission=_BOTH))
        elif any(name_matches(rule.permission, f"state_{one}") for one in ("read", "write")):
            kept.append(rule)
    return RuleSet(rules=tuple(kept), also=tuple([_select_speaking(other) for other in rules.also]))


@functools.lru_cache(maxsize=512)
def _select_naming(rules: RuleSet) -> RuleSet:
    """Return the rules that name state, rather than cover it by a wildcard."""
    named = [rule for rule in rules.rules if rule.permission not in EVERYTHING]
    if named:
        # What is one's own is allowed, also where a rule chooses among what is shared.
        named = [PermissionRule(permission=_BOTH, action="allow"), *named]
    also = tuple([_select_naming(other) for other in rules.also])
    return RuleSet(rules=tuple(named), also=also, is_filter=rules.is_filter)


@functools.lru_cache(maxsize=512)
def _select_spoken(rights: Rights) -> Rights:
    return Rights(
        agent=_select_speaking(rights.agent),
        session=_select_speaking(rights.session),
        parent=_select_spoken(rights.parent) if rights.parent is not None else None,
    )


@functools.lru_cache(maxsize=512)
def _find_named_rules(rights: Rights) -> Rights:
    return Rights(
        agent=_select_naming(rights.agent),
        session=_select_naming(rights.session),
        parent=_find_named_rules(rights.parent) if rights.parent is not None else None,
    )


def _chooses(permission: str, ceiling: RuleSet, rights: Rights) -> bool:
    """Say whether a rule allows certain addresses, so that no others are meant."""
    sets = [ceiling]
    level: Rights | None = rights
    while level is not None:
        sets += [level.agent, level.session]
        level = level.parent
    return any(
        rule.action == "allow"
        and rule.permission not in EVERYTHING
        and rule.pattern not in EVERYTHING
        and name_matches(rule.permission, permission)
        for one in sets
        for rule in one.every_rule
    )


__all__ = ["check_state", "decide_state"]
