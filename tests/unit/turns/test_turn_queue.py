"""The turn queue: order, steering, cancellation, parking, crashes, zombies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from holdfast.errors import (
    AlreadyExists,
    InvalidId,
    InvalidTransition,
    LeaseLost,
    NotFound,
    RunInTheWay,
    SessionBusy,
    StorageFull,
    ToolError,
    UsageError,
)
from holdfast.journal import Batch, Journal
from holdfast.messages import Message
from holdfast.sessions import Run, Session, SessionManager, compose
from holdfast.sessions.events import RunQueued, RunStarted
from holdfast.testing import FakeClock
from holdfast.turns import (
    LeaseKeeper,
    Outcome,
    Turn,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnParked,
    TurnQueue,
)

WAIT_S = 20


class Gate:
    """A handler that says when it has begun and waits until it may go on."""

    def __init__(self, outcome: Callable[[Turn], Awaitable[Outcome]] | None = None) -> None:
        self.begun = asyncio.Event()
        self.open = asyncio.Event()
        self.turn: Turn | None = None
        self._outcome = outcome

    async def __call__(self, turn: Turn) -> Outcome:
        self.turn = turn
        self.begun.set()
        await self.open.wait()
        return await self._outcome(turn) if self._outcome else TurnCompleted(result={"done": True})

    async def begin(self, queue: TurnQueue, run: Run) -> asyncio.Task[Run]:
        task = asyncio.create_task(queue.run(run.id, self))
        await asyncio.wait_for(self.begun.wait(), WAIT_S)
        return task


async def complete(turn: Turn) -> Outcome:
    return TurnCompleted(result={"run": turn.run.id})


async def until_cancelled(turn: Turn) -> Outcome:
    await asyncio.wait_for(turn.cancelled.wait(), WAIT_S)
    return TurnCancelled()


def words(session: Session, text: str) -> Message:
    return compose(session.id, "user", text, 0.0)


async def texts(manager: SessionManager, session: Session) -> list[str]:
    found = await manager.get_session(session.id)
    return [message.text for message in await manager.messages.all(found)]


async def check_usable(queue: TurnQueue, session: Session) -> None:
    run = await queue.submit(session.id)
    assert (await asyncio.wait_for(queue.run(run.id, complete), WAIT_S)).status == "completed"


async def test_a_run_is_queued_then_running_then_completed(
    queue: TurnQueue, session: Session, clock: FakeClock
) -> None:
    message = words(session, "hello")
    run = await queue.submit(session.slug, message, agent="build", options={"k": 1})
    assert (run.status, run.agent, run.session_id) == ("queued", "build", session.id)
    gate = Gate()
    clock.advance(1)
    work = await gate.begin(queue, run)
    running = await queue.get(run.id)
    assert (running.status, running.time_started) == ("running", clock.now())
    assert gate.turn is not None
    assert gate.turn.request.options == {"k": 1}
    assert gate.turn.request.message == compose_without_session(message)
    assert not gate.turn.is_resumed
    clock.advance(1)
    gate.open.set()
    ended = await asyncio.wait_for(work, WAIT_S)
    assert (ended.status, ended.result, ended.time_ended) == (
        "completed",
        {"done": True},
        clock.now(),
    )
    assert await queue.run(run.id, complete) == ended


def compose_without_session(message: Message) -> Message:
    return msgspec.structs.replace(message, session_id="")


async def test_unknown_runs_and_bad_calls_are_refused(queue: TurnQueue, session: Session) -> None:
    with pytest.raises(NotFound):
        await queue.run("run_unknown", complete)
    with pytest.raises(InvalidId):
        await queue.get("../run")
    with pytest.raises(InvalidId):
        await queue.submit(session.id, run_id="../run")
    with pytest.raises(UsageError):
        await queue.submit(session.id, on_busy="shout")  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        await queue.submit("ses_unknown")


async def test_a_run_that_a_handler_cannot_execute_stays_for_one_who_can(
    queue: TurnQueue, session: Session
) -> None:
    first = await queue.submit(session.id, agent="somebody", is_for_any_process=True)
    second = await queue.submit(session.id)

    async def only_mine(turn: Turn) -> Outcome:
        if turn.run.id != second.id:
            raise turn.make_in_the_way()
        return TurnCompleted()

    with pytest.raises(RunInTheWay) as caught:
        await queue.run(second.id, only_mine)
    told = {"run_id": first.id, "agent": "somebody", "session_id": session.id}
    assert caught.value.context == told
    assert (first.owner, second.owner) == ("", queue.owner)
    assert [(await queue.get(run.id)).has_ended for run in (first, second)] == [False, False]
    assert (await queue.run(first.id, complete)).status == "completed"
    assert (await queue.run(second.id, only_mine)).status == "completed"


async def test_what_stands_in_the_way_elsewhere_fails_a_run_as_anything_does(
    queue: TurnQueue, session: Session
) -> None:
    async def handler(_turn: Turn) -> Outcome:
        raise RunInTheWay(run_id="run_other", agent="somebody", session_id="ses_other")

    run = await queue.run((await queue.submit(session.id)).id, handler)
    assert (run.status, run.error["code"]) == ("failed", "session.run_in_the_way")


async def test_fifty_at_once_are_executed_in_order_each_by_its_own_handler(
    queue: TurnQueue, session: Session, manager: SessionManager
) -> None:
    order: list[int] = []

    async def one(number: int) -> None:
        async def handler(turn: Turn) -> Outcome:
            assert turn.request.options == {"n": number}
            order.append(number)
            await turn.add_message(words(session, f"{number} asks"))
            await asyncio.sleep(0)
            await turn.add_message(words(session, f"{number} answers"))
            return TurnCompleted()

        run = await queue.submit(session.id, options={"n": number})
        assert (await queue.run(run.id, handler)).status == "completed"

    await asyncio.wait_for(asyncio.gather(*(one(n) for n in range(50))), 60)
    assert sorted(order) == list(range(50))
    assert await texts(manager, session) == [
        line for n in order for line in (f"{n} asks", f"{n} answers")
    ]
    queued = [
        event.expect(RunQueued).options["n"]
        for event in await manager.journal.read_all(session.id)
        if event.kind == "run.queued"
    ]
    assert queued == order


async def test_a_caller_gets_its_result_without_waiting_for_those_behind(
    queue: TurnQueue, session: Session
) -> None:
    first, second = await queue.submit(session.id), await queue.submit(session.id)
    gate = Gate()
    behind = asyncio.create_task(queue.run(second.id, gate))
    assert (await asyncio.wait_for(queue.run(first.id, complete), WAIT_S)).status == "completed"
    await asyncio.wait_for(gate.begun.wait(), WAIT_S)
    gate.open.set()
    await asyncio.wait_for(behind, WAIT_S)


async def test_two_who_wait_for_one_run_get_the_same_result(
    queue: TurnQueue, session: Session
) -> None:
    run = await queue.submit(session.id)
    gate = Gate()
    first = await gate.begin(queue, run)
    second = asyncio.create_task(queue.run(run.id, complete))
    gate.open.set()
    results = await asyncio.wait_for(asyncio.gather(first, second), WAIT_S)
    assert results[0] == results[1]
    assert results[0].result == {"done": True}


async def test_one_who_waits_takes_over_when_the_first_is_cancelled_elsewhere(
    queue: TurnQueue, elsewhere: TurnQueue, session: Session
) -> None:
    """A run of nobody: the second caller executes it after the first has failed."""
    run = await queue.submit(session.id, is_for_any_process=True)

    async def breaks(turn: Turn) -> Outcome:
        raise KeyboardInterrupt

    # An exception that is not for us passes through and leaves the run interrupted.
    with pytest.raises(KeyboardInterrupt):
        await drive(queue.run(run.id, breaks))
    assert (await queue.get(run.id)).status == "running"
    assert (await asyncio.wait_for(elsewhere.run(run.id, complete), WAIT_S)).status == "completed"


async def drive(work: Any) -> Any:
    """Await in this task, so that the loop does not see a KeyboardInterrupt."""
    return await work


async def test_reject_raises_while_another_turn_is_there(
    queue: TurnQueue, session: Session
) -> None:
    first = await queue.submit(session.id, on_busy="reject")
    with pytest.raises(SessionBusy):
        await queue.submit(session.id, on_busy="reject")
    await queue.run(first.id, complete)
    results = await asyncio.gather(
        *(queue.submit(session.id, on_busy="reject") for _ in range(5)), return_exceptions=True
    )
    assert sum(isinstance(result, Run) for result in results) == 1
    assert sum(isinstance(result, SessionBusy) for result in results) == 4


async def test_interrupt_ends_the_run_under_way_and_goes_first(
    queue: TurnQueue, session: Session
) -> None:
    under_way = await queue.submit(session.id)
    gate = Gate(until_cancelled)
    gate.open.set()
    work = await gate.begin(queue, under_way)
    behind = await queue.submit(session.id)
    urgent = await queue.submit(session.id, on_busy="interrupt")
    ended = await asyncio.wait_for(work, WAIT_S)
    assert (ended.status, ended.reason) == ("cancelled", f"interrupted by {urgent.id}")
    order: list[str] = []

    async def handler(turn: Turn) -> Outcome:
        order.append(turn.run.id)
        return TurnCompleted()

    await asyncio.wait_for(
        asyncio.gather(queue.run(behind.id, handler), queue.run(urgent.id, handler)), WAIT_S
    )
    assert order == [urgent.id, behind.id]


async def test_interrupt_ends_a_parked_run_at_once(queue: TurnQueue, session: Session) -> None:
    parked = await queue.submit(session.id)
    await queue.run(parked.id, park)
    urgent = await queue.submit(session.id, on_busy="interrupt")
    assert (await queue.get(parked.id)).status == "cancelled"
    assert (await queue.run(urgent.id, complete)).status == "completed"


async def park(turn: Turn) -> Outcome:
    return (
        TurnParked(reason="approval")
        if not turn.is_resumed
        else TurnCompleted(result={"woken": True})
    )


async def test_steering_joins_the_conversation_once_in_the_same_transaction(
    queue: TurnQueue, session: Session, manager: SessionManager, journal: Journal
) -> None:
    taken: list[str] = []

    async def take(turn: Turn) -> Outcome:
        for _ in range(2):
            found = await turn.take_steering()
            taken.extend(message.text for message in found)
            assert all(message.session_id == session.id for message in found)
        return TurnCompleted()

    run = await queue.submit(session.id)
    gate = Gate(take)
    work = await gate.begin(queue, run)
    for text in ("left", "right"):
        assert (await queue.submit(session.id, words(session, text), on_busy="steer")).id == run.id
    gate.open.set()
    await asyncio.wait_for(work, WAIT_S)
    assert taken == ["left", "right"]
    assert await texts(manager, session) == ["left", "right"]
    kinds = [event.kind for event in await journal.read_all(session.id)]
    assert kinds.count("run.steered") == kinds.count("message.created") == 2


async def test_steering_heeds_what_others_write_at_the_same_moment(
    queue: TurnQueue, manager: SessionManager, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    running = await gate.begin(queue, await queue.submit(session.id))
    look = manager.find_last_number

    async def look_and_be_overtaken(session_id: str) -> int:
        monkeypatch.setattr(manager, "find_last_number", look)
        found = await look(session_id)
        await manager.update_session(session_id, title="Another")
        return found

    monkeypatch.setattr(manager, "find_last_number", look_and_be_overtaken)
    steered = await queue.steer(session.id, compose(session.id, "user", "quick", 0.0))
    gate.open.set()
    assert (await running).id == steered.id


async def test_steering_that_comes_too_late_becomes_a_turn_of_its_own(
    queue: TurnQueue, session: Session
) -> None:
    answered = asyncio.Event()
    seen: list[tuple[str, str]] = []

    async def handler(turn: Turn) -> Outcome:
        if turn.request.message is None:
            await queue.submit(session.id, words(session, "late"), on_busy="steer")
        else:
            seen.append((turn.request.message.text, turn.request.agent))
            answered.set()
        return TurnCompleted()

    run = await queue.submit(session.id, agent="build")
    assert (await asyncio.wait_for(queue.run(run.id, handler), WAIT_S)).status == "completed"
    await asyncio.wait_for(answered.wait(), WAIT_S)
    assert seen == [("late", "build")]


async def test_no_steering_is_lost_at_the_very_end_of_a_run(
    queue: TurnQueue, session: Session, manager: SessionManager, journal: Journal
) -> None:
    """Messages are sent without pause while runs end: each is taken or has its own turn."""
    stop = asyncio.Event()
    sent: list[str] = []

    async def take(turn: Turn) -> Outcome:
        if turn.request.message is not None:
            await turn.add_message(turn.request.message)
        await turn.take_steering()
        await asyncio.sleep(0)
        return TurnCompleted()

    async def send() -> None:
        while not stop.is_set():
            sent.append(str(len(sent)))
            run = await queue.submit(session.id, words(session, sent[-1]), on_busy="steer")
            if run.status == "queued":
                await queue.run(run.id, take)
            await asyncio.sleep(0)

    async def turns() -> None:
        for _ in range(15):
            run = await queue.submit(session.id)
            await queue.run(run.id, take)
        stop.set()

    await asyncio.wait_for(asyncio.gather(send(), turns()), 60)
    assert await queue.drain(session.id, take) >= 0
    while queue._left_over:
        await asyncio.wait(queue._left_over, timeout=WAIT_S)
    assert sorted(await texts(manager, session), key=int) == sent


async def test_a_turn_knows_of_steering_in_its_own_process_at_once(
    queue: TurnQueue, session: Session
) -> None:
    async def handler(turn: Turn) -> Outcome:
        await turn.take_steering()
        assert not turn.may_be_steered
        await queue.steer(session.id, words(session, "left"))
        assert turn.may_be_steered
        assert [message.text for message in await turn.take_steering()] == ["left"]
        assert not turn.may_be_steered
        return TurnCompleted()

    run = await queue.submit(session.id)
    assert (await queue.run(run.id, handler)).status == "completed"


async def test_a_turn_looks_again_for_steering_of_another_process_after_a_moment(
    queue: TurnQueue, elsewhere: TurnQueue, session: Session, clock: FakeClock
) -> None:
    async def handler(turn: Turn) -> Outcome:
        await turn.take_steering()
        await elsewhere.steer(session.id, words(session, "left"))
        assert not turn.may_be_steered
        clock.advance(0.1)
        assert turn.may_be_steered
        assert [message.text for message in await turn.take_steering()] == ["left"]
        await elsewhere.steer(session.id, words(session, "right"))
        # Whatever it stores shows that somebody else has stored something.
        await turn.add_message(words(session, "on my way"))
        assert turn.may_be_steered
        assert [message.text for message in await turn.take_steering()] == ["right"]
        return TurnCompleted()

    run = await queue.submit(session.id)
    assert (await queue.run(run.id, handler)).status == "completed"


async def test_steering_without_a_run_under_way_is_a_turn(
    queue: TurnQueue, session: Session
) -> None:
    run = await queue.submit(session.id, words(session, "go"), on_busy="steer")
    assert run.status == "queued"
    assert (await queue.run(run.id, complete)).status == "completed"


async def test_a_redacted_steering_message_is_passed_over(
    queue: TurnQueue, session: Session, journal: Journal
) -> None:
    async def redact_then_take(turn: Turn) -> Outcome:
        await queue.submit(session.id, words(session, "secret"), on_busy="steer")
        last = await journal.head(session.id)
        assert last is not None
        await journal.redact(session.id, [last.session_seq], reason="asked")
        assert await turn.take_steering() == ()
        return TurnCompleted()

    run = await queue.submit(session.id)
    assert (await queue.run(run.id, redact_then_take)).status == "completed"
    while queue._left_over:
        await asyncio.wait(queue._left_over, timeout=WAIT_S)
    await check_usable(queue, session)


async def test_a_queued_run_is_cancelled_at_once_even_while_the_session_is_busy(
    queue: TurnQueue, session: Session
) -> None:
    first, second = await queue.submit(session.id), await queue.submit(session.id)
    gate = Gate()
    work = await gate.begin(queue, first)
    waiting = asyncio.create_task(queue.run(second.id, complete))
    cancelled = await queue.cancel(second.id, reason="changed my mind")
    assert (cancelled.status, cancelled.reason) == ("cancelled", "changed my mind")
    assert await asyncio.wait_for(waiting, WAIT_S) == cancelled
    gate.open.set()
    assert (await asyncio.wait_for(work, WAIT_S)).status == "completed"
    assert await queue.cancel(second.id) == cancelled


async def test_a_running_run_is_told_and_ends_as_cancelled(
    queue: TurnQueue, session: Session
) -> None:
    run = await queue.submit(session.id)
    gate = Gate(until_cancelled)
    gate.open.set()
    work = await gate.begin(queue, run)
    asked = await queue.cancel(run.id, reason="enough")
    assert asked.status == "running"
    ended = await asyncio.wait_for(work, WAIT_S)
    assert (ended.status, ended.reason) == ("cancelled", "enough")
    await check_usable(queue, session)


async def test_a_run_is_told_when_another_process_cancels_it(
    queue: TurnQueue, elsewhere: TurnQueue, session: Session
) -> None:
    run = await queue.submit(session.id)
    gate = Gate(until_cancelled)
    gate.open.set()
    work = await gate.begin(queue, run)
    await elsewhere.cancel(run.id, reason="from afar")
    ended = await asyncio.wait_for(work, WAIT_S)
    assert (ended.status, ended.reason) == ("cancelled", "from afar")


async def test_a_handler_that_has_its_result_may_complete_in_spite_of_a_cancellation(
    queue: TurnQueue, session: Session
) -> None:
    run = await queue.submit(session.id)
    gate = Gate()
    work = await gate.begin(queue, run)
    await queue.cancel(run.id)
    gate.open.set()
    assert (await asyncio.wait_for(work, WAIT_S)).status == "completed"


async def test_a_run_that_parks_although_it_was_cancelled_ends(
    queue: TurnQueue, session: Session
) -> None:
    run = await queue.submit(session.id)
    gate = Gate(park)
    work = await gate.begin(queue, run)
    await queue.cancel(run.id, reason="enough")
    gate.open.set()
    ended = await asyncio.wait_for(work, WAIT_S)
    assert (ended.status, ended.reason) == ("cancelled", "enough")


async def test_a_parked_run_is_cancelled_and_its_steering_is_not_lost(
    queue: TurnQueue, session: Session
) -> None:
    async def steer_then_park(turn: Turn) -> Outcome:
        await queue.submit(session.id, words(session, "wait!"), on_busy="steer")
        return TurnParked(reason="approval")

    run = await queue.submit(session.id)
    assert (await queue.run(run.id, steer_then_park)).status == "parked"
    assert (await queue.cancel(run.id, reason="no")).status == "cancelled"
    seen: list[str] = []

    async def handler(turn: Turn) -> Outcome:
        assert turn.request.message is not None
        seen.append(turn.request.message.text)
        return TurnCompleted()

    assert await queue.drain(session.id, handler) == 1
    assert seen == ["wait!"]


async def test_a_parked_run_holds_up_the_queue_until_it_is_woken_elsewhere(
    queue: TurnQueue, elsewhere: TurnQueue, session: Session
) -> None:
    run, behind = await queue.submit(session.id), await queue.submit(session.id)
    parked = await queue.run(run.id, park)
    assert (parked.status, parked.reason) == ("parked", "approval")
    assert await queue.drain(session.id, complete) == 0
    waiting = asyncio.create_task(queue.run(behind.id, complete))
    await asyncio.sleep(0)
    assert (await queue.get(behind.id)).status == "queued"
    woken = await elsewhere.wake(run.id, cause="approved")
    assert (woken.status, woken.reason) == ("queued", "approved")
    assert await elsewhere.wake(run.id, cause="again") == woken
    causes: list[str] = []

    async def resume(turn: Turn) -> Outcome:
        causes.append(turn.run.reason)
        return await park(turn)

    ended = await asyncio.wait_for(elsewhere.run(run.id, resume), WAIT_S)
    assert (ended.status, ended.result, causes) == ("completed", {"woken": True}, ["approved"])
    assert (await asyncio.wait_for(waiting, WAIT_S)).status == "completed"
    assert await queue.wake(run.id, cause="too late") == ended


async def test_a_run_that_was_woken_before_it_parked_does_not_rest(
    queue: TurnQueue, session: Session
) -> None:
    async def woken_early(turn: Turn) -> Outcome:
        if not turn.is_resumed:
            assert (await queue.wake(turn.run.id, cause="approved")).status == "running"
        return await park(turn)

    run = await queue.submit(session.id)
    assert (await asyncio.wait_for(queue.run(run.id, woken_early), WAIT_S)).result == {
        "woken": True
    }


async def test_a_run_id_of_ones_own_makes_one_run(
    queue: TurnQueue, elsewhere: TurnQueue, session: Session, manager: SessionManager
) -> None:
    runs = await asyncio.gather(
        *(each.submit(session.id, run_id="job-1") for each in (queue, elsewhere) * 5)
    )
    assert {run.id for run in runs} == {"job-1"}
    calls = 0

    async def count(turn: Turn) -> Outcome:
        nonlocal calls
        calls += 1
        return TurnCompleted()

    # It is whose submission came first; the other one would wait for it.
    first = queue if runs[0].owner == queue.owner else elsewhere
    ended = await asyncio.wait_for(first.run("job-1", count), WAIT_S)
    assert await queue.submit(session.id, run_id="job-1") == ended
    assert await queue.drain(session.id, count) == 0
    assert calls == 1
    other = await manager.create_session("Other")
    with pytest.raises(AlreadyExists):
        await queue.submit(other.id, run_id="job-1")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ToolError(tool="t", detail="broke"), "tool.failed"),
        (ValueError("surprise \ud800"), "holdfast.error"),
        (LeaseLost(session_id="another", current=1, held=2), "journal.lease_lost"),
        (ToolError(tool="\ud800", detail="x"), "holdfast.error"),
    ],
)
async def test_a_handler_that_raises_fails_its_run_and_nothing_else(
    queue: TurnQueue, session: Session, error: Exception, code: str
) -> None:
    async def handler(turn: Turn) -> Outcome:
        raise error

    run = await queue.submit(session.id)
    ended = await asyncio.wait_for(queue.run(run.id, handler), WAIT_S)
    assert (ended.status, ended.error["code"]) == ("failed", code)
    await check_usable(queue, session)


@pytest.mark.parametrize("outcome", [None, "done", TurnCompleted(result={"x": object()})])
async def test_an_outcome_that_is_none_fails_the_run(
    queue: TurnQueue, session: Session, outcome: Any
) -> None:
    async def handler(turn: Turn) -> Outcome:
        return outcome  # type: ignore[no-any-return]

    run = await queue.submit(session.id)
    assert (await queue.run(run.id, handler)).status == "failed"
    await check_usable(queue, session)


async def test_a_handler_may_say_that_it_failed(queue: TurnQueue, session: Session) -> None:
    async def handler(turn: Turn) -> Outcome:
        return TurnFailed(error={"code": "x"})

    run = await queue.submit(session.id)
    assert (await queue.run(run.id, handler)).error == {"code": "x"}


async def test_a_caller_that_is_cancelled_ends_its_own_run_only(
    queue: TurnQueue, session: Session
) -> None:
    running, queued = await queue.submit(session.id), await queue.submit(session.id)
    last = await queue.submit(session.id)
    gate = Gate()
    works = [
        await gate.begin(queue, running),
        asyncio.create_task(queue.run(queued.id, complete)),
    ]
    behind = asyncio.create_task(queue.run(last.id, complete))
    await asyncio.sleep(0)
    for work in works:
        work.cancel()
        work.cancel()
    await asyncio.wait_for(asyncio.wait(works), WAIT_S)
    assert all(work.cancelled() for work in works)
    for run in (running, queued):
        ended = await queue.get(run.id)
        assert (ended.status, ended.reason) == ("cancelled", "the caller stopped waiting")
    assert (await asyncio.wait_for(behind, WAIT_S)).status == "completed"
    await check_usable(queue, session)


async def test_one_more_who_waits_may_leave_without_ending_the_run(
    queue: TurnQueue, session: Session
) -> None:
    run = await queue.submit(session.id)
    gate = Gate()
    work = await gate.begin(queue, run)
    onlooker = asyncio.create_task(queue.run(run.id, complete))
    await asyncio.sleep(0)
    onlooker.cancel()
    await asyncio.wait_for(asyncio.wait([onlooker]), WAIT_S)
    gate.open.set()
    assert (await asyncio.wait_for(work, WAIT_S)).status == "completed"


async def test_a_task_cancelled_inside_a_handler_is_the_handlers_affair(
    queue: TurnQueue, session: Session
) -> None:
    async def handler(turn: Turn) -> Outcome:
        inner = asyncio.create_task(asyncio.Event().wait())
        inner.cancel()
        await inner
        raise AssertionError

    run = await queue.submit(session.id)
    assert (await queue.run(run.id, handler)).status == "cancelled"
    await check_usable(queue, session)


async def test_a_worker_that_is_cancelled_leaves_its_run_to_be_resumed(
    queue: TurnQueue, elsewhere: TurnQueue, session: Session
) -> None:
    run = await queue.submit(session.id, is_for_any_process=True)
    gate = Gate()
    work = asyncio.create_task(queue.drain(session.id, gate))
    await asyncio.wait_for(gate.begun.wait(), WAIT_S)
    work.cancel()
    await asyncio.wait_for(asyncio.wait([work]), WAIT_S)
    assert (await queue.get(run.id)).status == "running"
    resumed: list[bool] = []

    async def handler(turn: Turn) -> Outcome:
        resumed.append(turn.is_resumed)
        return TurnCompleted()

    assert await elsewhere.drain(session.id, handler) == 1
    assert resumed == [True]


class Crashed(BaseException):
    """The end of a process, as far as its queue can tell."""


async def crash(queue: TurnQueue, run: Run, *facts: Any) -> None:
    async def handler(turn: Turn) -> Outcome:
        for fact in facts:
            await turn.append(fact)
        raise Crashed

    with pytest.raises(Crashed):
        await queue.run(run.id, handler)


async def test_after_a_crash_the_interrupted_run_is_found_and_resumed_first(
    queue: TurnQueue, elsewhere: TurnQueue, session: Session, manager: SessionManager
) -> None:
    run, behind = await queue.submit(session.id), await queue.submit(session.id)
    assert await manager.list_interrupted_runs() == []
    gate = Gate()
    work = await gate.begin(queue, run)
    assert await manager.list_interrupted_runs() == []
    gate.open.set()
    await asyncio.wait_for(work, WAIT_S)
    await crash(queue, behind)
    assert [found.id for found in await manager.list_interrupted_runs()] == [behind.id]
    last = await elsewhere.submit(session.id)
    order: list[tuple[str, bool]] = []

    async def handler(turn: Turn) -> Outcome:
        order.append((turn.run.id, turn.is_resumed))
        return TurnCompleted()

    await asyncio.wait_for(elsewhere.run(last.id, handler), WAIT_S)
    assert order == [(behind.id, True), (last.id, False)]
    assert (await queue.get(behind.id)).status == "completed"


async def test_a_crashed_run_that_was_cancelled_meanwhile_is_not_resumed(
    queue: TurnQueue, session: Session, keeper: LeaseKeeper
) -> None:
    run = await queue.submit(session.id)
    await crash(queue, run)
    lease = await keeper.acquire(session.id)
    assert lease is not None
    asked = await queue.cancel(run.id, reason="no")
    assert (asked.status, asked.is_cancel_requested) == ("running", True)
    await keeper.release(lease)
    ended = await asyncio.wait_for(queue.run(run.id, complete), WAIT_S)
    assert (ended.status, ended.reason) == ("cancelled", "no")
    again = await queue.submit(session.id)
    await crash(queue, again)
    assert (await queue.cancel(again.id, reason="free")).status == "cancelled"


async def test_a_queued_run_of_a_dead_process_is_adopted(
    queue: TurnQueue, elsewhere: TurnQueue, session: Session, clock: FakeClock
) -> None:
    orphan = await elsewhere.submit(session.id)
    mine = await queue.submit(session.id)
    assert await queue.drain(session.id, complete) == 0
    elsewhere._keeper.close()
    order: list[str] = []

    async def handler(turn: Turn) -> Outcome:
        order.append(turn.run.id)
        return TurnCompleted()

    await asyncio.wait_for(queue.run(mine.id, handler), WAIT_S)
    assert order == [orphan.id, mine.id]


async def test_a_process_that_gives_no_sign_of_life_loses_its_queued_runs(
    queue: TurnQueue, elsewhere: TurnQueue, session: Session, clock: FakeClock
) -> None:
    orphan = await elsewhere.submit(session.id)
    clock.advance(31)
    assert await queue.drain(session.id, complete) == 1
    assert (await queue.get(orphan.id)).status == "completed"


async def test_a_zombie_leaves_no_trace(
    queue: TurnQueue,
    elsewhere: TurnQueue,
    session: Session,
    clock: FakeClock,
    journal: Journal,
    manager: SessionManager,
) -> None:
    run = await queue.submit(session.id)
    refused = asyncio.Event()

    async def write(turn: Turn) -> Outcome:
        try:
            await turn.add_message(words(session, "from the grave"))
        except LeaseLost:
            refused.set()
            raise
        return TurnCompleted()

    gate = Gate(write)
    work = await gate.begin(queue, run)
    clock.advance(31)
    successor = Gate()
    taken_over = asyncio.create_task(elsewhere.drain(session.id, successor))
    await asyncio.wait_for(successor.begun.wait(), WAIT_S)
    before = await journal.read_all(session.id)
    gate.open.set()
    await asyncio.wait_for(refused.wait(), WAIT_S)
    assert await journal.read_all(session.id) == before
    assert gate.turn is not None
    assert await gate.turn.is_lost()
    successor.open.set()
    assert await asyncio.wait_for(taken_over, WAIT_S) == 1
    # Whoever waited at the zombie gets the result of its successor.
    assert (await asyncio.wait_for(work, WAIT_S)).result == {"done": True}
    assert await texts(manager, session) == []


async def test_a_run_is_not_executed_when_its_session_was_closed(
    queue: TurnQueue, session: Session, manager: SessionManager
) -> None:
    run = await queue.submit(session.id)
    await manager.archive_session(session.id)
    with pytest.raises(InvalidTransition):
        await queue.run(run.id, complete)
    with pytest.raises(InvalidTransition):
        await queue.submit(session.id)
    await manager.restore_session(session.id)
    assert (await queue.run(run.id, complete)).status == "completed"


async def test_a_submit_that_is_cancelled_leaves_nothing_waiting(
    queue: TurnQueue, session: Session
) -> None:
    for _ in range(4):
        work = asyncio.create_task(queue.submit(session.id))
        await asyncio.sleep(0)
        work.cancel()
        await asyncio.wait_for(asyncio.wait([work]), WAIT_S)
        if not work.cancelled():
            await queue.run(work.result().id, complete)
    await check_usable(queue, session)


class Meddling(Journal):
    """Lets somebody else append just before the next append that expects a certain end."""

    meddle: Callable[[], Awaitable[object]] | None = None

    async def append(self, session_id: str, payloads: Any, **kwargs: Any) -> Any:
        if kwargs.get("after") is not None and self.meddle is not None:
            meddle, self.meddle = self.meddle, None
            await meddle()
        return await super().append(session_id, payloads, **kwargs)


@pytest.fixture
def meddling(journal: Journal, keeper: LeaseKeeper) -> tuple[Meddling, TurnQueue]:
    other = Meddling(journal.store, clock=journal.clock)
    return other, TurnQueue(SessionManager(other, keeper), keeper)


async def test_a_cancellation_in_the_moment_of_the_start_is_seen(
    meddling: tuple[Meddling, TurnQueue], queue: TurnQueue, session: Session
) -> None:
    journal, slow = meddling
    run = await slow.submit(session.id)
    journal.meddle = lambda: queue.cancel(run.id, reason="just in time")
    ended = await asyncio.wait_for(slow.run(run.id, complete), WAIT_S)
    assert (ended.status, ended.reason) == ("cancelled", "just in time")
    await slow.close()


async def test_steering_in_the_moment_of_the_end_becomes_a_turn(
    meddling: tuple[Meddling, TurnQueue], queue: TurnQueue, session: Session
) -> None:
    journal, slow = meddling
    answered = asyncio.Event()

    async def handler(turn: Turn) -> Outcome:
        if turn.request.message is None:
            message = words(session, "late")
            journal.meddle = lambda: queue.submit(session.id, message, on_busy="steer")
        else:
            answered.set()
        return TurnCompleted()

    run = await slow.submit(session.id)
    await asyncio.wait_for(slow.run(run.id, handler), WAIT_S)
    await asyncio.wait_for(answered.wait(), WAIT_S)
    await slow.close()


async def test_a_turn_that_somebody_else_put_first_is_seen_by_reject(
    meddling: tuple[Meddling, TurnQueue], queue: TurnQueue, session: Session
) -> None:
    journal, slow = meddling
    journal.meddle = lambda: queue.submit(session.id)
    with pytest.raises(SessionBusy):
        await slow.submit(session.id, on_busy="reject")


class Full(Journal):
    """A disk that fills up when a run ends."""

    is_full = False

    async def append(self, session_id: str, payloads: Any, **kwargs: Any) -> Any:
        drafts = payloads.drafts if isinstance(payloads, Batch) else ()
        if self.is_full and any(draft.kind == "run.completed" for draft in drafts):
            raise StorageFull(path="journal.db")
        return await super().append(session_id, payloads, **kwargs)


async def test_a_full_disk_at_the_end_of_a_run_leaves_it_to_be_resumed(
    journal: Journal, keeper: LeaseKeeper, session: Session
) -> None:
    full = Full(journal.store, clock=journal.clock)
    queue = TurnQueue(SessionManager(full, keeper), keeper)
    run = await queue.submit(session.id)
    full.is_full = True
    with pytest.raises(StorageFull):
        await asyncio.wait_for(queue.run(run.id, complete), WAIT_S)
    assert (await queue.get(run.id)).status == "running"
    full.is_full = False
    assert (await asyncio.wait_for(queue.run(run.id, complete), WAIT_S)).status == "completed"
    await queue.close()


class Failing(Journal):
    """A store that cannot be asked for a while."""

    failures = 0

    async def rows(self, query: Any) -> Any:
        if any(condition.column == "is_cancel_requested" for condition in query.where):
            self.failures += 1
            if self.failures == 1:
                raise StorageFull(path="journal.db")
        return await super().rows(query)


async def test_a_store_that_fails_once_does_not_end_the_watch_for_cancellations(
    journal: Journal, keeper: LeaseKeeper, elsewhere: TurnQueue, session: Session
) -> None:
    failing = Failing(journal.store, clock=journal.clock)
    queue = TurnQueue(SessionManager(failing, keeper), keeper)
    run = await queue.submit(session.id)
    gate = Gate(until_cancelled)
    gate.open.set()
    work = await gate.begin(queue, run)
    await elsewhere.cancel(run.id)
    assert (await asyncio.wait_for(work, WAIT_S)).status == "cancelled"
    assert failing.failures >= 2
    await queue.close()


async def test_closing_leaves_late_steering_to_others(
    queue: TurnQueue, elsewhere: TurnQueue, session: Session, keeper: LeaseKeeper
) -> None:
    late = Gate()

    async def handler(turn: Turn) -> Outcome:
        if turn.request.message is None:
            await queue.submit(session.id, words(session, "late"), on_busy="steer")
            return TurnCompleted()
        return await late(turn)

    run = await queue.submit(session.id)
    await asyncio.wait_for(queue.run(run.id, handler), WAIT_S)
    await asyncio.wait_for(late.begun.wait(), WAIT_S)
    await queue.close()
    keeper.close()
    assert await elsewhere.drain(session.id, complete) == 1


async def test_facts_of_a_turn_carry_its_run_and_need_its_lease(
    queue: TurnQueue, session: Session, journal: Journal
) -> None:
    async def handler(turn: Turn) -> Outcome:
        [event] = await turn.append(RunStarted(run_id="run_other"), agent_path="a/b")
        assert (event.run_id, event.agent_path, event.epoch) == (turn.run.id, "a/b", turn.epoch)
        return TurnCompleted()

    run = await queue.submit(session.id)
    assert (await queue.run(run.id, handler)).status == "completed"
    with pytest.raises(UsageError):
        await journal.append(session.id, [RunStarted(run_id=run.id)])
