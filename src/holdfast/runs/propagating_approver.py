"""Consent below others: what a person allows for always, they allow for the whole line.

A call of a child is asked about because somebody in the line has to ask. A rule in the
child's session alone would not help: the parent would still have to ask. So the same rule is
added to the sessions of all agents above.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.journal import Journal
from holdfast.runs.lineage import Lineage
from holdfast.sessions import PermissionRule
from holdfast.sessions.events import SessionRulesAdded
from holdfast.tools.gate import ApprovalAnswer, ApprovalRequest, Approver, NobodyApproves


async def add_rules_above(
    journal: Journal, lineage: Lineage, rules: Sequence[PermissionRule], by: str
) -> None:
    """Add rules to the sessions above; one that is gone is left out."""
    for session_id in dict.fromkeys(lineage.line):
        if session_id and await journal.head(session_id) is not None:
            await journal.append(session_id, [SessionRulesAdded(rules=tuple(rules), by=by)])


class PropagatingApprover:
    """An approver whose rules hold for the agents above, too."""

    def __init__(self, inner: Approver, journal: Journal, lineage: Lineage) -> None:
        """Ask this approver on behalf of a child."""
        self.inner = inner
        self._journal = journal
        self._lineage = lineage

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Return the answer; its rules are by then in the sessions above."""
        answer = await self.inner.approve(request)
        if answer is not None and answer.rules and answer.verdict == "allow":
            if request.required == 1:
                await add_rules_above(self._journal, self._lineage, answer.rules, answer.by)
        return answer


def unwrapped(approver: Approver) -> Approver | None:
    """Return who really answers, to be asked by others; `None` if nobody does."""
    inner = approver.inner if isinstance(approver, PropagatingApprover) else approver
    return None if isinstance(inner, NobodyApproves) else inner


__all__ = ["PropagatingApprover", "add_rules_above", "unwrapped"]
