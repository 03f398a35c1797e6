"""Rules without effect: what an author most likely meant otherwise.

`* * allow` in front of `read *.csv allow` allows every read: the pattern limits nothing. Whoever
wrote that wanted a limit, and has none; the same for a rule that a later one always overrules, and
for one that names no tool.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import msgspec

from holdfast.policy.decision import QUESTIONS, Action, CallRequest, lifts
from holdfast.policy.patterns import EVERYTHING, has_fixed_part, name_matches
from holdfast.sessions import PermissionRule


class RuledTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as rules see it: its name, the kind of its targets, and what it says of itself."""

    name: str
    kind: str = "none"
    own: Action = "allow"
    is_optional: bool = False
    """Whether it is offered only to agents with a rule that names it."""


class IdleRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that decides nothing, and why."""

    rule: PermissionRule
    because: str


_QUESTIONS = tuple(RuledTool(name=name, own="ask") for name in QUESTIONS)


def find_idle_rules(
    rules: Sequence[PermissionRule], tools: Sequence[RuledTool]
) -> tuple[IdleRule, ...]:
    """Return the rules of one set that decide nothing about any of these tools, in order.

    Pure. A rule that is not returned may still decide nothing: patterns are compared by their
    words, and only those that cover everything are known to cover others.
    """
    known = (*tools, *_QUESTIONS)
    found: list[IdleRule] = []
    for place, rule in enumerate(rules):
        meant = [tool for tool in known if _is_about(rule, tool)]
        because = ""
        if not meant:
            because = _find_missing_tool(rule, known)
        elif later := _find_overruling(rules[place + 1 :], rule, meant):
            because = f"the rule `{_write_rule(later)}` behind it always decides"
        elif earlier := _find_equal(rules[:place], rule, meant):
            because = (
                f"the rule `{_write_rule(earlier)}` in front of it says the same of every target"
            )
        if because:
            found.append(IdleRule(rule=rule, because=because))
    return tuple(found)


def _find_missing_tool(rule: PermissionRule, known: Sequence[RuledTool]) -> str:
    near = difflib.get_close_matches(rule.permission, [tool.name for tool in known], n=1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    return f"there is no tool {rule.permission!r}{meant}"


def _find_overruling(
    later: Sequence[PermissionRule], rule: PermissionRule, meant: Sequence[RuledTool]
) -> PermissionRule | None:
    """Return a later rule that matches whatever this one matches."""
    for other in later:
        covers = other.pattern in EVERYTHING or other.pattern == rule.pattern
        if covers and all(_is_about(other, tool) for tool in meant):
            return other
    return None


def _find_equal(
    earlier: Sequence[PermissionRule], rule: PermissionRule, meant: Sequence[RuledTool]
) -> PermissionRule | None:
    """Return an earlier rule that gives each tool of this one the same answer on every target."""
    said = [_find_last_word(earlier, rule, tool) for tool in meant]
    return said[0] if all(said) else None


def _find_last_word(
    earlier: Sequence[PermissionRule], rule: PermissionRule, tool: RuledTool
) -> PermissionRule | None:
    for other in reversed(earlier):
        if not _is_about(other, tool):
            continue
        if other.action != rule.action:
            return None
        if other.pattern in EVERYTHING:
            request = CallRequest(permission=tool.name, target_kind=tool.kind, own=tool.own)
            is_more = rule.action == "allow" and lifts(rule, request) and not lifts(other, request)
            is_offer = tool.is_optional and has_fixed_part(rule.permission)
            return None if is_more or is_offer else other
    return None


def _is_about(rule: PermissionRule, tool: RuledTool) -> bool:
    return name_matches(rule.permission, tool.name, tool.kind)


def _write_rule(rule: PermissionRule) -> str:
    return f"{rule.permission} {rule.pattern} {rule.action}"
