"""The decisions that the journal holds, ready to be judged again."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.journal import Event, Journal
from holdfast.policy import ApprovalRequested, CallRequest, RecordedCall, record
from holdfast.tools import PermissionRefused, ToolStarted, builtin_tools

_PAGE = 1_000
_KINDS = frozenset({ApprovalRequested.kind, PermissionRefused.kind, ToolStarted.kind})


async def read_recorded_calls(
    journal: Journal, *, session_id: str = "", limit: int = 100_000
) -> list[RecordedCall]:
    """Return what was asked, refused and started, oldest first, each call once.

    A call that was asked about counts as asked, whatever the answer. Calls that only read
    and needed no consent leave no such record.
    """
    kinds_of_targets = {tool.name: tool.target_kind for tool in builtin_tools()}
    found: dict[tuple[str, str], RecordedCall] = {}
    after = 0
    while len(found) < limit:
        page = await journal.store.feed(after=after, limit=_PAGE)
        if not page:
            break
        after = page[-1].seq
        for event in page:
            if event.kind in _KINDS and session_id in ("", event.session_id):
                _add(found, event, kinds_of_targets)
    return list(found.values())[:limit]


def _add(
    found: dict[tuple[str, str], RecordedCall], event: Event, kinds_of_targets: Mapping[str, str]
) -> None:
    if event.is_redacted:
        return
    fact = event.decode()
    agent = event.agent_path
    if isinstance(fact, ApprovalRequested | PermissionRefused):
        request = CallRequest(
            permission=fact.permission,
            targets=fact.targets,
            target_kind=kinds_of_targets.get(fact.tool, "text"),
        )
        found.setdefault(
            (event.session_id, f"{fact.call_id} {fact.permission}"),
            record(
                request,
                fact.decision,
                agent=agent,
                session_id=event.session_id,
                call_id=fact.call_id,
            ),
        )
    elif isinstance(fact, ToolStarted):
        tool = fact.intent.tool
        key = (event.session_id, f"{fact.intent.call_id} {tool}")
        if key not in found:
            found[key] = RecordedCall(
                request=CallRequest(
                    permission=tool,
                    targets=fact.targets,
                    target_kind=kinds_of_targets.get(tool, "text"),
                ),
                action="allow",
                agent=agent,
                session_id=event.session_id,
                call_id=fact.intent.call_id,
                policy_version=fact.policy_version,
            )
