"""Whose a session is: the subject's in whose name it was begun, for good."""

from __future__ import annotations

import asyncio

import msgspec

from holdfast.journal import Journal
from holdfast.journal.envelope import decode_payload
from holdfast.sessions import SUBJECT, SessionFilter, SessionManager, acting_for


async def test_a_session_belongs_to_the_subject_in_whose_name_it_began(
    manager: SessionManager,
) -> None:
    with acting_for("ada"):
        theirs = await manager.create_session("a")
    ours = await manager.create_session("b")
    assert (theirs.owner, ours.owner) == ("ada", "")
    found = await manager.list_sessions(SessionFilter(owner="ada"))
    assert [one.id for one in found.items] == [theirs.id]
    assert (await manager.list_sessions(SessionFilter(owner="bob"))).items == ()


async def test_what_begins_below_a_session_is_its_owners_whoever_goes_on(
    manager: SessionManager,
) -> None:
    with acting_for("ada"):
        above = await manager.create_session("a")
    # As in another process, which resumes the run of the session above.
    below = await manager.create_session("b", parent_id=above.id)
    with acting_for("bob"):
        beside = await manager.create_session("c", parent_id=above.id)
    assert (below.owner, beside.owner) == ("ada", "ada")


async def test_a_fork_is_the_forkers_and_else_stays_the_owners(manager: SessionManager) -> None:
    with acting_for("ada"):
        source = await manager.create_session("a")
    with acting_for("bob"):
        taken = await manager.fork_session(source.id)
    assert taken.owner == "bob"
    assert (await manager.fork_session(source.id)).owner == "ada"


async def test_a_copy_that_is_brought_in_is_the_importers(
    manager: SessionManager, journal: Journal
) -> None:
    with acting_for("ada"):
        source = await manager.create_session("a")
    events = await journal.read_all(source.id)
    with acting_for("bob"):
        assert (await manager.import_events(events, as_new=True)).owner == "bob"
    assert (await manager.import_events(events, as_new=True)).owner == ""


async def test_the_name_goes_into_tasks_and_not_out_of_the_block() -> None:
    async def look() -> str:
        await asyncio.sleep(0)
        return SUBJECT.get()

    with acting_for("ada"):
        task = asyncio.create_task(look())
        with acting_for("bob"):
            assert SUBJECT.get() == "bob"
        assert SUBJECT.get() == "ada"
    assert SUBJECT.get() == ""
    assert await task == "ada"


def test_a_session_of_an_older_journal_belongs_to_the_owner_of_the_directory() -> None:
    old = {"slug": "s", "project_id": "p", "directory": "/d", "title": "t", "version": "0"}
    fact = decode_payload("session.created", 1, msgspec.json.encode(old))
    assert fact.owner == ""  # type: ignore[attr-defined]
