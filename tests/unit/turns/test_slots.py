"""As many turns at once as the process may open files and threads for; the rest waits."""

from __future__ import annotations

import asyncio
import builtins
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from holdfast.ids import make_id
from holdfast.sessions import Session, SessionManager, compose
from holdfast.turns import Outcome, Turn, TurnCompleted, TurnQueue, slots
from holdfast.turns.slots import TurnSlots, count_places

WAIT_S = 30


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "count_places", lambda: 2)


async def test_turns_beyond_the_places_wait_in_order(narrow: None) -> None:
    places, begun = TurnSlots(), []
    gate = asyncio.Event()

    async def one(number: int) -> None:
        assert await places.take()
        begun.append(number)
        await gate.wait()
        places.give_back()

    tasks = [asyncio.create_task(one(number)) for number in range(6)]
    await asyncio.sleep(0)
    assert begun == [0, 1]
    tasks[3].cancel()
    gate.set()
    await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), WAIT_S)
    assert begun == [0, 1, 2, 4, 5]
    assert places._taken == 0


async def test_a_place_that_comes_with_the_cancellation_goes_to_the_next(narrow: None) -> None:
    places = TurnSlots()
    assert await places.take() and await places.take()
    waiting = asyncio.create_task(places.take())
    after = asyncio.create_task(places.take())
    await asyncio.sleep(0)
    places.give_back()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await asyncio.wait_for(after, WAIT_S)
    assert places._taken == 2


@pytest.mark.parametrize("is_roomy", (True, False))
async def test_where_nothing_moves_one_more_begins_if_there_is_room(
    narrow: None, monkeypatch: pytest.MonkeyPatch, is_roomy: bool
) -> None:
    """Those who hold the places may all wait for runs that stand here."""
    looked = asyncio.Event()

    def answer() -> bool:
        looked.set()
        return is_roomy

    monkeypatch.setattr(slots, "_LOOK_S", 0.02)
    monkeypatch.setattr(slots, "is_roomy", answer)
    places = TurnSlots()
    assert await places.take() and await places.take()
    first, second = asyncio.create_task(places.take()), asyncio.create_task(places.take())
    await asyncio.wait_for(looked.wait(), WAIT_S)
    if is_roomy:
        assert await asyncio.wait_for(first, WAIT_S)
    else:
        assert not first.done()
    for task in (first, second):
        task.cancel()
    await asyncio.gather(first, second, return_exceptions=True)


async def test_a_run_inside_another_one_needs_no_place(
    monkeypatch: pytest.MonkeyPatch, queue: TurnQueue, manager: SessionManager, session: Session
) -> None:
    monkeypatch.setattr(slots, "count_places", lambda: 1)
    inner_session = await manager.create_session("Inner")

    async def inner(turn: Turn) -> Outcome:
        return TurnCompleted()

    async def outer(turn: Turn) -> Outcome:
        child = await queue.submit(inner_session.id)
        ended = await queue.run(child.id, inner)
        return TurnCompleted(result={"child": ended.status})

    run = await queue.submit(session.id)
    ended = await asyncio.wait_for(queue.run(run.id, outer), WAIT_S)
    assert ended.result == {"child": "completed"}


async def test_a_run_that_is_executed_at_once_inside_another_one_needs_no_place(
    monkeypatch: pytest.MonkeyPatch, queue: TurnQueue, manager: SessionManager, session: Session
) -> None:
    monkeypatch.setattr(slots, "count_places", lambda: 1)
    below = await manager.create_session("Inner")

    async def inner(turn: Turn) -> Outcome:
        return TurnCompleted()

    async def outer(turn: Turn) -> Outcome:
        message = compose(below.id, "user", "hello", 0.0)
        ended = await queue.execute(below.id, message, inner, run_id=make_id("run"), is_new=True)
        return TurnCompleted(result={"child": ended.status})

    message = compose(session.id, "user", "hello", 0.0)
    for _ in range(2):  # the one place was given back
        work = queue.execute(session.id, message, outer, run_id=make_id("run"), is_new=True)
        assert (await asyncio.wait_for(work, WAIT_S)).result == {"child": "completed"}


def test_places_follow_from_what_may_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "_compute_most_threads", lambda: 10_000.0)
    monkeypatch.setattr(slots, "_count_open", lambda: 16)
    for files, places in ((1024, 118), (80, 4), (resource.RLIM_INFINITY, 9968)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert count_places() == places
    monkeypatch.setattr(slots, "_compute_most_threads", lambda: 100.0)
    assert count_places() == 68
    assert slots.is_roomy()


def test_a_user_s_threads_and_those_of_its_group_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (500, 500))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert slots._compute_most_threads() <= 250
    read = {"pids.max": "90", "pids.current": "30", "cgroup": "0::/some/group"}
    monkeypatch.setattr(Path, "read_text", lambda path, **_: read[path.name])
    assert slots._compute_most_threads() == 60
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    read["pids.max"] = "max"
    assert slots._compute_most_threads() == float("inf")


def test_a_system_that_tells_nothing_is_taken_for_a_small_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: str) -> Any:
        raise FileNotFoundError

    monkeypatch.setattr(os, "listdir", refuse)
    assert slots._count_open() == 0
    importing = builtins.__import__

    def without(name: str, *words: Any) -> Any:
        if name == "resource":
            raise ImportError(name)
        return importing(name, *words)

    monkeypatch.setattr(builtins, "__import__", without)
    assert slots._limit("RLIMIT_NOFILE") == 1024
