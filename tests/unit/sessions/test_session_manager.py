"""Create, find, change, archive, delete: what callers of SessionManager are promised."""

from __future__ import annotations

import asyncio
import itertools
import os
from pathlib import Path

import pytest

from holdfast._version import __version__
from holdfast.errors import (
    AlreadyExists,
    InvalidId,
    InvalidTransition,
    LeaseLost,
    NotFound,
    SessionBusy,
    UsageError,
)
from holdfast.journal import SYSTEM_SESSION, Journal, export_heads, parse_heads, verify
from holdfast.sessions import (
    STATES,
    PermissionRule,
    Session,
    SessionManager,
    SessionState,
    list_allowed_states,
)
from holdfast.testing import FakeClock
from holdfast.turns import LeaseKeeper

LEGAL = {
    ("active", "suspended"),
    ("active", "completed"),
    ("active", "failed"),
    ("active", "archived"),
    ("suspended", "active"),
    ("suspended", "completed"),
    ("suspended", "failed"),
    ("suspended", "archived"),
    ("completed", "active"),
    ("completed", "archived"),
    ("failed", "active"),
    ("failed", "archived"),
    ("archived", "active"),
}


async def test_a_new_session_has_every_field(manager: SessionManager, clock: FakeClock) -> None:
    parent = await manager.create_session("Parent")
    rule = PermissionRule(permission="bash", pattern="git *", action="allow")
    session = await manager.create_session(
        "Héllo, Wörld!",
        project_id="prj_1",
        directory="/srv/x/../y",
        parent_id=parent.slug,
        permission=[rule],
        metadata={"a": 1},
        ttl_s=60,
    )
    assert session == Session(
        id=session.id,
        slug=f"hello-world-{session.id[-6:]}",
        project_id="prj_1",
        directory="/srv/y",
        parent_id=parent.id,
        title="Héllo, Wörld!",
        version=__version__,
        permission=(rule,),
        time_created=clock.now(),
        time_updated=clock.now(),
        expires_at=clock.now() + 60,
        metadata={"a": 1},
    )


async def test_a_session_belongs_to_the_current_directory_by_default(
    manager: SessionManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = await manager.create_session("!"), await manager.create_session("?")
    assert first.directory == str(tmp_path)
    assert first.project_id == second.project_id != ""
    assert first.slug == f"session-{first.id[-6:]}"


async def test_a_directory_that_is_no_text_is_refused(manager: SessionManager) -> None:
    with pytest.raises(UsageError):
        await manager.create_session("Odd", directory=os.fsdecode(b"/srv/\xff"))
    assert (await manager.list_sessions()).items == ()


@pytest.mark.parametrize("title", ["", "  \n", "x" * 501, "lone \ud800"])
async def test_a_title_that_cannot_be_shown_is_refused(manager: SessionManager, title: str) -> None:
    with pytest.raises(UsageError):
        await manager.create_session(title)
    session = await manager.create_session("Good")
    with pytest.raises(UsageError):
        await manager.update_session(session.id, title=title)
    assert (await manager.get_session(session.id)).title == "Good"


@pytest.mark.parametrize("bad", ["../up", "a/b", "", "x" * 65, "ä", "a b", "-x", "a\0b"])
async def test_an_id_that_ids_never_look_like_is_refused(manager: SessionManager, bad: str) -> None:
    with pytest.raises(InvalidId):
        await manager.get_session(bad)
    if bad:
        with pytest.raises(InvalidId):
            await manager.create_session("Bad", session_id=bad)


async def test_an_id_of_ones_own_is_taken_once(manager: SessionManager) -> None:
    session = await manager.create_session("Mine", session_id="job-1")
    assert session.id == "job-1"
    with pytest.raises(AlreadyExists):
        await manager.create_session("Mine again", session_id="job-1")
    with pytest.raises(UsageError):
        await manager.create_session("Not mine", session_id=SYSTEM_SESSION)


async def test_a_session_is_found_by_id_and_by_slug(manager: SessionManager) -> None:
    session = await manager.create_session("Math Help")
    assert await manager.get_session(session.id) == session
    assert await manager.get_session(session.slug) == session
    with pytest.raises(NotFound):
        await manager.get_session("ses_unknown")
    with pytest.raises(NotFound):
        await manager.create_session("Orphan", parent_id="ses_unknown")


async def test_an_update_changes_what_is_given_and_nothing_else(
    manager: SessionManager, session: Session, clock: FakeClock
) -> None:
    rule = PermissionRule(permission="read")
    clock.advance(5)
    changed = await manager.update_session(
        session.slug, title="New", summary="Short", permission=[rule], metadata={"a": 1, "b": [2]}
    )
    assert (changed.title, changed.summary, changed.permission) == ("New", "Short", (rule,))
    assert (changed.slug, changed.time_created) == (session.slug, session.time_created)
    assert changed.time_updated == clock.now()
    merged = await manager.update_session(session.id, metadata={"a": None, "c": {"d": 1}})
    assert merged.metadata == {"b": [2], "c": {"d": 1}}
    assert await manager.update_session(session.id) == merged


async def test_two_who_change_different_metadata_both_succeed(
    manager: SessionManager, session: Session
) -> None:
    await asyncio.gather(
        *(manager.update_session(session.id, metadata={f"k{n}": n}) for n in range(20))
    )
    found = await manager.get_session(session.id)
    assert found.metadata == {f"k{n}": n for n in range(20)}


@pytest.mark.parametrize(
    "metadata",
    [{"x": "y" * 70_000}, {"x": object()}, {"x": float("nan")}, {"x": float("inf")}, {"x": {1, 2}}],
)
async def test_metadata_that_is_too_large_or_no_json_is_refused(
    manager: SessionManager, session: Session, metadata: dict[str, object]
) -> None:
    with pytest.raises(UsageError):
        await manager.update_session(session.id, metadata=metadata)
    with pytest.raises(UsageError):
        await manager.create_session("Bad", metadata=metadata)
    assert (await manager.get_session(session.id)).metadata == {}


async def test_metadata_may_not_grow_beyond_its_limit_in_steps(
    manager: SessionManager, session: Session
) -> None:
    await manager.update_session(session.id, metadata={"a": "x" * 40_000})
    with pytest.raises(UsageError):
        await manager.update_session(session.id, metadata={"b": "x" * 40_000})
    await manager.update_session(session.id, metadata={"a": None, "b": "x" * 40_000})


async def reach(manager: SessionManager, state: SessionState) -> Session:
    session = await manager.create_session("In a state")
    if state == "active":
        return session
    return await manager.change_state(session.id, state, reason="test")


@pytest.mark.parametrize(("current", "wanted"), list(itertools.product(STATES, STATES)))
async def test_only_legal_transitions_happen(
    manager: SessionManager, current: SessionState, wanted: SessionState
) -> None:
    session = await reach(manager, current)
    assert (wanted in list_allowed_states(current)) == ((current, wanted) in LEGAL)
    if (current, wanted) in LEGAL:
        changed = await manager.change_state(session.id, wanted, reason="because")
        assert (changed.state, changed.state_reason) == (wanted, "because")
        return
    with pytest.raises(InvalidTransition) as caught:
        await manager.change_state(session.id, wanted)
    assert caught.value.code == "session.invalid_transition"
    assert await manager.get_session(session.id) == session


async def test_a_state_that_does_not_exist_is_refused(
    manager: SessionManager, session: Session
) -> None:
    with pytest.raises(UsageError):
        await manager.change_state(session.id, "asleep")  # type: ignore[arg-type]


async def test_archiving_notes_the_time_and_restoring_forgets_it(
    manager: SessionManager, session: Session, clock: FakeClock
) -> None:
    clock.advance(10)
    archived = await manager.archive_session(session.id, reason="done")
    assert (archived.state, archived.time_archived) == ("archived", clock.now())
    with pytest.raises(InvalidTransition):
        await manager.add_message(session.id, "user", "hello?")
    restored = await manager.restore_session(session.id)
    assert (restored.state, restored.time_archived) == ("active", 0.0)
    await manager.add_message(session.id, "user", "hello!")


async def test_an_expired_session_takes_no_message_until_it_gets_more_time(
    manager: SessionManager, clock: FakeClock
) -> None:
    session = await manager.create_session("Short", ttl_s=10)
    await manager.add_message(session.id, "user", "in time")
    clock.advance(10)
    with pytest.raises(InvalidTransition) as caught:
        await manager.add_message(session.id, "user", "too late")
    assert "ttl_s" in caught.value.hint
    await manager.update_session(session.id, ttl_s=5)
    await manager.add_message(session.id, "user", "in time again")
    unlimited = await manager.update_session(session.id, ttl_s=0)
    assert unlimited.expires_at == 0.0


@pytest.mark.parametrize("ttl_s", [-1, float("nan"), float("inf")])
async def test_a_time_to_live_is_a_number_of_seconds(manager: SessionManager, ttl_s: float) -> None:
    with pytest.raises(UsageError):
        await manager.create_session("Odd", ttl_s=ttl_s)


async def test_a_deleted_session_is_gone_and_the_audit_knows_why(
    manager: SessionManager, session: Session, journal: Journal
) -> None:
    other = await manager.create_session("Other")
    await manager.add_message(session.id, "user", "hello")
    heads = parse_heads(await export_heads(journal.store, journal.clock))
    await manager.delete_session(session.slug, reason="asked")
    for name in (session.id, session.slug):
        with pytest.raises(NotFound):
            await manager.get_session(name)
    assert [found.id for found in (await manager.list_sessions()).items] == [other.id]
    assert await journal.read(session.id) == []
    assert await verify(journal.store, heads=heads) == []
    with pytest.raises(NotFound):
        await manager.delete_session(session.id)


async def test_a_held_session_cannot_be_changed_by_others(
    manager: SessionManager, session: Session, keeper: LeaseKeeper
) -> None:
    message = await manager.add_message(session.id, "user", "hello")
    lease = await keeper.acquire(session.id)
    assert lease is not None
    with pytest.raises(SessionBusy) as caught:
        await manager.delete_session(session.id, wait_s=0)
    assert caught.value.is_retryable
    with pytest.raises(SessionBusy):
        await manager.add_message(session.id, "user", "hello", wait_s=0.01)
    assert (await manager.update_session(session.id, title="Meanwhile")).title == "Meanwhile"
    waiting = asyncio.create_task(manager.delete_message(session.id, message.id))
    await asyncio.sleep(0)
    await keeper.release(lease)
    await asyncio.wait_for(waiting, 10)
    assert (await manager.get_session(session.id)).message_count == 0


async def test_a_message_that_waited_is_refused_when_the_session_was_closed_meanwhile(
    manager: SessionManager, session: Session, keeper: LeaseKeeper, journal: Journal
) -> None:
    async with manager.writing(session.id) as hold:
        waiting = asyncio.create_task(manager.add_message(session.id, "user", "late"))
        await asyncio.sleep(0)
        from holdfast.sessions.events import SessionArchived  # noqa: PLC0415

        await hold.append(SessionArchived(), is_last=True)
        with pytest.raises(LeaseLost):
            await hold.append(SessionArchived())
    with pytest.raises(InvalidTransition):
        await asyncio.wait_for(waiting, 10)


async def test_numbers_of_an_unknown_session_are_refused(manager: SessionManager) -> None:
    with pytest.raises(NotFound):
        await manager.find_last_number("ses_unknown")
