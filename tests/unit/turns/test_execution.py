"""A turn begins on what was read before it, unless the session has grown since."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import InvalidTransition, NotFound
from holdfast.ids import make_id
from holdfast.journal import Journal
from holdfast.sessions import Run, Session, SessionManager, compose
from holdfast.turns import Outcome, Turn, TurnCompleted, TurnParked, TurnQueue
from holdfast.turns import execution as module

WAIT_S = 20


async def execute(queue: TurnQueue, session_id: str, seen: list[Turn]) -> Run:
    async def note(turn: Turn) -> Outcome:
        seen.append(turn)
        return TurnCompleted()

    message = compose(session_id, "user", "hello", 0.0)
    work = queue.execute(session_id, message, note, run_id=make_id("run"), is_new=True)
    return await asyncio.wait_for(work, WAIT_S)


class Reads:
    """Counts how often the sessions of a manager are read."""

    def __init__(self, manager: SessionManager, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        inner = manager.get_session

        async def counted(session_id: str) -> Session:
            self.count += 1
            return await inner(session_id)

        monkeypatch.setattr(manager, "get_session", counted)


async def test_a_session_that_was_left_here_is_read_once_per_turn(
    queue: TurnQueue,
    manager: SessionManager,
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Turn] = []
    await execute(queue, session.id, seen)
    reads = Reads(manager, monkeypatch)
    looked_up = await queue.executor.look_up(session.id)
    await execute(queue, session.id, seen)
    assert reads.count == 1
    assert seen[-1].session is looked_up
    assert looked_up == await manager.get_session(session.id)


async def test_what_was_looked_up_serves_one_turn(
    queue: TurnQueue,
    manager: SessionManager,
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Turn] = []
    await execute(queue, session.id, seen)
    await queue.executor.look_up(session.id)
    reads = Reads(manager, monkeypatch)
    await execute(queue, session.id, seen)
    assert reads.count == 0
    await execute(queue, session.id, seen)
    assert reads.count > 0
    assert [turn.run.status for turn in seen] == ["running"] * 3


async def test_a_session_that_changed_meanwhile_is_read_again(
    queue: TurnQueue, manager: SessionManager, session: Session
) -> None:
    seen: list[Turn] = []
    await execute(queue, session.id, seen)
    await queue.executor.look_up(session.id)
    changed = await manager.update_session(session.id, title="Other")
    await execute(queue, session.id, seen)
    assert seen[-1].session == changed
    await queue.executor.look_up(session.id)
    await manager.archive_session(session.id)
    with pytest.raises(InvalidTransition):
        await execute(queue, session.id, seen)


async def test_a_turn_that_somebody_queued_meanwhile_goes_first(
    queue: TurnQueue, elsewhere: TurnQueue, session: Session
) -> None:
    seen: list[Turn] = []
    await execute(queue, session.id, seen)
    await queue.executor.look_up(session.id)
    before = await elsewhere.submit(session.id, is_for_any_process=True)
    run = await execute(queue, session.id, seen)
    assert [turn.run.id for turn in seen][1:] == [before.id, run.id]
    assert seen[1].session is None


async def test_a_parked_run_is_not_forgotten(queue: TurnQueue, session: Session) -> None:
    async def park(turn: Turn) -> Outcome:
        return TurnParked(reason="question")

    seen: list[Turn] = []
    await execute(queue, session.id, seen)
    message = compose(session.id, "user", "wait", 0.0)
    parked = await queue.execute(session.id, message, park, run_id="waits", is_new=True)
    await queue.executor.look_up(session.id)
    work = asyncio.create_task(execute(queue, session.id, seen))
    await asyncio.sleep(0)
    await queue.cancel(parked.id)
    assert (await asyncio.wait_for(work, WAIT_S)).status == "completed"
    assert (await queue.get("waits")).status == "cancelled"


async def test_a_session_is_found_by_its_slug(queue: TurnQueue, session: Session) -> None:
    seen: list[Turn] = []
    assert (await queue.executor.look_up(session.slug)).id == session.id
    assert (await execute(queue, session.slug, seen)).session_id == session.id
    with pytest.raises(NotFound):
        await queue.executor.look_up("nowhere")


async def test_few_sessions_are_remembered(
    queue: TurnQueue, manager: SessionManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST", 2)
    sessions = [await manager.create_session(f"number {n}") for n in range(3)]
    seen: list[Turn] = []
    for session in sessions:
        await execute(queue, session.id, seen)
    for session in sessions:
        await queue.executor.look_up(session.id)
    reads = Reads(manager, monkeypatch)
    known = []
    for session in sessions:
        reads.count = 0
        await execute(queue, session.id, seen)
        known.append(reads.count == 0)
    assert known == [False, True, True]


async def test_few_sessions_that_were_looked_up_are_remembered(
    queue: TurnQueue, manager: SessionManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST", 2)
    seen: list[Turn] = []
    sessions = [await manager.create_session(f"number {n}") for n in range(3)]
    for session in sessions:
        await execute(queue, session.id, seen)
        await queue.executor.look_up(session.id)
    reads = Reads(manager, monkeypatch)
    known = []
    for session in sessions:
        reads.count = 0
        await execute(queue, session.id, seen)
        known.append(reads.count == 0)
    assert known == [False, True, True]


async def test_an_end_that_its_own_late_facts_overtook_is_still_known_to_be_alone(
    queue: TurnQueue, journal: Journal, session: Session
) -> None:
    async def defer(turn: Turn) -> Outcome:
        await turn.add_message(compose(session.id, "user", "one", 0.0))
        assert turn.is_alone
        assert not turn.may_be_steered
        return TurnCompleted()

    message = compose(session.id, "user", "hello", 0.0)
    run = await queue.execute(session.id, message, defer, run_id="job", is_new=True)
    assert run == await queue.get("job")
    [*_, last] = await journal.read(session.id)
    assert (last.kind, last.session_seq) == ("run.completed", run.ended_at)
