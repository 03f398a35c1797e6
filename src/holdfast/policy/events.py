"""The facts of approvals.

A request is written by the caller that holds the session, an answer by any caller, and the use
again by the holder, together with what it allowed. Nothing of an approval is taken along by a
fork: a consent is given for one call of one session.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.canonical import JsonObject
from holdfast.journal import Payload, payload
from holdfast.policy.decision import Decision
from holdfast.sessions import PermissionRule


@payload("approval.requested", is_inherited=False, is_synced=True, has_content=True)
class ApprovalRequested(Payload, frozen=True, kw_only=True):
    """A call needs a caller's consent; `seal` binds the request to exactly this call."""

    approval_id: str
    message_id: str
    call_id: str
    tool: str
    permission: str
    agent_path: str
    seal: str
    decision: Decision
    expires_at: float
    required: int = 1
    targets: tuple[str, ...] = ()
    arguments: JsonObject = msgspec.field(default_factory=dict)
    preview: str = ""
    rules: tuple[PermissionRule, ...] = ()
    """What `always` would write; empty when no rule can be as narrow as this call."""

    def redacted(self) -> ApprovalRequested:
        """Keep which call and its seal; drop arguments, targets, preview and rules."""
        bare = msgspec.structs.replace(self.decision, because=())
        return msgspec.structs.replace(
            self, decision=bare, targets=(), arguments={}, preview="", rules=()
        )


@payload("approval.answered", is_open=True, is_inherited=False, is_synced=True, has_content=True)
class ApprovalAnswered(Payload, frozen=True, kw_only=True):
    """An approver consented to a call, as it was asked or with other arguments, or refused it.

    `seal` says what exactly was consented to.
    """

    approval_id: str
    verdict: Literal["allow", "deny"]
    by: str
    seal: str
    reason: str = ""
    is_edited: bool = False
    arguments: JsonObject | None = None
    rules: tuple[PermissionRule, ...] = ()
    """Rules of the session that were written with this answer."""

    def redacted(self) -> ApprovalAnswered:
        """Keep who said what; drop the reason, the arguments and the rules."""
        return msgspec.structs.replace(self, reason="", arguments=None, rules=())


@payload("approval.used", is_inherited=False, is_synced=True)
class ApprovalUsed(Payload, frozen=True, kw_only=True):
    """An answer had its effect; stored together with the call's start or its refusal."""

    approval_id: str
    call_id: str
    seal: str
