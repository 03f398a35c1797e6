"""The facts of policies; all but violations stand in the chain of the store as a whole."""

from __future__ import annotations

from typing import Literal, TypeAlias

from holdfast.journal import Payload, payload
from holdfast.policy.decision import Action, CallRequest, Decision, Source
from holdfast.policy.recorded_calls import Change


@payload("policy.loaded", is_open=True, is_inherited=False, is_of_store=True)
class PolicyLoaded(Payload, frozen=True, kw_only=True):
    """Policies came into force; `previous` is the version that they replace."""

    version: str
    directory: str
    previous: str = ""
    files: tuple[str, ...] = ()
    asked_by: str = ""


@payload("policy.rejected", is_open=True, is_inherited=False, is_of_store=True)
class PolicyRejected(Payload, frozen=True, kw_only=True):
    """Policies were wrong; those of `kept_version` stay in force."""

    directory: str
    mistakes: tuple[str, ...]
    kept_version: str = ""
    asked_by: str = ""


@payload("policy.reload_requested", is_open=True, is_inherited=False, is_of_store=True)
class PolicyReloadRequested(Payload, frozen=True, kw_only=True):
    """A caller asks every process on this store to read its policies again."""

    directory: str
    asked_by: str = ""


ViolationSource: TypeAlias = Literal["ceiling", "parent", "agent", "session", "tool", "sandbox"]


@payload("policy.violation", is_open=True, is_inherited=False)
class PolicyViolation(Payload, frozen=True, kw_only=True):
    """A call went against the rules and was refused; stands in the chain of its session.

    `source` says who refused: the operator's ceiling, the caller that started the agent, the
    agent's or the session's own rules, the tool itself (a path that leads out of the workspace, a
    host that may not be reached), or the sandbox. What a person refused is none.
    """

    permission: str
    targets: tuple[str, ...]
    because: str
    source: ViolationSource
    session_id: str = ""
    call_id: str = ""
    agent: str = ""
    policy_version: str = ""


@payload("policy.differed", is_open=True, is_inherited=False)
class PolicyDiffered(Payload, frozen=True, kw_only=True):
    """A candidate in shadow mode would have decided differently."""

    permission: str
    targets: tuple[str, ...]
    decided: Action
    candidate: Action
    because: str = ""
    agent: str = ""
    policy_version: str = ""
    candidate_version: str = ""


_RANK: dict[Source, int] = {"ceiling": 0, "parent": 1, "agent": 2, "session": 3, "default": 4}


def make_violation(
    request: CallRequest,
    decision: Decision,
    *,
    session_id: str = "",
    call_id: str = "",
    agent: str = "",
) -> PolicyViolation | None:
    """Return the fact that the rules refused a call, or `None` if they did not."""
    denies = [reason for reason in decision.because if reason.action == "deny"]
    if decision.action != "deny" or not denies:
        return None
    # Of several, the highest is named.
    source = min((reason.source for reason in denies), key=_RANK.__getitem__)
    return PolicyViolation(
        permission=request.permission,
        targets=tuple(dict.fromkeys(reason.target for reason in denies)),
        because=decision.explain(),
        source="agent" if source == "default" else source,
        session_id=session_id,
        call_id=call_id,
        agent=agent,
        policy_version=decision.policy_version,
    )


def find_difference(change: Change, *, candidate_version: str = "") -> PolicyDiffered:
    """Return the fact that a candidate disagrees."""
    rule = change.rule
    return PolicyDiffered(
        permission=change.call.request.permission,
        targets=change.call.request.targets,
        decided=change.before,
        candidate=change.after,
        because=f"{rule.permission} {rule.pattern} {rule.action}" if rule else "",
        agent=change.call.agent,
        policy_version=change.call.policy_version,
        candidate_version=candidate_version,
    )
