"""Leases: one holder at a time, kept alive by a thread."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import LeaseLost, SessionBusy, StorageFull
from holdfast.journal import Journal, MemoryStore, SqliteStore
from holdfast.sessions import SESSION_PROJECTIONS, Session, SessionManager
from holdfast.sessions.events import SessionArchived
from holdfast.testing import FakeClock
from holdfast.turns import LeaseKeeper, Turn, TurnCompleted, TurnQueue, leases


class FullOnce(MemoryStore):
    """A store that cannot renew the first time it is asked to, and notes the next time."""

    def __init__(self) -> None:
        super().__init__(projections=SESSION_PROJECTIONS)
        self.is_full = threading.Event()
        self.has_failed = threading.Event()
        self.has_renewed = threading.Event()

    def renew(self, held: Any, owner: str, ttl_s: float) -> Any:
        if self.is_full.is_set():
            self.is_full.clear()
            self.has_failed.set()
            raise StorageFull(path="journal.db")
        if self.has_failed.is_set() and held:
            self.has_renewed.set()
        return super().renew(held, owner, ttl_s)


async def test_the_thread_tries_again_when_a_renewal_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leases, "_LOOK_AT_CLOCK_S", 0.1)  # more often than it renews
    store = FullOnce()
    async with Journal(store) as journal:
        keeper = LeaseKeeper(journal, ttl_s=3.0)
        session = await SessionManager(journal, keeper).create_session("held")
        lease = await keeper.acquire(session.id)
        assert lease is not None
        store.is_full.set()
        assert await asyncio.to_thread(store.has_renewed.wait, 30)
        assert keeper.does_still_hold(lease)
        keeper.close()


async def test_a_lease_has_one_holder_and_a_new_epoch_each_time(
    journal: Journal, keeper: LeaseKeeper, session: Session
) -> None:
    other = LeaseKeeper(journal)
    first = await keeper.acquire(session.id)
    assert first is not None
    assert await keeper.acquire(session.id) is None
    assert await other.acquire(session.id) is None
    with pytest.raises(SessionBusy):
        await other.wait_for(session.id, 0)
    await keeper.release(first)
    second = await other.wait_for(session.id, 0)
    assert second.epoch > first.epoch
    with pytest.raises(LeaseLost):
        await journal.append(session.id, [SessionArchived()], epoch=first.epoch)
    await keeper.release(first)
    assert await keeper.acquire(session.id) is None
    await other.release(second)
    other.close()
    other.close()


async def test_whoever_waits_gets_the_lease_as_soon_as_it_is_free(
    keeper: LeaseKeeper, session: Session
) -> None:
    lease = await keeper.acquire(session.id)
    assert lease is not None
    waiting = asyncio.create_task(keeper.wait_for(session.id, 30))
    await asyncio.sleep(0)
    await keeper.release(lease)
    await keeper.release(await asyncio.wait_for(waiting, 10))


async def test_a_process_that_closes_gives_everything_back(
    journal: Journal, keeper: LeaseKeeper, session: Session
) -> None:
    other = LeaseKeeper(journal)
    assert await other.acquire(session.id) is not None
    assert await journal.store.is_alive(other.owner)
    other.close()
    assert not await journal.store.is_alive(other.owner)
    assert await keeper.acquire(session.id) is not None
    await other.show_presence()
    assert not await journal.store.is_alive(other.owner)


class Faulty(MemoryStore):
    """Cannot renew for a while; says how often it was asked."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.is_full = False
        self.asked = threading.Semaphore(0)
        self.renewing = threading.RLock()
        """While the test holds it, no renewal happens."""

    def renew(self, held: dict[str, int], owner: str, ttl_s: float) -> set[str]:
        with self.renewing:
            if self.is_full:
                self.asked.release()
                raise StorageFull(path="memory")
            lost = super().renew(held, owner, ttl_s)
            self.asked.release()
            return lost


async def wait_for(asked: threading.Semaphore, times: int) -> None:
    for _ in range(times):
        assert await asyncio.to_thread(asked.acquire, timeout=20)


async def test_renewal_goes_on_after_a_failure_and_notices_what_is_lost() -> None:
    clock = FakeClock()
    store = Faulty(projections=SESSION_PROJECTIONS, clock=clock)
    journal = Journal(store, clock=clock)
    keeper, thief = LeaseKeeper(journal, ttl_s=0.03), LeaseKeeper(journal, ttl_s=1000)
    manager = SessionManager(journal, keeper)
    first, second = await manager.create_session("A"), await manager.create_session("B")
    await thief.show_presence()
    await keeper.acquire(first.id)
    kept = await keeper.acquire(second.id)
    assert kept is not None
    store.is_full = True
    await wait_for(store.asked, 3)
    with store.renewing:
        # No renewal comes between the end of the lease and the thief.
        store.is_full = False
        clock.advance(1)
        assert await thief.acquire(first.id) is not None
    while store.asked.acquire(blocking=False):
        pass
    await wait_for(store.asked, 3)
    head = await journal.head(second.id)
    assert head is not None
    assert (head.epoch, head.is_held) == (kept.epoch, True)
    assert set(keeper._held) == {second.id}
    store.is_full = True
    keeper.close()
    store.is_full = False
    thief.close()


async def test_a_blocked_loop_keeps_its_lease(tmp_path: Path) -> None:
    """The loop stands still for several times the lease's life; nobody can take it."""
    ttl_s = 0.6
    store = SqliteStore(tmp_path / "journal.db", projections=SESSION_PROJECTIONS)
    async with Journal(store) as journal:
        keeper = LeaseKeeper(journal, ttl_s=ttl_s)
        manager = SessionManager(journal, keeper)
        queue = TurnQueue(manager, keeper)
        session = await manager.create_session("Blocked")
        attempts: list[bool] = []

        def steal() -> None:
            """Another process: its own connection, its own loop, its own owner."""

            async def attempt() -> None:
                other = SqliteStore(tmp_path / "journal.db", projections=SESSION_PROJECTIONS)
                async with Journal(other) as there:
                    deadline = time.monotonic() + 4 * ttl_s
                    while time.monotonic() < deadline:
                        head = await there.store.acquire(session.id, "thief", 1.0)
                        attempts.append(head is not None)
                        await there.store.changed(10**9, 0.02)

            asyncio.run(attempt())

        async def handler(turn: Turn) -> TurnCompleted:
            thread = threading.Thread(target=steal)
            thread.start()
            thread.join(timeout=30)  # blocks the loop, as bad code does
            return TurnCompleted()

        run = await queue.submit(session.id)
        assert (await queue.run(run.id, handler)).status == "completed"
        assert len(attempts) > 3
        assert not any(attempts)
        await queue.close()
        keeper.close()
