"""What an approval is worth follows from its events."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.journal import Event, Journal, MemoryStore, Payload, encode_payload
from holdfast.policy import CallRequest, decide
from holdfast.policy.approvals import (
    APPROVALS,
    Approval,
    ApprovalBook,
    NoApprovals,
    derive_rules,
    seal,
    seal_approval,
)
from holdfast.policy.events import ApprovalAnswered, ApprovalRequested, ApprovalUsed
from holdfast.sessions import PermissionRule

NOW = 1_000.0
USED = ApprovalUsed(approval_id="apr", call_id="call", seal="")
BASE = {
    "tool": "delete",
    "arguments": {"path": "a"},
    "agent_path": "build",
    "permission": "delete",
    "policy_version": "1",
}


def asked(**changes: object) -> ApprovalRequested:
    fact = ApprovalRequested(
        approval_id="apr",
        message_id="msg",
        call_id="call",
        tool="delete",
        permission="delete",
        agent_path="build",
        seal=seal(**BASE),  # type: ignore[arg-type]
        decision=decide(CallRequest(permission="delete"), policy_version="1"),
        expires_at=NOW + 60,
        arguments={"path": "a"},
    )
    return msgspec.structs.replace(fact, **changes)


def said(by: str = "ann", **changes: object) -> ApprovalAnswered:
    fact = ApprovalAnswered(approval_id="apr", verdict="allow", by=by, seal=asked().seal)
    return msgspec.structs.replace(fact, **changes)


def event_of(fact: Payload, number: int, time: float) -> Event:
    return Event(
        seq=number,
        session_id="s",
        session_seq=number,
        run_id="run",
        agent_path="build",
        kind=fact.kind,
        version=fact.schema_version,
        time=time,
        correlation_id="",
        causation_id="",
        epoch=1,
        payload_digest="",
        hash="",
        payload=encode_payload(fact),
    )


def fold(*facts: Payload, pause_s: float = 1) -> Approval | None:
    """Fold facts that come one after the other into an approval."""
    row: Approval | None = None
    for number, fact in enumerate(facts):
        event = event_of(fact, number + 1, NOW + number * pause_s)
        assert APPROVALS.key(event, fact) == "apr"
        row = APPROVALS.apply(row, event, event.decode())
    return row


def status(*facts: Payload, pause_s: float = 1) -> str:
    row = fold(*facts, pause_s=pause_s)
    assert row is not None
    return row.status


@pytest.mark.parametrize("field", sorted(BASE))
def test_seal_changes_with_everything_that_it_binds(field: str) -> None:
    other = {"path": "b"} if field == "arguments" else "other"
    assert seal(**BASE) == seal(**BASE)  # type: ignore[arg-type]
    assert seal(**{**BASE, field: other}) != seal(**BASE)  # type: ignore[arg-type]


def test_first_decisive_answer_holds() -> None:
    assert status(asked()) == "open"
    assert status(asked(), said()) == "approved"
    assert status(asked(), said(verdict="deny"), said("bob")) == "denied"
    assert status(asked(), said(), said("bob", verdict="deny")) == "approved"
    assert status(asked(), said(), USED) == "used"
    assert status(asked(), said(verdict="deny"), USED) == "denied"


@pytest.mark.parametrize(
    "answer",
    [
        said(" "),
        said(seal="0" * 64),
        said(is_edited=True, arguments={"path": "b"}),
        said(is_edited=True, arguments={"path": "b"}, seal="0" * 64),
    ],
)
def test_answer_without_a_name_or_with_a_wrong_seal_has_no_weight(answer: ApprovalAnswered) -> None:
    assert status(asked(), answer) == "open"


def test_answer_after_the_end_has_no_weight() -> None:
    assert status(asked(), said(), pause_s=60) == "open"
    assert status(asked(), said(), pause_s=59) == "approved"


def test_same_person_counts_once_and_edits_count_by_what_they_say() -> None:
    row = fold(asked(required=2))
    assert row is not None
    edit = {
        "is_edited": True,
        "arguments": {"path": "b"},
        "seal": seal_approval(row, {"path": "b"}),
    }
    two = asked(required=2)
    assert status(two, said("ann"), said("ANN ")) == "open"
    assert status(two, said("ann"), said("bob")) == "approved"
    assert status(two, said("ann", **edit), said("bob")) == "open"
    assert status(two, said("ann", **edit), said("bob"), said("cleo", **edit)) == "approved"
    assert status(two, said("ann"), said("bob", verdict="deny")) == "denied"


def test_answer_before_its_request_is_forgotten_and_a_request_is_made_once() -> None:
    assert fold(said()) is None
    assert fold(USED) is None
    row = fold(asked(), asked(tool="other"))
    assert row is not None and row.tool == "delete"


def test_redacted_facts_keep_their_meaning() -> None:
    row = fold(asked())
    assert row is not None
    sealed = seal_approval(row, {"path": "b"})
    edited = said(is_edited=True, arguments={"path": "b"}, seal=sealed, reason="secret")
    bare = [asked(preview="secret").redacted(), edited.redacted(), USED]
    assert status(*bare) == "used"
    assert all(b"secret" not in encode_payload(fact) for fact in bare)
    assert asked().redacted().arguments == {}


def test_unused_approval_expires_and_a_used_one_stays() -> None:
    row = fold(asked(), said())
    assert row is not None
    assert (row.find_status_at(NOW), row.find_status_at(NOW + 60)) == ("approved", "expired")
    used = fold(asked(), said(), USED)
    assert used is not None and used.find_status_at(NOW + 600) == "used"


@pytest.mark.parametrize(
    ("kind", "targets", "patterns"),
    [
        ("none", ("*",), ["*"]),
        ("text", ("a", "a"), ["a"]),
        ("command", ("git push",), ["git push"]),
        ("command", ("rm *",), []),
        ("command", ("",), []),
        ("path", ("src/a.py", "b.py"), ["src/a.py", "b.py"]),
        ("path", ("a[0].txt",), []),
        ("path", ("/etc/passwd",), ["/etc/passwd"]),
    ],
)
def test_always_writes_rules_for_exactly_the_targets_or_none(
    kind: str, targets: tuple[str, ...], patterns: list[str]
) -> None:
    request = CallRequest(permission="p", targets=targets, target_kind=kind)
    assert [rule.pattern for rule in derive_rules(request)] == patterns
    assert all(
        rule == PermissionRule(permission="p", pattern=rule.pattern, action="allow")
        for rule in derive_rules(request)
    )


async def test_book_of_an_empty_journal_knows_nothing() -> None:
    async with Journal(MemoryStore(projections=(APPROVALS,))) as journal:
        book = ApprovalBook(journal, "s")
        assert await book.find("msg", "call", "delete") is None
        row = fold(asked())
        assert row is not None
        assert await book.answer(row) is None
        nothing = NoApprovals()
        assert await nothing.find("msg", "call", "delete") is None
        assert await nothing.answer(row) is None
