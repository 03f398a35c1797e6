"""A submission that its caller gives up leaves nothing behind."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.journal import AppendRequest, Event, Journal, MemoryStore
from holdfast.sessions import SESSION_PROJECTIONS, SessionManager
from holdfast.turns import LeaseKeeper, Turn, TurnCompleted, TurnQueue


class SlowStore(MemoryStore):
    """A store that takes a batch only when it is told to go on."""

    def __init__(self) -> None:
        super().__init__(projections=SESSION_PROJECTIONS)
        self.is_slow = False
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()

    async def append(self, request: AppendRequest) -> tuple[Event, ...]:
        if self.is_slow:
            self.reached.set()
            await self.go_on.wait()
        return await super().append(request)


async def test_submission_cancelled_before_it_is_stored_leaves_no_run() -> None:
    store = SlowStore()
    journal = Journal(store)
    keeper = LeaseKeeper(journal)
    manager = SessionManager(journal, keeper)
    queue = TurnQueue(manager, keeper)
    session = await manager.create_session("slow")
    store.is_slow = True
    submitting = asyncio.create_task(queue.submit(session.id, run_id="job"))
    await asyncio.wait_for(store.reached.wait(), 10)
    submitting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await submitting
    assert await queue.find("job") is None
    await queue.close()
    keeper.close()


async def test_what_is_cancelled_while_the_process_leaves_stays_interrupted() -> None:
    journal = Journal(MemoryStore(projections=SESSION_PROJECTIONS))
    keeper = LeaseKeeper(journal)
    manager = SessionManager(journal, keeper)
    queue = TurnQueue(manager, keeper)
    session = await manager.create_session("left")
    begun = asyncio.Event()

    async def wait(turn: Turn) -> TurnCompleted:
        begun.set()
        await asyncio.Event().wait()
        return TurnCompleted()

    run = await queue.submit(session.id, run_id="job")
    running = asyncio.create_task(queue.run(run.id, wait))
    await asyncio.wait_for(begun.wait(), 10)
    assert queue.executor.active == 1
    queue.is_leaving = True
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await queue.get("job")).status == "running"
    assert [one.id for one in await manager.list_interrupted_runs()] == ["job"]
    await queue.close()
    keeper.close()
