"""Who loses the lease stops: what runs is cancelled, nothing is stored."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from holdfast.errors import LeaseLost, StorageFull
from holdfast.journal import Journal, MemoryStore
from holdfast.sessions import SESSION_PROJECTIONS, Session, SessionManager
from holdfast.sessions.events import SessionArchived
from holdfast.testing import FakeClock
from holdfast.turns import Lease, LeaseKeeper, Outcome, Turn, TurnCompleted, TurnQueue

WAIT_S = 30
TTL_S = 30.0


class Handler:
    """Waits in its first call until it is cancelled; the next one ends the run."""

    def __init__(self, *, is_stubborn: bool = False) -> None:
        self.turns: list[Turn] = []
        self.began = asyncio.Event()
        self.was_cancelled = asyncio.Event()
        self._is_stubborn = is_stubborn

    async def __call__(self, turn: Turn) -> Outcome:
        self.turns.append(turn)
        if len(self.turns) > 1:
            return TurnCompleted(result={"by": "the next attempt"})
        self.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled.set()
            with pytest.raises(LeaseLost):
                await turn.append(SessionArchived())
            if not self._is_stubborn:
                raise
        return TurnCompleted(result={"by": "the overtaken attempt"})


@pytest.fixture
def thief(journal: Journal) -> LeaseKeeper:
    return LeaseKeeper(journal)


async def steal(clock: FakeClock, thief: LeaseKeeper, session: Session) -> Lease:
    """Let the lease run out and take it, before its keeper's thread looks at the clock."""
    while True:
        clock.advance(TTL_S + 1)
        lease = await thief.acquire(session.id)
        if lease is not None:
            return lease


@contextlib.asynccontextmanager
async def overtaken(
    clock: FakeClock, keeper: LeaseKeeper, thief: LeaseKeeper, session: Session
) -> Any:
    """Let the lease run out, take it elsewhere, and let the keeper notice; then give it back."""
    lease = await steal(clock, thief, session)
    await asyncio.to_thread(keeper._renew)
    yield lease
    await thief.release(lease)
    thief.close()


@pytest.mark.parametrize("is_stubborn", (False, True))
async def test_a_lost_lease_stops_the_work_and_the_run_goes_on_elsewhere(
    clock: FakeClock,
    keeper: LeaseKeeper,
    thief: LeaseKeeper,
    queue: TurnQueue,
    session: Session,
    is_stubborn: bool,
) -> None:
    handler = Handler(is_stubborn=is_stubborn)
    run = await queue.submit(session.id)
    running = asyncio.create_task(queue.run(run.id, handler))
    await asyncio.wait_for(handler.began.wait(), WAIT_S)
    async with overtaken(clock, keeper, thief, session) as lease:
        async with asyncio.timeout(WAIT_S):
            await handler.was_cancelled.wait()
        assert handler.turns[0].has_lost_lease
        assert not handler.turns[0].is_still_mine()
        assert (await queue.get(run.id)).status == "running"
        assert lease.unproved_epoch == handler.turns[0].epoch
    ended = await asyncio.wait_for(running, WAIT_S)
    assert ended.result == {"by": "the next attempt"}
    assert handler.turns[1].is_resumed
    assert running.cancelling() == 0


async def test_a_caller_who_is_cancelled_as_well_hears_of_that(
    clock: FakeClock,
    keeper: LeaseKeeper,
    thief: LeaseKeeper,
    queue: TurnQueue,
    session: Session,
) -> None:
    handler = Handler()
    run = await queue.submit(session.id)
    running = asyncio.create_task(queue.run(run.id, handler))
    await asyncio.wait_for(handler.began.wait(), WAIT_S)
    running.cancel()
    handler.turns[0].overtake()
    handler.turns[0].overtake()
    with pytest.raises(asyncio.CancelledError):
        await running
    thief.close()


async def test_a_run_inside_an_overtaken_one_is_left_as_it_is(
    clock: FakeClock,
    keeper: LeaseKeeper,
    thief: LeaseKeeper,
    queue: TurnQueue,
    manager: SessionManager,
    session: Session,
) -> None:
    """It was started by the other run; whoever goes on with that goes on with this."""
    inner_session = await manager.create_session("Inner")
    inner = Handler()
    child = await queue.submit(inner_session.id)
    began = asyncio.Event()
    outer_turns: list[Turn] = []

    async def outer(turn: Turn) -> Outcome:
        outer_turns.append(turn)
        if len(outer_turns) == 1:
            began.set()
        await queue.run(child.id, inner)
        return TurnCompleted()

    run = await queue.submit(session.id)
    running = asyncio.create_task(queue.run(run.id, outer))
    await asyncio.wait_for(inner.began.wait(), WAIT_S)
    assert inner.turns[0].enclosing is outer_turns[0]
    outer_turns[0].overtake()
    ended = await asyncio.wait_for(running, WAIT_S)
    assert inner.was_cancelled.is_set()
    assert ended.status == "completed"
    found = await queue.get(child.id)
    assert (found.status, found.is_cancel_requested) == ("completed", False)
    thief.close()


async def test_a_lease_is_known_to_be_held_until_its_time_is_over(
    clock: FakeClock, keeper: LeaseKeeper, thief: LeaseKeeper, session: Session
) -> None:
    lease = await keeper.acquire(session.id)
    assert lease is not None
    assert keeper.does_still_hold(lease)
    # Stopped for long, but nobody has come: it is renewed, and still held.
    clock.advance(TTL_S + 1)
    assert keeper.does_still_hold(lease)
    clock.advance(TTL_S - 1)
    assert keeper.does_still_hold(lease)
    await steal(clock, thief, session)
    assert not keeper.does_still_hold(lease)
    assert not keeper.does_still_hold(lease)
    thief.close()


async def test_a_last_look_before_an_effect_stops_the_turn_that_lost_its_lease(
    clock: FakeClock,
    keeper: LeaseKeeper,
    thief: LeaseKeeper,
    queue: TurnQueue,
    session: Session,
) -> None:
    """Also where the thread that renews has not looked yet."""
    lost: list[bool] = []

    async def handler(turn: Turn) -> Outcome:
        if turn.is_resumed:
            return TurnCompleted()
        assert turn.is_still_mine()
        lease = await steal(clock, thief, session)
        lost.append(turn.is_still_mine())
        await thief.release(lease)
        return TurnCompleted(result={"by": "the overtaken attempt"})

    run = await queue.submit(session.id)
    ended = await asyncio.wait_for(queue.run(run.id, handler), WAIT_S)
    assert (lost, ended.result) == ([False], {})
    thief.close()


class Busy(MemoryStore):
    """Lets a lease be given back while it is being renewed."""

    def renew(self, held: dict[str, int], owner: str, ttl_s: float) -> set[str]:
        lost = super().renew(held, owner, ttl_s)
        for session_id in held:
            self.keeper._held.pop(session_id)
        return lost

    keeper: LeaseKeeper


async def test_a_lease_that_is_given_back_while_it_is_renewed_is_not_lost() -> None:
    store = Busy(projections=SESSION_PROJECTIONS)
    journal = Journal(store)
    keeper = store.keeper = LeaseKeeper(journal)
    lost: list[str] = []
    keeper.on_loss(lambda session_id, epoch: lost.append(session_id))
    session = await SessionManager(journal, keeper).create_session("A")
    assert await keeper.acquire(session.id) is not None
    assert keeper._renew()
    assert (lost, keeper._held) == ([], {})
    keeper.close()


async def test_a_lease_that_goes_with_the_last_facts_of_a_turn_is_not_reported_as_lost() -> None:
    journal = Journal(MemoryStore(projections=SESSION_PROJECTIONS))
    keeper = LeaseKeeper(journal)
    lost: list[str] = []
    keeper.on_loss(lambda session_id, epoch: lost.append(session_id))
    session = await SessionManager(journal, keeper).create_session("A")
    lease = await keeper.acquire(session.id)
    assert lease is not None
    # What a loop without time does: it is stored, and the keeper is told of it later.
    await journal.append(session.id, [SessionArchived()], epoch=lease.epoch, release=True)
    assert keeper._renew()
    assert lost == []
    keeper.let_go(lease)
    assert keeper._renew()
    assert (lost, keeper._held) == ([], {})
    keeper.close()


async def test_a_lease_that_stays_away_is_lost_before_its_time_is_over() -> None:
    journal = Journal(MemoryStore(projections=SESSION_PROJECTIONS))
    keeper = LeaseKeeper(journal)
    lost: list[str] = []
    keeper.on_loss(lambda session_id, epoch: lost.append(session_id))
    session = await SessionManager(journal, keeper).create_session("A")
    lease = await keeper.acquire(session.id)
    assert lease is not None
    await journal.append(session.id, [SessionArchived()], epoch=lease.epoch, release=True)
    assert keeper._renew()
    assert keeper._renew()
    assert lost == [session.id]
    keeper.close()


class Full(MemoryStore):
    is_full = False

    def renew(self, held: dict[str, int], owner: str, ttl_s: float) -> set[str]:
        if self.is_full:
            raise StorageFull(path="memory")
        return super().renew(held, owner, ttl_s)


async def test_a_lease_that_cannot_be_verified_counts_as_lost() -> None:
    clock = FakeClock()
    store = Full(projections=SESSION_PROJECTIONS, clock=clock)
    journal = Journal(store, clock=clock)
    keeper = LeaseKeeper(journal, ttl_s=TTL_S)
    lost: list[tuple[str, int]] = []
    keeper.on_loss(lambda session_id, epoch: lost.append((session_id, epoch)))
    session = await SessionManager(journal, keeper).create_session("A")
    lease = await keeper.acquire(session.id)
    assert lease is not None
    store.is_full = True
    clock.advance(TTL_S - 1)
    assert keeper.does_still_hold(lease)
    assert not keeper._renew()
    assert lost == []
    clock.advance(1)
    assert not keeper.does_still_hold(lease)
    assert lost == [(session.id, lease.epoch)]
    store.is_full = False
    keeper.close()


async def test_a_loss_after_the_loop_has_ended_tells_nobody(
    keeper: LeaseKeeper, queue: TurnQueue, session: Session
) -> None:
    queue.executor._note_loss(session.id, 1)

    async def handler(turn: Turn) -> Outcome:
        queue.executor._overtake("another session", turn.epoch)
        return TurnCompleted()

    run = await queue.submit(session.id)
    assert (await queue.run(run.id, handler)).status == "completed"
    ended = asyncio.new_event_loop()
    ended.close()
    queue.executor._loop = ended
    queue.executor._note_loss(session.id, 1)
