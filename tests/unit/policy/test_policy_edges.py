"""The corners of the room: what rarely happens must be right too."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path

import pytest

from holdfast.errors import PolicyInvalid
from holdfast.journal import SYSTEM_SESSION, Journal, MemoryStore
from holdfast.policy import (
    Budget,
    CallRequest,
    PolicyStore,
    RecordedCall,
    RuleSet,
    SharedBudget,
    compare,
    decide,
    explain,
    is_same_permission,
    load_policies,
)
from holdfast.policy.approvals import APPROVALS, Approval, ApprovalBook, Vote, seal
from holdfast.policy.budgets import Amount, Left
from holdfast.policy.commands import classify_argv
from holdfast.policy.events import ApprovalAnswered
from holdfast.policy.file_events import make_violation
from holdfast.policy.network import list_hidden_addresses
from holdfast.policy.patterns import list_fixed_words
from holdfast.policy.shared_budget import TENANTS
from holdfast.policy.yaml_file import parse_yaml
from holdfast.sessions import PermissionRule


def rules(*written: tuple[str, str, str]) -> RuleSet:
    return RuleSet(
        rules=tuple(
            PermissionRule(permission=name, pattern=pattern, action=action)  # type: ignore[arg-type]
            for name, pattern, action in written
        )
    )


def test_names_are_the_same_whatever_joins_their_words() -> None:
    assert is_same_permission("web_fetch", "Web-Fetch")
    assert not is_same_permission("web", "fetch")


def test_letters_that_no_bundle_knows_are_told() -> None:
    assert "-q" in classify_argv(("tar", "xq", "a")).because


def test_unknown_options_of_an_open_program_pass() -> None:
    assert classify_argv(("curl", "--fancy", "-Z", "x")).objections == ()


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("git status *", ("git", "status")),
        ("git stat*", ("git",)),
        ("*", ()),
        ("ls", ("ls",)),
        ("echo 'a b' *", ("echo", "a b")),
        ("echo 'a b*", ()),
        ("echo 'a", ()),
    ],
)
def test_fixed_words_stand_before_the_first_wildcard(pattern: str, words: tuple[str, ...]) -> None:
    assert list_fixed_words(pattern) == words


def test_explanation_is_written_for_people() -> None:
    agent = rules(("bash", "rm *", "deny"), ("read", "*", "allow"))
    request = CallRequest(permission="bash", targets=("rm x",), target_kind="command")
    lines = explain(request, agent).text().splitlines()
    assert lines[0].startswith("deny: the ceiling rule")
    assert any(line.startswith("=> ceiling") for line in lines)
    assert any("does not match" in line for line in lines)
    assert any("no rule ask" in line for line in lines)


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("2001:0:a00:1:0:0:f5ff:fffe", {"10.0.0.1"}),
        ("fe80::5efe:a00:1", {"10.0.0.1"}),
        ("2001:db8::1", set()),
        ("10.0.0.1", set()),
    ],
)
def test_addresses_inside_addresses_are_found(text: str, inside: set[str]) -> None:
    assert {str(one) for one in list_hidden_addresses(ip_address(text))} == inside


def test_range_of_addresses_that_is_none_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "network.yaml").write_text("private_networks:\n  - 10.0.0.0/99\n")
    with pytest.raises(PolicyInvalid) as caught:
        load_policies(tmp_path)
    assert ":2:" in str(caught.value)
    (tmp_path / "network.yaml").write_text("private_networks: [10.0.0.0/8]\n")
    assert load_policies(tmp_path).network.private_networks == ["10.0.0.0/8"]


def test_two_policies_are_compared_call_by_call() -> None:
    request = CallRequest(permission="read", targets=("a",), target_kind="path")
    call = RecordedCall(request=request, action="allow")
    old, new = rules(("read", "*", "deny")), rules(("read", "*", "allow"))
    [change] = compare([call], lambda _: old, lambda _: new)
    assert (change.before, change.after, change.is_looser) == ("deny", "allow", True)
    assert list(compare([call], lambda _: old, lambda _: old)) == []


def test_place_that_was_not_written_has_the_line_around_it() -> None:
    read = parse_yaml("a:\n  b: 1\n")
    assert read.find_line(("a", "b", "c")) == 2


def test_number_that_cannot_be_read_is_a_mistake_with_its_line() -> None:
    [(line, _)] = parse_yaml("a: 1\nb: " + "9" * 5_000 + "\n").mistakes
    assert line == 2


def test_what_is_allowed_is_no_violation_and_a_default_that_denies_is_the_agents() -> None:
    request = CallRequest(permission="read", targets=("a",), default="deny")
    found = make_violation(request, decide(request))
    assert found is not None and found.source == "agent"
    assert make_violation(request, decide(request, agent=rules(("read", "*", "allow")))) is None


def test_highest_source_of_a_refusal_is_named() -> None:
    request = CallRequest(permission="read", targets=("a", "b"))
    deny = rules(("read", "*", "deny"))
    found = make_violation(request, decide(request, deny, agent=deny))
    assert found is not None and (found.source, found.targets) == ("ceiling", ("a", "b"))


async def test_store_without_a_journal_follows_nobody_and_a_known_difference_is_told_once(
    tmp_path: Path,
) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "tools.yaml").write_text("rules: [{permission: read, action: deny}]\n")
    store = PolicyStore(tmp_path / "old")
    await store.follow_requests()
    request = CallRequest(permission="read", targets=("a",), default="allow")
    store.watch(request, decide(request))
    await store.watch_candidate(tmp_path / "new")
    for _ in range(3):
        store.watch(request, decide(request))
        await store.settle()
    assert store.shadow is not None
    assert (store.shadow.judged, store.shadow.differed) == (3, 3)


async def test_run_that_held_nothing_releases_nothing() -> None:
    async with Journal(MemoryStore(projections=(TENANTS,))) as journal:
        budget = SharedBudget(journal, "north", Budget(max_calls=1), owner="me")
        await budget.release_run("run_x")
        assert await journal.read_last_seq() == 0


async def test_what_any_process_spent_or_holds_is_not_left_to_the_tenant() -> None:
    async with Journal(MemoryStore(projections=(TENANTS,))) as journal:
        here = SharedBudget(journal, "north", Budget(max_tokens=100), owner="me")
        there = SharedBudget(journal, "north", Budget(max_tokens=100), owner="you")
        await there.settle(await there.reserve("run_1", Amount(tokens=40)), Amount(tokens=30))
        await there.reserve("run_2", Amount(tokens=20))
        assert await here.left() == Left(tokens=50)
        other = SharedBudget(journal, "south", Budget(max_tokens=100), owner="me")
        assert await other.left() == Left(tokens=100)


async def test_answer_that_settled_an_approval_is_found_in_the_journal() -> None:
    digest = seal(tool="t", arguments={}, agent_path="a", permission="t", policy_version="")
    async with Journal(MemoryStore(projections=(APPROVALS,))) as journal:
        said = ApprovalAnswered(approval_id="apr_1", verdict="allow", by="ada", seal=digest)
        await journal.append(SYSTEM_SESSION, [said])
        vote = Vote(by="ada", verdict="allow", seal=digest, session_seq=1, time=0.0)
        row = Approval(
            id="apr_1",
            session_id=SYSTEM_SESSION,
            run_id="run_1",
            message_id="m",
            call_id="c",
            tool="t",
            permission="t",
            agent_path="a",
            policy_version="",
            seal=digest,
            status="approved",
            required=1,
            time=0.0,
            expires_at=1.0,
            requested_at=1,
            votes=(vote,),
        )
        assert await ApprovalBook(journal, SYSTEM_SESSION).answer(row) == said
