"""What another process does just before the lease is taken is heeded once it is held."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from holdfast.errors import NotFound, StorageFull
from holdfast.journal import Journal
from holdfast.sessions import Lease, Run, Session, SessionManager, compose
from holdfast.sessions.events import RunCancelled
from holdfast.turns import LeaseKeeper, Outcome, Turn, TurnCompleted, TurnParked, TurnQueue
from holdfast.turns.outcomes import finish

WAIT_S = 20


class LateKeeper(LeaseKeeper):
    """Lets another process act just before the next lease is taken."""

    before: Callable[[], Awaitable[object]] | None = None

    async def acquire(self, session_id: str) -> Lease | None:
        if self.before is not None:
            act, self.before = self.before, None
            await act()
        return await super().acquire(session_id)


@pytest.fixture
def late_keeper(journal: Journal) -> LateKeeper:
    return LateKeeper(journal)


@pytest.fixture
async def late(journal: Journal, late_keeper: LateKeeper) -> AsyncIterator[TurnQueue]:
    queue = TurnQueue(SessionManager(journal, late_keeper), late_keeper)
    yield queue
    await queue.close()
    late_keeper.close()


async def complete(turn: Turn) -> Outcome:
    return TurnCompleted(result={"run": turn.run.id})


async def park(turn: Turn) -> Outcome:
    return TurnParked(reason="asks")


async def check_free(queue: TurnQueue, session: Session) -> None:
    """The session was given back: another process executes its next run."""
    run = await queue.submit(session.id)
    assert (await asyncio.wait_for(queue.run(run.id, complete), WAIT_S)).status == "completed"


async def test_a_run_that_ends_before_the_lease_is_taken_is_not_executed(
    late: TurnQueue, late_keeper: LateKeeper, elsewhere: TurnQueue, session: Session
) -> None:
    run = await late.submit(session.id)
    late_keeper.before = lambda: elsewhere.cancel(run.id, reason="first")
    assert await late.drain(session.id, complete) == 0
    ended = await late.get(run.id)
    assert (ended.status, ended.reason) == ("cancelled", "first")
    await check_free(elsewhere, session)


async def test_a_run_that_ends_before_its_cancellation_holds_the_lease_ends_once(
    late: TurnQueue,
    late_keeper: LateKeeper,
    elsewhere: TurnQueue,
    session: Session,
    journal: Journal,
) -> None:
    run = await late.submit(session.id)
    assert (await late.run(run.id, park)).status == "parked"
    first: list[Run] = []

    async def cancel_first() -> None:
        first.append(await elsewhere.cancel(run.id))

    late_keeper.before = cancel_first
    ended = await late.cancel(run.id)
    assert [one.status for one in (*first, ended)] == ["cancelled", "cancelled"]
    kinds = [event.kind for event in await journal.read(session.id)]
    assert kinds.count(RunCancelled.kind) == 1
    await check_free(elsewhere, session)


async def test_steering_where_no_run_is_under_way_says_so_and_stores_nothing(
    queue: TurnQueue, session: Session, journal: Journal
) -> None:
    message = compose(session.id, "user", "to the left", 0.0)

    async def is_refused() -> None:
        before = await journal.read_last_seq()
        with pytest.raises(NotFound, match=session.id):
            await queue.steer(session.id, message)
        assert await journal.read_last_seq() == before

    await is_refused()
    run = await queue.submit(session.id)
    await is_refused()
    assert (await queue.run(run.id, park)).status == "parked"
    await is_refused()


async def test_what_must_be_done_is_done_to_its_end_though_its_caller_is_cancelled_again() -> None:
    begun, may_end, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await may_end.wait()
        done.set()
        raise StorageFull(path="journal.db")  # a cancelled caller cannot be told

    finishing = asyncio.create_task(finish(work()))
    await asyncio.wait_for(begun.wait(), WAIT_S)
    for _ in range(2):
        finishing.cancel()
        await asyncio.sleep(0)
    assert not finishing.done()
    may_end.set()
    assert await asyncio.wait_for(finishing, WAIT_S) is True
    assert done.is_set()
