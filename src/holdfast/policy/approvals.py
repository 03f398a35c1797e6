"""Approvals: a person's consent to one call, sealed, of limited age, used once.

The seal is a digest of the tool, the final arguments, the agent's path, the permission and
the version of the policy. Whatever changes one of them makes the consent worthless: the call
is asked for again. What an approval is worth follows from its events alone, so that every
process comes to the same verdict.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

import msgspec

from holdfast.canonical import JsonObject, digest
from holdfast.journal import Condition, Event, Journal, Payload, Projection, RowQuery
from holdfast.policy.decision import CallRequest, RuleSet, decide
from holdfast.policy.events import ApprovalAnswered, ApprovalRequested, ApprovalUsed
from holdfast.policy.people import is_same_person
from holdfast.sessions import PermissionRule

ApprovalStatus: TypeAlias = Literal["open", "approved", "denied", "used", "expired"]
OnAsk: TypeAlias = Literal["deny", "park"]
ON_ASK: tuple[OnAsk, ...] = ("deny", "park")
"""What becomes of a call that asks while no approver is there: refuse it, or let the run wait."""

DAY_S = 86_400.0
_WILD = frozenset("*?[]{}\\")


class ApprovalTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What happens when no approver answers, how long a consent is good for, how many it takes."""

    on_ask: OnAsk = "deny"
    expires_after_s: float = 7 * DAY_S
    required: int = 1


class Vote(msgspec.Struct, frozen=True, kw_only=True):
    """One person's answer; its text and arguments stand in event `session_seq`."""

    by: str
    verdict: Literal["allow", "deny"]
    seal: str
    session_seq: int
    time: float


class Approval(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An approval as of its last event; what is asked stands in event `requested_at`."""

    id: str
    session_id: str
    run_id: str
    message_id: str
    call_id: str
    tool: str
    permission: str
    agent_path: str
    policy_version: str
    seal: str
    status: ApprovalStatus
    required: int
    time: float
    expires_at: float
    requested_at: int
    votes: tuple[Vote, ...] = ()
    is_used: bool = False

    def find_status_at(self, now: float) -> ApprovalStatus:
        """Return the status; what was not used in time has expired."""
        return "expired" if not self.is_used and now >= self.expires_at else self.status

    @property
    def decisive(self) -> Vote | None:
        """The answer that settled it: the last one, since later ones do not count."""
        return self.votes[-1] if self.votes and self.status != "open" else None


def seal(
    *, tool: str, arguments: JsonObject, agent_path: str, permission: str, policy_version: str
) -> str:
    """Return the digest that binds a consent to one exact call."""
    return digest(
        {
            "agent_path": agent_path,
            "arguments": arguments,
            "permission": permission,
            "policy_version": policy_version,
            "tool": tool,
        }
    )


def derive_rules(request: CallRequest) -> tuple[PermissionRule, ...]:
    """Return the session rules that allow exactly what a call touches, and nothing wider.

    Empty when a target holds a wildcard, since the rule would cover more than the person
    saw, and when no pattern can name the target.
    """
    if request.target_kind != "none" and any(_WILD & set(t) or not t for t in request.targets):
        return ()
    rules = tuple(
        PermissionRule(permission=request.permission, pattern=target, action="allow")
        for target in dict.fromkeys(request.targets)
    )
    asking = msgspec.structs.replace(request, default="ask", is_given=False)
    return rules if decide(asking, session=RuleSet(rules=rules)).action == "allow" else ()


class ApprovalsTable(Projection[Approval]):
    """One row per approval."""

    name = "approvals"
    version = 2
    row_type = Approval
    columns = (
        "id",
        "session_id",
        "run_id",
        "message_id",
        "call_id",
        "status",
        "time",
        "expires_at",
    )
    indexes = (("id",), ("status", "time"))
    kinds = frozenset({ApprovalRequested.kind, ApprovalAnswered.kind, ApprovalUsed.kind})

    def key(self, event: Event, payload: Payload) -> str:
        """An approval has one row, under its id."""
        assert isinstance(payload, ApprovalRequested | ApprovalAnswered | ApprovalUsed)
        return payload.approval_id

    def apply(self, row: Approval | None, event: Event, payload: Payload) -> Approval | None:
        """Fold one fact into the approval."""
        if isinstance(payload, ApprovalRequested):
            return row or _request(event, payload)
        if row is None:
            return None
        if isinstance(payload, ApprovalAnswered):
            return _make_answered(row, event, payload)
        status: ApprovalStatus = row.status if row.status == "denied" else "used"
        return msgspec.structs.replace(row, status=status, is_used=True)


APPROVALS = ApprovalsTable()


def _request(event: Event, asked: ApprovalRequested) -> Approval:
    return Approval(
        id=asked.approval_id,
        session_id=event.session_id,
        run_id=event.run_id,
        message_id=asked.message_id,
        call_id=asked.call_id,
        tool=asked.tool,
        permission=asked.permission,
        agent_path=asked.agent_path,
        policy_version=asked.decision.policy_version,
        seal=asked.seal,
        status="open",
        required=asked.required,
        time=event.time,
        expires_at=asked.expires_at,
        requested_at=event.session_seq,
    )


def _make_answered(row: Approval, event: Event, answer: ApprovalAnswered) -> Approval:
    """Count an answer; one that is late, repeated or made for another call has no weight."""
    is_late = row.status != "open" or event.time >= row.expires_at
    has_voted = any(is_same_person(vote.by, answer.by) for vote in row.votes)
    if is_late or has_voted or not answer.by.strip() or not _fits(row, answer):
        return row
    vote = Vote(
        by=answer.by,
        verdict=answer.verdict,
        seal=answer.seal,
        session_seq=event.session_seq,
        time=event.time,
    )
    status: ApprovalStatus = "open"
    if settles(row, answer):
        status = "denied" if answer.verdict == "deny" else "approved"
    return msgspec.structs.replace(row, votes=(*row.votes, vote), status=status)


def settles(row: Approval, answer: ApprovalAnswered) -> bool:
    """Say whether an answer that counts is the last one needed."""
    agreed = sum(vote.seal == answer.seal for vote in row.votes) + 1
    return answer.verdict == "deny" or agreed >= row.required


def _fits(row: Approval, answer: ApprovalAnswered) -> bool:
    """Say whether an answer is sealed to the call that was asked for, or to its own edit."""
    if not answer.is_edited:
        return answer.seal == row.seal
    if answer.arguments is None:
        return True  # redacted since; the seal still says what it was
    return answer.seal == seal_approval(row, answer.arguments)


def seal_approval(row: Approval, arguments: JsonObject) -> str:
    """Return the seal that other arguments of the same call would have."""
    return seal(
        tool=row.tool,
        arguments=arguments,
        agent_path=row.agent_path,
        permission=row.permission,
        policy_version=row.policy_version,
    )


class Approvals(Protocol):
    """Where approvals of one session are looked up."""

    async def find(self, message_id: str, call_id: str, permission: str) -> Approval | None:
        """Return the newest approval of a call, `None` when it was never asked for."""
        ...

    async def answer(self, approval: Approval) -> ApprovalAnswered | None:
        """Return the answer that settled an approval."""
        ...


class ApprovalBook:
    """The approvals of one session, read from the journal."""

    def __init__(self, journal: Journal, session_id: str) -> None:
        """Read this session's approvals."""
        self._journal = journal
        self._session_id = session_id

    async def find(self, message_id: str, call_id: str, permission: str) -> Approval | None:
        """Return the newest approval of a call, `None` when it was never asked for."""
        query = RowQuery(
            projection=APPROVALS,
            session_id=self._session_id,
            where=(Condition("message_id", "=", message_id), Condition("call_id", "=", call_id)),
            limit=1000,
        )
        rows = [keyed.row for keyed in await self._journal.rows(query)]
        mine = [row for row in rows if row.permission == permission]
        return max(mine, key=lambda row: row.requested_at, default=None)

    async def answer(self, approval: Approval) -> ApprovalAnswered | None:
        """Return the answer that settled an approval."""
        vote = approval.decisive
        if vote is None:
            return None
        [event] = await self._journal.store.read(approval.session_id, seqs=[vote.session_seq])
        return event.expect(ApprovalAnswered)


class NoApprovals:
    """Nothing was ever asked: for calls outside of any session."""

    async def find(self, message_id: str, call_id: str, permission: str) -> Approval | None:
        """Return `None`."""
        return None

    async def answer(self, approval: Approval) -> ApprovalAnswered | None:
        """Return `None`."""
        return None


__all__ = [
    "APPROVALS",
    "ON_ASK",
    "Approval",
    "ApprovalBook",
    "ApprovalStatus",
    "ApprovalTerms",
    "Approvals",
    "ApprovalsTable",
    "NoApprovals",
    "OnAsk",
    "Vote",
    "derive_rules",
    "seal",
    "seal_approval",
]
