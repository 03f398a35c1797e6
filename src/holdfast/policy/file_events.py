"""The facts of policy files; all stand in the chain of the store as a whole."""

from __future__ import annotations

from holdfast.journal import Payload, payload
from holdfast.policy.decision import Action, CallRequest, Decision
from holdfast.policy.replay import Change


@payload("policy.loaded", is_open=True, is_inherited=False)
class PolicyLoaded(Payload, frozen=True, kw_only=True):
    """Policies came into force; `previous` is the version that they replace."""

    version: str
    directory: str
    previous: str = ""
    files: tuple[str, ...] = ()
    asked_by: str = ""


@payload("policy.rejected", is_open=True, is_inherited=False)
class PolicyRejected(Payload, frozen=True, kw_only=True):
    """Policies were wrong; those of `kept_version` stay in force."""

    directory: str
    mistakes: tuple[str, ...]
    kept_version: str = ""
    asked_by: str = ""


@payload("policy.reload_requested", is_open=True, is_inherited=False)
class PolicyReloadRequested(Payload, frozen=True, kw_only=True):
    """Somebody asks every process on this store to read its policies again."""

    directory: str
    asked_by: str = ""


@payload("policy.violation", is_open=True, is_inherited=False)
class PolicyViolation(Payload, frozen=True, kw_only=True):
    """The operator's policy, not merely an agent's own rule, refused a call."""

    permission: str
    targets: tuple[str, ...]
    because: str
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


def violation(
    request: CallRequest,
    decision: Decision,
    *,
    session_id: str = "",
    call_id: str = "",
    agent: str = "",
) -> PolicyViolation | None:
    """Return the fact that the ceiling refused a call, or `None` if it did not."""
    ceiling = [r for r in decision.because if r.source == "ceiling" and r.action == "deny"]
    if decision.action != "deny" or not ceiling:
        return None
    return PolicyViolation(
        permission=request.permission,
        targets=tuple(reason.target for reason in ceiling),
        because=decision.explain(),
        session_id=session_id,
        call_id=call_id,
        agent=agent,
        policy_version=decision.policy_version,
    )


def difference(change: Change, *, candidate_version: str = "") -> PolicyDiffered:
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
