"""Judge recorded calls again: which decisions would another policy change?

A recorded decision holds what every source said. The ceiling's part is asked anew; what
parent, agent, session and default said stays as it was, because it is a fact of that run.
Under the policy of the time nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from holdfast.policy.decision import (
    STRICTNESS,
    Action,
    CallRequest,
    Decision,
    RuleSet,
    choose_strictest,
)
from holdfast.sessions import PermissionRule


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that was made: the request, what came out, and what the others said.

    `others` is the strictest of what parent, agent, session and default said.
    """

    request: CallRequest
    action: Action
    others: Action = "allow"
    agent: str = ""
    session_id: str = ""
    call_id: str = ""
    policy_version: str = ""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A call that would be judged differently, and the rule that makes the difference."""

    call: RecordedCall
    before: Action
    after: Action
    rule: PermissionRule | None = None

    @property
    def is_looser(self) -> bool:
        """Whether the call would get further than it did."""
        return STRICTNESS[self.after] > STRICTNESS[self.before]


CeilingOf = Callable[[str], RuleSet]
"""The ceiling for an agent, by its name."""


def record(
    request: CallRequest,
    decision: Decision,
    *,
    agent: str = "",
    session_id: str = "",
    call_id: str = "",
) -> RecordedCall:
    """Return what has to be known to judge a decision again."""
    others = [reason for reason in decision.because if reason.source != "ceiling"]
    return RecordedCall(
        request=request,
        action=decision.action,
        others=choose_strictest(others) if others else request.default,
        agent=agent,
        session_id=session_id,
        call_id=call_id,
        policy_version=decision.policy_version,
    )


def judge_again(call: RecordedCall, ceiling: RuleSet) -> tuple[Action, PermissionRule | None]:
    """Say what a ceiling would make of a recorded call, and by which rule."""
    action, rule = call.others, None
    for target in call.request.targets or ("*",):
        found = ceiling.find_last_match(call.request, target)
        if found is not None and STRICTNESS[found.action] < STRICTNESS[action]:
            action, rule = found.action, found
    return action, rule


def replay(calls: Iterable[RecordedCall], ceiling_of: CeilingOf) -> Iterator[Change]:
    """Yield the calls whose decision would change under other ceilings."""
    for call in calls:
        action, rule = judge_again(call, ceiling_of(call.agent))
        if action != call.action:
            yield Change(call=call, before=call.action, after=action, rule=rule)


def compare(calls: Iterable[RecordedCall], old: CeilingOf, new: CeilingOf) -> Iterator[Change]:
    """Yield the calls on which two policies disagree, whatever was decided at the time."""
    for call in calls:
        before, _ = judge_again(call, old(call.agent))
        after, rule = judge_again(call, new(call.agent))
        if before != after:
            yield Change(call=call, before=before, after=after, rule=rule)
