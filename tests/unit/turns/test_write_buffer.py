"""Facts that wait for company: in order, never lost while the process lives."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import StorageFull, UsageError
from holdfast.turns.turn import WriteBuffer


class Log:
    """Stores what it is given; can be full, or slow."""

    def __init__(self) -> None:
        self.stored: list[str] = []
        self.is_full = False
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.was_asked = asyncio.Event()
        self.has_stored = asyncio.Event()

    async def store(self, payloads):
        self.was_asked.set()
        await self.may_go_on.wait()
        if self.is_full:
            raise StorageFull(path="log")
        self.stored += payloads
        self.has_stored.set()


async def test_what_nobody_takes_is_stored_a_moment_later():
    log = Log()
    facts = WriteBuffer(log.store)
    facts.add("1")
    facts.add("2")
    facts.add("3")
    await asyncio.wait_for(log.has_stored.wait(), 10)
    await facts.flush()
    assert log.stored == ["1", "2", "3"]


async def test_the_next_append_takes_what_waits():
    log = Log()
    facts = WriteBuffer(log.store)
    facts.add("1")
    facts.add("2")
    assert await facts.take() == ["1", "2"]
    assert log.stored == []


async def test_a_taker_waits_for_what_is_being_stored():
    log = Log()
    facts = WriteBuffer(log.store)
    log.may_go_on.clear()
    facts.add("1")
    await asyncio.wait_for(log.was_asked.wait(), 10)
    facts.add("2")
    taking = asyncio.create_task(facts.take())
    await asyncio.sleep(0)
    assert not taking.done()
    log.may_go_on.set()
    assert await taking == []
    assert log.stored == ["1", "2"]


async def test_what_could_not_be_stored_waits_and_the_next_one_hears_of_it():
    log = Log()
    facts = WriteBuffer(log.store)
    log.is_full = True
    facts.add("1")
    await asyncio.wait_for(log.was_asked.wait(), 10)
    await asyncio.sleep(0)
    with pytest.raises(StorageFull):
        await facts.flush()
    log.is_full = False
    assert await facts.take() == ["1"]
    facts.put_back(["1"])
    await facts.flush()
    assert log.stored == ["1"]


async def test_nothing_waiting_costs_nothing():
    log = Log()
    facts = WriteBuffer(log.store)
    await facts.flush()
    assert await facts.take() == []
    facts.add("1")
    assert await facts.take() == ["1"]
    fired = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.03, fired.set_result, None)
    await fired
    assert log.stored == []


async def test_what_came_after_an_append_waits_its_own_moment():
    log = Log()
    facts = WriteBuffer(log.store)
    loop = asyncio.get_running_loop()
    facts.add("1")
    first = facts._timer
    assert await facts.take() == ["1"]
    facts.add("2")
    # The timer of the first one, as if it fired right now.
    facts._store_soon(loop)
    assert facts._timer is not None and facts._timer is not first
    assert log.stored == []
    await asyncio.wait_for(log.has_stored.wait(), 10)
    assert log.stored == ["2"]
    first.cancel()


async def test_what_could_not_be_stored_is_tried_again_when_more_comes():
    log = Log()
    facts = WriteBuffer(log.store)
    log.is_full = True
    facts.add("1")
    await asyncio.wait_for(log.was_asked.wait(), 10)
    await asyncio.sleep(0)
    log.is_full = False
    facts.add("2")
    await asyncio.wait_for(log.has_stored.wait(), 10)
    assert log.stored == ["1", "2"]


async def test_whoever_stores_is_not_asked_any_more_after_the_end():
    log = Log()
    facts = WriteBuffer(log.store)
    facts.add("1")
    assert await facts.take() == ["1"]
    facts.end()
    facts.end()
    facts.add("2")
    with pytest.raises(UsageError):
        await facts.flush()
    assert log.stored == []
