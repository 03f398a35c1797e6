"""Cleanup by each rule; what is removed, what stays, and that the chain holds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast.journal import Journal, verify
from holdfast.messages import Message, TextPart
from holdfast.sessions import RetentionPolicy, Session, SessionManager, clean_up, compose
from holdfast.testing import FakeClock
from holdfast.turns import LeaseKeeper, Turn, TurnCompleted, TurnQueue


async def contents(manager: SessionManager, session_id: str) -> list[str]:
    session = await manager.get_session(session_id)
    found = []
    for message in await manager.messages.all(session):
        if message.metadata.get("redacted"):
            assert message.parts == ()
            found.append("-")
        else:
            found.append(message.text)
    return found


async def add(
    manager: SessionManager, session: Session, clock: FakeClock, count: int
) -> list[Message]:
    added = []
    for n in range(count):
        added.append(await manager.add_message(session.id, "user", str(n)))
        clock.advance(10)
    return added


async def test_nothing_is_removed_without_a_limit(
    manager: SessionManager, session: Session, clock: FakeClock
) -> None:
    await add(manager, session, clock, 3)
    clock.advance(1e8)
    report = await clean_up(manager, RetentionPolicy())
    assert (report.sessions_deleted, report.events_redacted) == (0, 0)
    assert await contents(manager, session.id) == ["0", "1", "2"]


async def test_old_messages_lose_their_content_and_the_chain_holds(
    manager: SessionManager, session: Session, clock: FakeClock, journal: Journal
) -> None:
    await add(manager, session, clock, 5)
    policy = RetentionPolicy(message_ttl_s=30)
    assert (await clean_up(manager, policy)).events_redacted == 3
    assert await contents(manager, session.id) == ["-", "-", "-", "3", "4"]
    assert (await clean_up(manager, policy)).events_redacted == 0
    assert await verify(journal.store) == []
    found = await manager.get_session(session.id)
    assert (found.message_count, found.id) == (5, session.id)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(0, ["-"] * 5), (2, ["-", "-", "-", "3", "4"]), (5, list("01234")), (20_000, list("01234"))],
)
async def test_only_the_newest_messages_keep_their_content(
    manager: SessionManager,
    session: Session,
    clock: FakeClock,
    journal: Journal,
    limit: int,
    expected: list[str],
) -> None:
    added = await add(manager, session, clock, 5)
    if limit == 2:
        # A late change of an old message is content of that message.
        await manager.update_part(session.id, added[0].id, TextPart(id="new", text="late"))
    await clean_up(manager, RetentionPolicy(max_messages=limit))
    assert await contents(manager, session.id) == expected
    assert await verify(journal.store) == []


async def test_limits_on_events_count_events(
    manager: SessionManager, session: Session, clock: FakeClock, journal: Journal
) -> None:
    await add(manager, session, clock, 5)
    assert (await clean_up(manager, RetentionPolicy(max_events=2))).events_redacted == 3
    assert await contents(manager, session.id) == ["-", "-", "-", "3", "4"]
    assert (await clean_up(manager, RetentionPolicy(event_ttl_s=0))).events_redacted == 2
    assert await contents(manager, session.id) == ["-"] * 5
    assert await verify(journal.store) == []


async def test_sessions_go_when_their_time_is_over(
    manager: SessionManager, session: Session, clock: FakeClock, journal: Journal
) -> None:
    short = await manager.create_session("Short", ttl_s=5)
    clock.advance(6)
    report = await clean_up(manager, RetentionPolicy())
    assert report.sessions_deleted == 1
    assert [s.id for s in (await manager.list_sessions()).items] == [session.id]
    clock.advance(100)
    young = await manager.create_session("Young")
    assert (await clean_up(manager, RetentionPolicy(session_ttl_s=50))).sessions_deleted == 1
    assert [s.id for s in (await manager.list_sessions()).items] == [young.id]
    assert await journal.read(short.id) == []
    assert await verify(journal.store) == []


async def test_of_archived_sessions_the_newest_stay(
    manager: SessionManager, session: Session, clock: FakeClock
) -> None:
    archived = []
    for n in range(3):
        clock.advance(1)
        each = await manager.create_session(f"old {n}")
        archived.append(await manager.archive_session(each.id))
    assert (await clean_up(manager, RetentionPolicy(max_sessions=1))).sessions_deleted == 2
    kept = {s.id for s in (await manager.list_sessions()).items}
    assert kept == {session.id, archived[-1].id}


async def test_a_busy_session_is_left_for_the_next_time(
    manager: SessionManager, session: Session, clock: FakeClock, keeper: LeaseKeeper
) -> None:
    clock.advance(10)
    lease = await keeper.acquire(session.id)
    assert lease is not None
    report = await clean_up(manager, RetentionPolicy(session_ttl_s=5))
    assert (report.sessions_deleted, report.sessions_busy) == (0, 1)
    await keeper.release(lease)
    assert (await clean_up(manager, RetentionPolicy(session_ttl_s=5))).sessions_deleted == 1


class Meddling(SessionManager):
    """Lets somebody else act just before a session is held."""

    meddle: Any = None

    def writing(self, session_id: str, *, wait_s: float = 10.0) -> Any:
        hold = super().writing(session_id, wait_s=wait_s)
        if self.meddle is not None:
            meddle, self.meddle = self.meddle, None
            return After(meddle, hold)
        return hold


class After:
    def __init__(self, first: Any, hold: Any) -> None:
        self.first, self.hold = first, hold

    async def __aenter__(self) -> Any:
        await self.first()
        return await self.hold.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        await self.hold.__aexit__(*error)


async def test_a_session_that_is_used_again_at_the_last_moment_stays(
    journal: Journal, keeper: LeaseKeeper, clock: FakeClock
) -> None:
    manager = Meddling(journal, keeper)
    session = await manager.create_session("Idle")
    clock.advance(10)
    manager.meddle = lambda: manager.update_session(session.id, summary="used")
    assert (await clean_up(manager, RetentionPolicy(session_ttl_s=5))).sessions_deleted == 0
    assert (await manager.get_session(session.id)).summary == "used"


async def test_two_cleanups_at_once_do_not_disturb_each_other(
    journal: Journal, keeper: LeaseKeeper, clock: FakeClock
) -> None:
    manager = Meddling(journal, keeper)
    session = await manager.create_session("Idle")
    clock.advance(10)
    manager.meddle = lambda: manager.delete_session(session.id)
    report = await clean_up(manager, RetentionPolicy(session_ttl_s=5, message_ttl_s=5))
    assert (report.sessions_deleted, report.sessions_busy) == (0, 0)


async def test_what_an_unfinished_run_needs_stays(
    manager: SessionManager, session: Session, queue: TurnQueue, clock: FakeClock
) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()
    seen: list[str] = []

    async def handler(turn: Turn) -> TurnCompleted:
        started.set()
        await go_on.wait()
        seen.extend(message.text for message in await turn.take_steering())
        assert turn.request.message is not None
        seen.append(turn.request.message.text)
        return TurnCompleted(result={"secret": "result"})

    run = await queue.submit(session.id, compose(session.id, "user", "asked", clock.now()))
    work = asyncio.create_task(queue.run(run.id, handler))
    await asyncio.wait_for(started.wait(), 10)
    steered = compose(session.id, "user", "steered", clock.now())
    await queue.submit(session.id, steered, on_busy="steer")
    clock.advance(100)
    policy = RetentionPolicy(message_ttl_s=1, event_ttl_s=1, max_messages=0, max_events=0)
    assert (await clean_up(manager, policy)).events_redacted == 0
    go_on.set()
    assert (await asyncio.wait_for(work, 10)).result == {"secret": "result"}
    assert seen == ["steered", "asked"]
    clock.advance(100)
    assert (await clean_up(manager, policy)).events_redacted == 4
    assert (await queue.get(run.id)).result == {}
    assert await contents(manager, session.id) == ["-"]


async def test_removed_content_is_nowhere_in_the_tables(
    manager: SessionManager, session: Session, queue: TurnQueue, clock: FakeClock, journal: Journal
) -> None:
    async def handler(turn: Turn) -> TurnCompleted:
        assert turn.request.message is not None
        await turn.add_message(turn.request.message)
        return TurnCompleted(result={"answer": "TOPSECRET"})

    run = await queue.submit(
        session.id, compose(session.id, "user", "TOPSECRET", 0.0), options={"k": "TOPSECRET"}
    )
    await queue.run(run.id, handler)
    clock.advance(10)
    await clean_up(manager, RetentionPolicy(event_ttl_s=1))
    assert all(b"TOPSECRET" not in event.payload for event in await journal.read_all(session.id))
    path = getattr(journal.store, "path", None)
    if path is not None:
        await clean_up(manager, RetentionPolicy())
        assert b"TOPSECRET" not in path.read_bytes()
        wal = path.with_name(path.name + "-wal")
        assert b"TOPSECRET" not in (wal.read_bytes() if wal.exists() else b"")


@pytest.mark.parametrize("name", RetentionPolicy.__struct_fields__)
@pytest.mark.parametrize("limit", [-1, float("nan")])
def test_limits_that_nobody_can_mean_are_refused(name: str, limit: float) -> None:
    with pytest.raises(UsageError):
        RetentionPolicy(**{name: limit})
