"""Fork and revert at any event."""

from __future__ import annotations

import pytest

from holdfast.errors import NotFound, SessionBusy, UsageError
from holdfast.journal import NO_ORIGIN, Draft, Journal, Payload, verify
from holdfast.journal.envelope import digest_payload
from holdfast.journal.store import AppendRequest
from holdfast.messages import Message, TextPart
from holdfast.sessions import Session, SessionManager
from holdfast.sessions.events import EventOmitted, MessageCreated
from holdfast.sessions.session import hide, is_hidden
from holdfast.turns import Turn, TurnCompleted, TurnParked, TurnQueue


async def texts(manager: SessionManager, session_id: str) -> list[str]:
    session = await manager.get_session(session_id)
    messages = await manager.messages.all(session)
    assert session.message_count == len(messages)
    return [message.text for message in messages]


async def add(manager: SessionManager, session: Session, *words: str) -> list[Message]:
    return [await manager.add_message(session.id, "user", word) for word in words]


async def test_a_fork_takes_over_conversation_and_settings_but_no_runs_and_no_costs(
    manager: SessionManager, session: Session, queue: TurnQueue, journal: Journal
) -> None:
    async def handler(turn: Turn) -> TurnCompleted:
        message = Message(id="m1", session_id="", role="assistant", cost_usd=2.0)
        await turn.add_message(message)
        return TurnCompleted()

    run = await queue.submit(session.id)
    await queue.run(run.id, handler)
    await add(manager, session, "a")
    await manager.update_session(session.id, metadata={"k": 1}, summary="s", title="Renamed")
    await manager.archive_session(session.id)
    source = await manager.get_session(session.id)
    fork = await manager.fork_session(source.slug)
    assert fork.title == "Renamed (fork)"
    assert fork.slug.startswith("renamed-fork-")
    assert (fork.state, fork.total_cost, fork.message_count) == ("active", 0.0, 2)
    assert (fork.metadata, fork.summary, fork.directory) == ({"k": 1}, "s", source.directory)
    assert fork.forked_from is not None
    assert fork.forked_from.session_id == source.id
    assert source.total_cost == 2.0
    taken, given = await journal.read_all(fork.id), await journal.read_all(source.id)
    assert [event.time for event in taken[: len(given)]] == [event.time for event in given]
    assert [e.payload for e in taken if e.kind == "message.created"] == [
        e.payload for e in given if e.kind == "message.created"
    ]
    left_out = [e.expect(EventOmitted).omitted for e in taken if e.kind == "session.omitted"]
    assert left_out == ["run.queued", "run.started", "run.completed", "session.archived"]
    assert await verify(journal.store) == []
    assert (await queue.get(run.id)).session_id == source.id
    await manager.delete_session(source.id)
    assert len(await texts(manager, fork.id)) == 2


async def test_a_fork_of_a_fork_spends_its_own_money_only(manager: SessionManager) -> None:
    first = await manager.create_session("First")

    async def spend(session: Session, name: str) -> None:
        async with manager.writing(session.id) as hold:
            message = Message(id=name, session_id="", role="assistant", cost_usd=1.0)
            await hold.append(MessageCreated(message=message))

    await spend(first, "a")
    second = await manager.fork_session(first.id, title="Second")
    await spend(second, "b")
    third = await manager.fork_session(second.id, title="Third")
    await spend(third, "c")
    found = [await manager.get_session(each.id) for each in (first, second, third)]
    assert [session.total_cost for session in found] == [1.0, 1.0, 1.0]
    assert [session.message_count for session in found] == [1, 2, 3]
    assert [session.title for session in found] == ["First", "Second", "Third"]


@pytest.mark.parametrize("number", [0, -1, 5, 10**30])
async def test_there_is_no_fork_or_revert_at_an_event_that_does_not_exist(
    manager: SessionManager, session: Session, number: int
) -> None:
    await add(manager, session, "a", "b", "c")
    with pytest.raises(UsageError):
        await manager.fork_session(session.id, at=number)
    with pytest.raises(UsageError):
        await manager.revert_session(session.id, to=number)
    assert len((await manager.list_sessions()).items) == 1
    assert await texts(manager, session.id) == ["a", "b", "c"]


async def test_a_revert_makes_the_conversation_what_it_was(
    manager: SessionManager, session: Session
) -> None:
    a, b, c = await add(manager, session, "a", "b", "c")
    before = await manager.find_last_number(session.id)
    await manager.update_part(session.id, a.id, TextPart(id=a.parts[0].id, text="changed"))
    await manager.delete_message(session.id, b.id)
    await add(manager, session, "d")
    assert await texts(manager, session.id) == ["changed", "c", "d"]
    assert (await manager.revert_session(session.id, to=before)).message_count == 3
    assert await texts(manager, session.id) == ["a", "b", "c"]
    reverted = await manager.find_last_number(session.id)
    await add(manager, session, "e")
    assert await texts(manager, session.id) == ["a", "b", "c", "e"]
    # A revert can be reverted.
    await manager.revert_session(session.id, to=reverted - 1)
    assert await texts(manager, session.id) == ["changed", "c", "d"]
    await manager.revert_session(session.id, to=reverted)
    assert await texts(manager, session.id) == ["a", "b", "c"]
    fork = await manager.fork_session(session.id)
    assert await texts(manager, fork.id) == ["a", "b", "c"]
    await manager.revert_session(fork.id, to=1)
    assert await texts(manager, fork.id) == []
    assert await texts(manager, session.id) == ["a", "b", "c"]


async def test_what_a_revert_hid_cannot_be_changed(
    manager: SessionManager, session: Session
) -> None:
    a, b = await add(manager, session, "a", "b")
    await manager.revert_session(session.id, to=2)
    found = await manager.get_session(session.id)
    for call in (
        manager.delete_message(session.id, b.id),
        manager.update_part(session.id, b.id, TextPart(id="x", text="y")),
        manager.messages.one(found, b.id),
    ):
        with pytest.raises(NotFound):
            await call
    assert await texts(manager, session.id) == ["a"]
    assert (await manager.messages.one(found, a.id)).text == "a"


async def test_a_revert_to_the_last_event_changes_nothing(
    manager: SessionManager, session: Session
) -> None:
    await add(manager, session, "a")
    same = await manager.revert_session(session.id, to=2)
    assert same.hidden == ()
    assert await texts(manager, session.id) == ["a"]


async def test_reverts_of_a_lifetime_do_not_break_reading(
    manager: SessionManager, session: Session
) -> None:
    """More ranges than a database takes in one query."""
    kept = []
    for n in range(60):
        await add(manager, session, f"keep{n}", "drop")
        kept.append(f"keep{n}")
        await manager.revert_session(session.id, to=await manager.find_last_number(session.id) - 1)
    found = await manager.get_session(session.id)
    assert len(found.hidden) == 60
    assert await texts(manager, session.id) == kept


async def test_nothing_is_reverted_between_the_steps_of_a_turn(
    manager: SessionManager, session: Session, queue: TurnQueue
) -> None:
    [message] = await add(manager, session, "a")

    async def handler(turn: Turn) -> TurnParked:
        return TurnParked(reason="approval")

    run = await queue.submit(session.id)
    await queue.run(run.id, handler)
    for call in (
        manager.revert_session(session.id, to=1),
        manager.add_message(session.id, "user", "b"),
        manager.delete_message(session.id, message.id),
        manager.update_part(session.id, message.id, TextPart(id="x", text="y")),
        manager.archive_session(session.id),
    ):
        with pytest.raises(SessionBusy):
            await call
    assert (await manager.change_state(session.id, "suspended")).state == "suspended"


async def test_a_fork_keeps_facts_of_kinds_that_nobody_here_knows(
    manager: SessionManager, session: Session, journal: Journal
) -> None:
    data = b'{"of":"a plugin"}'
    draft = Draft(
        kind="plugin.noted",
        version=3,
        time=1.0,
        origin=NO_ORIGIN,
        payload=data,
        payload_digest=digest_payload(data),
        value=Payload(),
    )
    await journal.store.append(AppendRequest(session_id=session.id, drafts=(draft,), epoch=None))
    fork = await manager.fork_session(session.id)
    copy = (await journal.read_all(fork.id))[1]
    assert (copy.kind, copy.version, copy.payload, copy.time) == ("plugin.noted", 3, data, 1.0)
    assert await verify(journal.store) == []


async def test_the_title_of_a_fork_never_grows_too_long(manager: SessionManager) -> None:
    session = await manager.create_session("x" * 500)
    fork = await manager.fork_session(session.id)
    assert len(fork.title) == 500
    with pytest.raises(UsageError):
        await manager.fork_session(session.id, title="y" * 501)


def test_ranges_join_where_they_touch() -> None:
    assert hide((), 3, 5) == ((3, 5),)
    assert hide(((3, 5),), 6, 8) == ((3, 8),)
    assert hide(((3, 5), (9, 9)), 4, 7) == ((3, 7), (9, 9))
    assert hide(((3, 5),), 1, 9) == ((1, 9),)
    found = [n for n in range(1, 12) if is_hidden(((3, 5), (9, 9)), n)]
    assert found == [3, 4, 5, 9]
    assert not is_hidden((), 1)
