"""`client.approvals`."""

from __future__ import annotations

from holdfast.operations import Mode, Surface, approvals


class ApprovalNamespace(Surface[Mode]):
    """What waits for a person."""

    list = approvals.list_
    get = approvals.get
    approve = approvals.approve
    deny = approvals.deny
    questions = approvals.questions
    decide_outcome = approvals.decide_outcome
    answer = approvals.answer
    terms = approvals.terms
