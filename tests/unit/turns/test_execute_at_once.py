"""Submit and run in one: one commit where nothing waits, and the queue's order otherwise."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import InvalidTransition
from holdfast.ids import make_id
from holdfast.journal import AppendRequest, Event, Journal, MemoryStore
from holdfast.messages import Message
from holdfast.redaction import Redactor
from holdfast.sessions import (
    SESSION_PROJECTIONS,
    Run,
    Session,
    SessionManager,
    compose,
    make_new_session,
)
from holdfast.testing import FakeClock
from holdfast.turns import (
    LeaseKeeper,
    Outcome,
    Turn,
    TurnCancelled,
    TurnCompleted,
    TurnParked,
    TurnQueue,
)

WAIT_S = 20


def words(session: Session, text: str) -> Message:
    return compose(session.id, "user", text, 0.0)


async def complete(turn: Turn) -> Outcome:
    return TurnCompleted(result={"run": turn.run.id})


async def execute(
    queue: TurnQueue, session: Session, handler=complete, *, text: str = "hello", run_id: str = ""
) -> Run:
    work = queue.execute(
        session.id,
        words(session, text),
        handler,
        run_id=run_id or make_id("run"),
        is_new=not run_id,
        agent="build",
        options={"k": 1},
    )
    return await asyncio.wait_for(work, WAIT_S)


async def kinds(journal: Journal, session: Session) -> list[str]:
    return [event.kind for event in await journal.read(session.id)]


async def test_an_idle_session_is_taken_queued_and_started_together(
    queue: TurnQueue, journal: Journal, session: Session, clock: FakeClock
) -> None:
    seen: list[Run] = []

    async def look(turn: Turn) -> Outcome:
        assert not turn.is_resumed
        assert turn.request.options == {"k": 1}
        assert turn.request.message is not None
        seen.append(await queue.get(turn.run.id))
        assert turn.run == seen[0]
        return TurnCompleted(result={"done": True})

    run = await execute(queue, session, look)
    assert (seen[0].status, seen[0].agent) == ("running", "build")
    assert run == await queue.get(run.id)
    assert (run.status, run.result) == ("completed", {"done": True})
    assert await kinds(journal, session) == [
        "session.created",
        "run.queued",
        "run.started",
        "run.completed",
    ]
    [head] = await journal.store.heads(session.id)
    assert (head.owner, head.epoch) == ("", 1)


async def test_a_run_of_ones_own_name_exists_once(queue: TurnQueue, session: Session) -> None:
    first = await execute(queue, session, run_id="job-1")
    again = await execute(queue, session, run_id="job-1", text="other words")
    assert first == again


async def test_what_waits_goes_first(
    queue: TurnQueue, elsewhere: TurnQueue, manager: SessionManager, session: Session
) -> None:
    waiting = await elsewhere.submit(session.id, words(session, "first"), is_for_any_process=True)
    order: list[str] = []

    async def note(turn: Turn) -> Outcome:
        order.append(turn.run.id)
        return TurnCompleted()

    run = await execute(queue, session, note)
    assert order == [waiting.id, run.id]
    assert run.status == "completed"


async def test_a_session_that_somebody_holds_is_waited_for(
    queue: TurnQueue, manager: SessionManager, session: Session
) -> None:
    async with manager.writing(session.id):
        work = asyncio.create_task(execute(queue, session))
        await asyncio.sleep(0)
        assert not work.done()
    assert (await asyncio.wait_for(work, WAIT_S)).status == "completed"


async def test_a_session_that_moves_meanwhile_is_queued_for(
    queue: TurnQueue,
    manager: SessionManager,
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    last_number = manager.find_last_number
    answers = iter([0])

    async def too_old(session_id: str) -> int:
        return next(answers, await last_number(session_id))

    monkeypatch.setattr(manager, "find_last_number", too_old)
    assert (await execute(queue, session)).status == "completed"


async def test_an_archived_session_takes_no_turn(
    queue: TurnQueue, manager: SessionManager, session: Session
) -> None:
    await manager.archive_session(session.id)
    with pytest.raises(InvalidTransition):
        await execute(queue, session)


async def test_a_run_that_parks_rests_and_can_be_woken(queue: TurnQueue, session: Session) -> None:
    async def park(turn: Turn) -> Outcome:
        return TurnParked(reason="question")

    run = await execute(queue, session, park)
    assert (run.status, run.reason) == ("parked", "question")
    await queue.wake(run.id, cause="answered")
    assert (await asyncio.wait_for(queue.run(run.id, complete), WAIT_S)).status == "completed"


async def test_a_caller_who_gives_up_takes_the_run_along(
    queue: TurnQueue, session: Session
) -> None:
    begun: asyncio.Queue[str] = asyncio.Queue()

    async def wait(turn: Turn) -> Outcome:
        begun.put_nowait(turn.run.id)
        await asyncio.Event().wait()
        return TurnCancelled()

    work = asyncio.create_task(execute(queue, session, wait))
    run_id = await asyncio.wait_for(begun.get(), WAIT_S)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert (await queue.get(run_id)).status == "cancelled"
    assert (await execute(queue, session)).status == "completed"


async def test_a_run_whose_session_was_taken_over_is_ended_by_the_other(
    queue: TurnQueue, elsewhere: TurnQueue, session: Session, clock: FakeClock
) -> None:
    async def lose(turn: Turn) -> Outcome:
        clock.advance(60)
        assert await elsewhere.drain(session.id, complete) == 1
        await turn.add_message(words(session, "too late"))
        return TurnCompleted()

    run = await execute(queue, session, lose)
    assert run.status == "completed"
    assert run.result == {"run": run.id}


async def test_steering_that_comes_too_late_becomes_a_turn(
    queue: TurnQueue, journal: Journal, session: Session
) -> None:
    async def answer(turn: Turn) -> Outcome:
        if turn.request.message is not None and turn.request.message.text == "hello":
            await queue.submit(session.id, words(session, "and more"), on_busy="steer")
        return TurnCompleted()

    run = await execute(queue, session, answer)
    assert run.status == "completed"
    assert (await kinds(journal, session)).count("run.queued") == 2


async def test_the_handler_sees_the_message_as_it_is_stored(
    queue: TurnQueue, journal: Journal, session: Session
) -> None:
    journal.redactor = Redactor({"pin": "correct-horse-battery"})
    heard: list[str] = []

    async def listen(turn: Turn) -> Outcome:
        assert turn.request.message is not None
        heard.append(turn.request.message.text)
        await turn.add_message(words(session, "plain"))
        assert not turn.was_redacted
        await turn.add_message(words(session, "correct-horse-battery"))
        assert turn.was_redacted
        return TurnCompleted()

    await execute(queue, session, listen, text="It is correct-horse-battery.")
    assert heard == ["It is [redacted:pin]."]


class SlowStore(MemoryStore):
    """Stores a batch, and says so only when it may go on."""

    def __init__(self) -> None:
        super().__init__(projections=SESSION_PROJECTIONS)
        self.is_slow = False
        self.reached = asyncio.Event()

    async def append(self, request: AppendRequest) -> tuple[Event, ...]:
        stored = await super().append(request)
        if self.is_slow:
            self.is_slow = False
            self.reached.set()
            await asyncio.Event().wait()
        return stored


async def test_a_lease_that_was_taken_for_nobody_is_given_back() -> None:
    store = SlowStore()
    journal = Journal(store)
    keeper = LeaseKeeper(journal)
    manager = SessionManager(journal, keeper)
    queue = TurnQueue(manager, keeper)
    session = await manager.create_session("slow")
    store.is_slow = True
    work = asyncio.create_task(execute(queue, session))
    await asyncio.wait_for(store.reached.wait(), WAIT_S)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    [head] = await store.heads(session.id)
    assert head.owner == ""
    assert (await kinds(journal, session))[-1] == "run.cancelled"
    assert (await execute(queue, session)).status == "completed"
    await queue.close()
    keeper.close()


async def test_only_a_lease_of_ones_own_is_forgone(
    keeper: LeaseKeeper, journal: Journal, session: Session
) -> None:
    lease = await keeper.acquire(session.id)
    assert lease is not None
    await keeper.forgo(session.id)
    [head] = await journal.store.heads(session.id)
    assert head.owner == keeper.owner
    await keeper.release(lease)
    await keeper.forgo(session.id)
    await journal.store.acquire(session.id, "somebody else", 10)
    await keeper.forgo(session.id)
    [head] = await journal.store.heads(session.id)
    assert head.owner == "somebody else"


async def test_a_session_begins_together_with_its_first_run(
    queue: TurnQueue, journal: Journal, manager: SessionManager
) -> None:
    new = make_new_session("Errand", metadata={"k": "v"}, session_id="errand-1")
    begun: list[Session] = []

    async def look(turn: Turn) -> Outcome:
        begun.append(await manager.get_session(turn.session_id))
        return TurnCompleted()

    work = queue.execute(
        new.id,
        compose(new.id, "user", "go", 0.0),
        look,
        run_id="job-1",
        is_new=False,
        opening=new,
    )
    run = await asyncio.wait_for(work, WAIT_S)
    assert run == await queue.get("job-1")
    assert begun == [new.as_of(begun[0].time_created)]
    events = await journal.read(new.id)
    assert [event.kind for event in events] == [
        "session.created",
        "run.queued",
        "run.started",
        "run.completed",
    ]
    assert {event.epoch for event in events} == {1}


async def test_a_session_that_began_before_is_used_as_it_is(
    queue: TurnQueue, manager: SessionManager
) -> None:
    new = make_new_session("Errand", session_id="errand-1")
    await manager.create_session("Known", session_id="errand-1")
    for _ in range(2):
        work = queue.execute(
            new.id,
            compose(new.id, "user", "go", 0.0),
            complete,
            run_id="job-1",
            is_new=False,
            opening=new,
        )
        assert (await asyncio.wait_for(work, WAIT_S)).result == {"run": "job-1"}
    assert (await manager.get_session(new.id)).title == "Known"
