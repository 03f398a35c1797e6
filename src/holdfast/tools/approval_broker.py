"""Consent: a call that asks is put before a person, and goes on only with a sealed yes.

An answer is found in one of two ways. An approver attends and answers while the run waits, or
the request stands in the journal, the run parks, and an answer arrives from anywhere. Either
way the same facts are kept, and the use of an answer is stored together with what it allowed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from holdfast.canonical import JsonObject
from holdfast.clock import Clock
from holdfast.ids import make_id
from holdfast.journal import Payload
from holdfast.policy import (
    Approval,
    ApprovalAnswered,
    ApprovalRequested,
    Approvals,
    ApprovalUsed,
    Decision,
    is_same_person,
    seal,
)
from holdfast.sessions import PermissionRule, SessionRulesAdded

if TYPE_CHECKING:
    from holdfast.tools.gate import Gate


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a person is asked to consent to: this call, with exactly these arguments.

    `preview` shows what would change, if the tool can say; `rules` is what `always` writes;
    `required` says how many different people have to consent.
    """

    call_id: str
    tool: str
    permission: str
    targets: tuple[str, ...]
    arguments: JsonObject
    agent_path: str
    decision: Decision
    message_id: str = ""
    seal: str = ""
    preview: str = ""
    rules: tuple[PermissionRule, ...] = ()
    required: int = 1


class ApprovalAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the person said.

    `stop` refuses the call and ends the run. `arguments` replace those of the call; they are
    checked and judged anew. `rules` are added to the session's.
    """

    verdict: Literal["allow", "deny", "stop"]
    by: str
    reason: str = ""
    arguments: JsonObject | None = None
    rules: tuple[PermissionRule, ...] = ()


class Approver(Protocol):
    """Can consent to a call while the run goes on."""

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Return the answer, or `None` when no approver is there after all."""
        ...


class NoApprover:
    """No approver is there to ask."""

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Return `None`."""
        return None


class AutoConfirm:
    """Says yes to everything that may be asked for; never lifts a deny."""

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Consent."""
        return ApprovalAnswer(verdict="allow", by="auto-confirm")


class ConsentGranted(msgspec.Struct, frozen=True, kw_only=True):
    """An approver consented to these arguments; `facts` belong into the call's first append."""

    facts: tuple[Payload, ...]
    by: str
    arguments: JsonObject
    is_recorded: bool = False
    """Whether the arguments came by way of the journal, which keeps no secrets."""


class ConsentRefused(msgspec.Struct, frozen=True, kw_only=True):
    """No approver consented; `facts` belong into the append that refuses the call."""

    facts: tuple[Payload, ...]
    because: str


class ConsentPending(msgspec.Struct, frozen=True, kw_only=True):
    """The request is kept and an approver has to answer it."""

    approval_id: str


Consent = ConsentGranted | ConsentRefused | ConsentPending


class ApprovalBroker(msgspec.Struct, eq=False):
    """Finds consent for the calls of one run, one call at a time."""

    gate: Gate
    approvals: Approvals
    append: Callable[..., Awaitable[None]]
    """Keeps requests."""
    clock: Clock
    turn: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    """Held while an approver is asked: a person reads one request at a time."""
    stopped_by: str = ""
    """Who ended the run at a prompt; no approver is asked any more."""

    async def obtain(self, request: ApprovalRequest) -> Consent:
        """Return the approver's answer to a request, or that it has to be waited for.

        An earlier answer counts if its seal fits this very call, it is not too old, and it
        was never used; otherwise the call is asked for again.
        """
        if self.stopped_by:
            return ConsentRefused(facts=(), because=f"{self.stopped_by} stopped the run")
        known = await self._find(request)
        if known is not None and known.status != "open":
            return await self._settle(request, known)
        try:
            answer = await self.gate.approver.approve(request)
        except Exception as error:  # noqa: BLE001 - an approver that fails to answer has not consented
            return await self._wake_nothing(
                request, known, f"asking failed ({type(error).__name__})"
            )
        if answer is None:
            return await self._wake_nothing(request, known, "no approver is here to ask")
        if known is not None:
            # Another process may have answered while this person was reading.
            now = await self._find(request)
            if now is not None and now.status != "open":
                return await self._settle(request, now)
        return await self._make_answered(request, known, answer)

    async def _find(self, request: ApprovalRequest) -> Approval | None:
        """Return an approval of this very call that can still be used or answered."""
        found = await self.approvals.find(request.message_id, request.call_id, request.permission)
        if found is None or found.is_used or found.seal != request.seal:
            return None
        return None if found.find_status_at(self.clock.now()) == "expired" else found

    async def _settle(self, request: ApprovalRequest, approval: Approval) -> Consent:
        """Use an answer that came by way of the journal."""
        answer = await self.approvals.answer(approval)
        assert answer is not None
        used = ApprovalUsed(approval_id=approval.id, call_id=approval.call_id, seal=answer.seal)
        if answer.verdict == "deny":
            return ConsentRefused(facts=(used,), because=_explain_refusal(answer.by, answer.reason))
        if not answer.is_edited:
            return ConsentGranted(facts=(used,), by=answer.by, arguments=request.arguments)
        if answer.arguments is None:
            return ConsentRefused(facts=(used,), because="the arguments that were put in are gone")
        return ConsentGranted(
            facts=(used,), by=answer.by, arguments=answer.arguments, is_recorded=True
        )

    async def _wake_nothing(
        self, request: ApprovalRequest, known: Approval | None, because: str
    ) -> Consent:
        if self.gate.terms.on_ask == "deny":
            return ConsentRefused(facts=(), because=because)
        if known is not None:
            return ConsentPending(approval_id=known.id)
        asked = self._request(request)
        await self.append(asked)
        return ConsentPending(approval_id=asked.approval_id)

    async def _make_answered(
        self, request: ApprovalRequest, known: Approval | None, answer: ApprovalAnswer
    ) -> Consent:
        """Keep the answer of an approver who attends, and see whether it is enough."""
        asked = self._request(request) if known is None else None
        approval_id = asked.approval_id if asked is not None else known.id if known else ""
        arguments = request.arguments if answer.arguments is None else answer.arguments
        answered = ApprovalAnswered(
            approval_id=approval_id,
            verdict="allow" if answer.verdict == "allow" else "deny",
            by=answer.by,
            seal=self._seal(request, arguments),
            reason=answer.reason,
            is_edited=answer.arguments is not None,
            arguments=answer.arguments,
            rules=answer.rules,
        )
        facts: list[Payload] = [asked] if asked is not None else []
        facts.append(answered)
        used = ApprovalUsed(approval_id=approval_id, call_id=request.call_id, seal=answered.seal)
        if answered.verdict == "deny":
            if answer.verdict == "stop":
                self.stopped_by = answer.by or "somebody"
            return ConsentRefused(
                facts=(*facts, used), because=_explain_refusal(answer.by, answer.reason)
            )
        if self._is_enough(known, answered):
            if answer.rules and self.gate.terms.required == 1:
                self.gate.add_session_rules(answer.rules)
                facts.append(SessionRulesAdded(rules=answer.rules, by=answer.by))
            return ConsentGranted(facts=(*facts, used), by=answer.by, arguments=arguments)
        if self.gate.terms.on_ask == "park":
            await self.append(*facts)
            return ConsentPending(approval_id=approval_id)
        because = f"it takes {self.gate.terms.required} people, and only {answer.by} is here"
        return ConsentRefused(facts=tuple(facts), because=because)

    def _is_enough(self, known: Approval | None, answered: ApprovalAnswered) -> bool:
        votes = known.votes if known is not None else ()
        required = known.required if known is not None else self.gate.terms.required
        if any(is_same_person(vote.by, answered.by) for vote in votes):
            return False
        return 1 + sum(vote.seal == answered.seal for vote in votes) >= required

    def _request(self, request: ApprovalRequest) -> ApprovalRequested:
        return ApprovalRequested(
            approval_id=make_id("apr"),
            message_id=request.message_id,
            call_id=request.call_id,
            tool=request.tool,
            permission=request.permission,
            agent_path=request.agent_path,
            seal=request.seal,
            decision=request.decision,
            expires_at=self.clock.now() + self.gate.terms.expires_after_s,
            required=self.gate.terms.required,
            targets=request.targets,
            arguments=request.arguments,
            preview=request.preview,
            rules=request.rules,
        )

    def _seal(self, request: ApprovalRequest, arguments: JsonObject) -> str:
        return seal(
            tool=request.tool,
            arguments=arguments,
            agent_path=request.agent_path,
            permission=request.permission,
            policy_version=request.decision.policy_version,
        )


def _explain_refusal(by: str, reason: str) -> str:
    return f"{by} said no" + (f": {reason}" if reason else "")


def seal_request(request: ApprovalRequest) -> ApprovalRequest:
    """Return the request with the seal of what it says."""
    digest = seal(
        tool=request.tool,
        arguments=request.arguments,
        agent_path=request.agent_path,
        permission=request.permission,
        policy_version=request.decision.policy_version,
    )
    return msgspec.structs.replace(request, seal=digest)
