"""What waits for a person: list it, look at it, answer it."""

from __future__ import annotations

from typing import Literal

from holdfast.canonical import JsonObject
from holdfast.operations.caller import Caller, resolve_actor
from holdfast.operations.operation import operation
from holdfast.policy import Approval, ApprovalStatus, ApprovalTerms, OnAsk
from holdfast.runtime import ApprovalDetails, OpenQuestion, Runtime
from holdfast.sessions import Run


@operation("approvals:read")
async def list_(
    runtime: Runtime,
    caller: Caller,
    /,
    *,
    status: ApprovalStatus | None = "open",
    session_id: str = "",
    limit: int = 100,
) -> list[Approval]:
    """Return approvals, oldest first; those that wait for an answer unless told otherwise.

    `status=None` returns all. A request of a run that has ended waits for no answer.
    """
    return await runtime.approvals.find(status=status, session_id=session_id, limit=limit)


@operation("approvals:read")
async def get(runtime: Runtime, caller: Caller, /, approval_id: str) -> ApprovalDetails:
    """Return an approval with the call that it is about.

    Raises:
        NotFound: there is none.
    """
    return await runtime.approvals.get(approval_id)


@operation("approvals:answer", also={"always": "policies:admin"})
async def approve(
    runtime: Runtime,
    caller: Caller,
    /,
    approval_id: str,
    *,
    by: str = "",
    always: bool = False,
    arguments: JsonObject | None = None,
    reason: str = "",
) -> Approval:
    """Consent to a call; its run, and those that wait for it, go on once enough people have.

    `always` also writes the rules that `approvals.get` shows (`asked.rules`) into the
    session, and into those of all agents above it, which needs the right to write rules.
    `arguments` replace those of the call:
    they are checked by the tool, judged by the rules and sealed anew.

    `by` is who consents: the owner of the state directory says it, everybody else answers
    in their own name, and giving another one is refused.

    Raises:
        NotFound: there is no such approval.
        ApprovalExpired: it is too old, answered or used already.
        ToolInputInvalid: the arguments do not fit the tool.
        UsageError: no rule would be as narrow as the call, or nobody is named.
        NotPermitted: `by` is not the caller.
    """
    return await runtime.approvals.approve(
        approval_id, by=resolve_actor(caller, by), always=always, arguments=arguments, reason=reason
    )


@operation("approvals:answer")
async def deny(
    runtime: Runtime, caller: Caller, /, approval_id: str, *, by: str = "", reason: str = ""
) -> Approval:
    """Refuse a call; the model is told the reason, and the run goes on.

    Raises:
        NotFound: there is no such approval.
        ApprovalExpired: it is too old, answered or used already.
    """
    return await runtime.approvals.deny(approval_id, by=resolve_actor(caller, by), reason=reason)


@operation("approvals:read")
async def questions(runtime: Runtime, caller: Caller, /) -> list[OpenQuestion]:
    """Return everything that waits for a person: consent first, then the oldest run."""
    return await runtime.approvals.questions()


@operation("approvals:answer")
async def decide_outcome(
    runtime: Runtime,
    caller: Caller,
    /,
    session_id: str,
    call_id: str,
    verdict: Literal["happened", "not_happened", "abort"],
    *,
    by: str = "",
    result: str = "",
) -> Run:
    """Say what became of a call whose outcome a crash left unknown; its run goes on.

    `happened` takes the result to show to the model; `not_happened` lets the call run
    again; `abort` tells the model that it was given up.

    Raises:
        NotFound: no such call waits for a verdict.
    """
    return await runtime.approvals.decide_outcome(
        session_id, call_id, verdict, by=resolve_actor(caller, by), result=result
    )


@operation("approvals:answer")
async def answer(
    runtime: Runtime,
    caller: Caller,
    /,
    session_id: str,
    call_id: str,
    answer: str,
    *,
    by: str = "",
) -> Run:
    """Answer an agent's question; its run goes on with the answer as the result.

    Raises:
        NotFound: no such call waits for an answer.
    """
    return await runtime.approvals.answer(session_id, call_id, answer, by=resolve_actor(caller, by))


@operation("approvals:read")
async def terms(runtime: Runtime, caller: Caller, /, on_ask: OnAsk = "deny") -> ApprovalTerms:
    """Return the terms of the settings, with what becomes of calls that no approver answers."""
    return runtime.runs.terms(on_ask)
