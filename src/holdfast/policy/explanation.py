"""Why a call is allowed, asked about or refused: every rule in order, the decisive ones marked."""

from __future__ import annotations

import msgspec

from holdfast.policy.decision import (
    NO_RULES,
    STRICTNESS,
    Action,
    CallRequest,
    Decision,
    Rights,
    RuleSet,
    Source,
    choose_effective_rule,
    decide,
    decide_unruled,
    does_rule_match,
    is_script_allowed,
    lifts,
    list_unread,
)
from holdfast.sessions import PermissionRule


class RuleLine(msgspec.Struct, frozen=True, kw_only=True):
    """One rule (or the default, which has none) as it meets one target of a request.

    `level` is 0 for the ceiling and the agent itself, 1 for its parent, and so on.
    `speaks` says that its set relies on it; `is_decisive` that the verdict is its.
    """

    source: Source
    level: int
    target: str
    action: Action
    rule: PermissionRule | None = None
    is_match: bool = True
    speaks: bool = False
    is_decisive: bool = False

    def text(self) -> str:
        """The line for people; `=>` marks what decided, `->` what was heard."""
        mark = "=>" if self.is_decisive else "->" if self.speaks else "  "
        said = f"{self.rule.permission} {self.rule.pattern}" if self.rule else "no rule"
        note = "" if self.is_match else "  (does not match)"
        return f"{mark} {self.source:8} {said} {self.action}{note}"


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """A decision and everything that was looked at, in order."""

    decision: Decision
    lines: tuple[RuleLine, ...]

    @property
    def action(self) -> Action:
        """The verdict as it follows from the lines alone; always that of the decision."""
        heard = (line.action for line in self.lines if line.speaks)
        return min(heard, key=STRICTNESS.__getitem__, default="allow")

    def text(self) -> str:
        """The whole story for people, one line per rule."""
        verdict = f"{self.decision.action}: {self.decision.explain()}"
        return "\n".join([verdict, *(line.text() for line in self.lines)])


def explain(
    request: CallRequest,
    ceiling: RuleSet = NO_RULES,
    rights: Rights | None = None,
    *,
    policy_version: str = "",
) -> Explanation:
    """Say which rules spoke of a request, and which of them decided.

    Looks at every rule alone, without the index that `decide` uses, so that each can be
    checked against the other.
    """
    held = rights or Rights()
    decision = decide(
        request,
        ceiling,
        held.parent,
        held.agent,
        held.session,
        is_handed=held.is_handed,
        policy_version=policy_version,
    )
    lines: list[RuleLine] = []
    is_script = request.is_confined and is_script_allowed(request, ceiling, held)
    for target in request.targets or ("*",):
        lines += _format_lines(ceiling, "ceiling", 0, request, target)
        level: Rights | None = held
        depth, is_given = 0, request.is_given
        while level is not None:
            lines += _list_level(level, depth, request, target, is_given)
            is_given = is_given and level.is_handed
            level, depth = level.parent, depth + 1
        if request.target_kind == "command":
            lines += [
                RuleLine(source="default", level=0, target=target, action=one.action, speaks=True)
                for one in list_unread(target, is_script=is_script)
            ]
    marked = [
        msgspec.structs.replace(line, is_decisive=line.speaks and line.action == decision.action)
        for line in lines
    ]
    return Explanation(decision=decision, lines=tuple(marked))


def _list_level(
    rights: Rights, depth: int, request: CallRequest, target: str, is_given: bool
) -> list[RuleLine]:
    """The lines of one level of rights.

    An agent's rule is not heard where a person said something, unless it denies; an allow that
    does not lift the tool's own word is heard together with that word.
    """
    agent = _format_lines(rights.agent, "parent" if depth else "agent", depth, request, target)
    session = _format_lines(
        rights.session, "parent" if depth else "session", depth, request, target
    )
    is_denied = any(line.speaks and line.action == "deny" for line in agent)
    if any(line.speaks for line in session) and not is_denied:
        agent = [msgspec.structs.replace(line, speaks=False) for line in agent]
    lines = agent + session
    heard = [line for line in session if line.speaks] or [line for line in agent if line.speaks]
    last = min(heard, key=lambda line: STRICTNESS[line.action], default=None)
    is_settled = last is not None and (
        last.action != "allow" or (last.rule is not None and lifts(last.rule, request))
    )
    if not is_settled:
        word = decide_unruled(rights, request, is_given, is_matched=last is not None)
        if word is not None:
            lines.append(
                RuleLine(source="default", level=depth, target=target, action=word, speaks=True)
            )
    return lines


def _format_lines(
    rules: RuleSet, source: Source, level: int, request: CallRequest, target: str
) -> list[RuleLine]:
    lines: list[RuleLine] = []
    for one in _flatten(rules):
        found = [
            RuleLine(
                source=source,
                level=level,
                target=target,
                action=choose_effective_rule(rule, request.target_kind).action,
                rule=rule,
                is_match=does_rule_match(rule, request, target, one.rules),
            )
            for rule in one.rules
        ]
        last = max((place for place, line in enumerate(found) if line.is_match), default=-1)
        if last >= 0 and (found[last].action == "deny" or not one.is_filter):
            found[last] = msgspec.structs.replace(found[last], speaks=True)
        lines += found
    return lines


def _flatten(rules: RuleSet) -> list[RuleSet]:
    return [rules, *(inner for other in rules.also for inner in _flatten(other))]
