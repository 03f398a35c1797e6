"""What may be performed again where a crash left open whether it was done.

An answer that was lost with a process is made again here: by operations that leave the same
whether they are performed once or twice, and by answers of people, which are looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from holdfast.errors import ApprovalExpired, NotFound
from holdfast.operations import approvals
from holdfast.operations.caller import Caller, resolve_actor
from holdfast.operations.operation import Operation
from holdfast.runtime import Runtime

_ANSWERS: Final = frozenset(
    {"approvals.approve", "approvals.deny", "approvals.answer", "approvals.decide_outcome"}
)
REPEATABLE: Final = _ANSWERS | {
    "artifacts.collect",
    "artifacts.grant",
    "artifacts.rekey",
    "artifacts.revoke",
    "artifacts.verify",
    "audit.verify",
    "audit.verify_trail",
    "hooks.trust",
    "mcp.accept",
    "mcp.grant",
    "mcp.log_out",
    "mcp.trust",
    "memory.forget",
    "memory.pin",
    "memory.reindex",
    "memory.relevant",
    "memory.search",
    "memory.summarize",
    "policies.explain",
    "policies.reload",
    "policies.replay",
    "policies.validate",
    "runs.cancel",
    "runs.cancel_children",
    "skills.trust",
    "state.forget",
    "state.get",
    "state.sweep",
    "storage.clean_up",
    "storage.mend",
    "storage.rebuild",
    "tenants.erase_user",
    "tenants.resume",
    "tenants.suspend",
    "webhooks.deliver",
}
"""Operations of which a second time does no harm. Those that create something are not among them,
except for runs, whose ids follow from their keys."""


async def perform_again(
    operation: Operation[..., Any], runtime: Runtime, caller: Caller, values: dict[str, Any]
) -> Any:  # noqa: ANN401 - the answer of the operation
    """Perform an operation of `REPEATABLE` that may have been performed before.

    An answer of the same caller that is there already is returned as it was given, not counted
    twice.
    """
    try:
        return await operation.perform(runtime, caller, **values)
    except (ApprovalExpired, NotFound):
        find = _FIND.get(operation.name)
        if find is None:
            raise
        # Rights were checked by then, by the operation itself.
        found = await find(runtime, resolve_actor(caller, values.get("by", "")), values)
        if found is None:
            raise
        return found


async def _find_vote(runtime: Runtime, by: str, values: dict[str, Any]) -> object | None:
    """Return the approval, if this person has answered it so."""
    details = await runtime.approvals.get(values["approval_id"])
    for one in details.answers:
        is_same = one.reason == values.get("reason", "") and bool(one.rules) == bool(
            values.get("always", False)
        )
        if one.by == by and is_same and one.arguments == values.get("arguments"):
            return details.approval if one.verdict == values["verdict"] else None
    return None


async def _find_consent(runtime: Runtime, by: str, values: dict[str, Any]) -> object | None:
    return await _find_vote(runtime, by, {**values, "verdict": "allow"})


async def _find_refusal(runtime: Runtime, by: str, values: dict[str, Any]) -> object | None:
    return await _find_vote(runtime, by, {**values, "verdict": "deny"})


async def _find_outcome(runtime: Runtime, by: str, values: dict[str, Any]) -> object | None:
    """Return the run, if this person has said so of its call."""
    return await runtime.approvals.find_answered(
        values["session_id"], values["call_id"], by=by, said=values["verdict"]
    )


async def _find_answer(runtime: Runtime, by: str, values: dict[str, Any]) -> object | None:
    return await runtime.approvals.find_answered(
        values["session_id"], values["call_id"], by=by, said=values["answer"]
    )


_Find = Callable[[Runtime, str, dict[str, Any]], Coroutine[Any, Any, object | None]]
_FIND: Final[dict[str, _Find]] = {
    approvals.approve.name: _find_consent,
    approvals.deny.name: _find_refusal,
    approvals.answer.name: _find_answer,
    approvals.decide_outcome.name: _find_outcome,
}

__all__ = ["REPEATABLE", "perform_again"]
