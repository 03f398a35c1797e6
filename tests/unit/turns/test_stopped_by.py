"""Who stopped a run where it asked is a fact of its own, whatever state the run is in."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.journal import decode_payload
from holdfast.sessions import Run, Session
from holdfast.sessions.events import RunCancelled, RunCancelRequested
from holdfast.turns import Outcome, Turn, TurnCancelled, TurnParked, TurnQueue

WAIT_S = 20
WHY = {"reason": "ann stopped the run", "stopped_by": "ann"}


def how(run: Run) -> tuple[str, str, str]:
    return run.status, run.reason, run.stopped_by


async def park(turn: Turn) -> Outcome:
    return TurnParked(reason="approval")


async def test_a_run_that_waits_in_the_queue_or_is_parked_says_who_stopped_it(
    queue: TurnQueue, session: Session
) -> None:
    parked = await queue.submit(session.id)
    await queue.run(parked.id, park)
    queued = await queue.submit(session.id)
    for run in (queued, parked):
        assert how(await queue.cancel(run.id, **WHY)) == ("cancelled", *WHY.values())


@pytest.mark.parametrize("ending", [TurnCancelled(), TurnParked(reason="approval")])
@pytest.mark.parametrize("is_elsewhere", [False, True])
async def test_a_run_under_way_says_who_stopped_it_however_it_ends(
    queue: TurnQueue, elsewhere: TurnQueue, session: Session, ending: Outcome, is_elsewhere: bool
) -> None:
    begun = asyncio.Event()

    async def until_told(turn: Turn) -> Outcome:
        begun.set()
        await turn.cancelled.wait()
        assert turn.stopped_by == "ann"
        return ending

    run = await queue.submit(session.id)
    async with asyncio.timeout(WAIT_S):
        work = asyncio.create_task(queue.run(run.id, until_told))
        await begun.wait()
        await (elsewhere if is_elsewhere else queue).cancel(run.id, **WHY)
        assert how(await work) == ("cancelled", *WHY.values())


async def test_a_handler_says_who_stopped_its_run(queue: TurnQueue, session: Session) -> None:
    async def stop(turn: Turn) -> Outcome:
        return TurnCancelled(**WHY)

    run = await queue.submit(session.id)
    assert how(await queue.run(run.id, stop)) == ("cancelled", *WHY.values())


def test_facts_that_were_kept_before_name_nobody() -> None:
    data = b'{"run_id":"run_1","reason":"ann stopped the run"}'
    for fact in (RunCancelled, RunCancelRequested):
        found = decode_payload(fact.kind, 1, data)
        assert found == fact(run_id="run_1", reason="ann stopped the run", stopped_by="")
