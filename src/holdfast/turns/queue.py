"""The turn queue: one run at a time per session, in order, across processes and crashes.

A run is put into the queue as a fact that any process may append. The process that holds the
session's lease executes the queue: first what was interrupted, then run after run. A run is
executed by the process that submitted it, or by any other once that process is gone; inside a
process by the task that waits for it with `run`, or by one that takes whatever comes with `drain`.

What others may append at any moment (a cancellation, a steering message) is never overlooked:
facts that depend on it are appended only if nothing else was appended since it was read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import TypeAlias

from holdfast.canonical import JsonObject
from holdfast.errors import (
    AlreadyExists,
    LeaseLost,
    NotFound,
    SessionBusy,
    StaleWriter,
    UsageError,
)
from holdfast.ids import check_id, make_id
from holdfast.journal import Journal, Origin, Payload
from holdfast.messages import Message, strip_session
from holdfast.observability import INCOMING_TRACE
from holdfast.sessions import (
    RUNS,
    Lease,
    NewSession,
    Run,
    SessionManager,
    check_open,
    find_queued,
    find_run,
    get_run,
    list_unfinished,
)
from holdfast.sessions import events as facts
from holdfast.turns.execution import RUN_CANCELLED, TurnExecutor
from holdfast.turns.leases import LeaseKeeper
from holdfast.turns.outcomes import finish
from holdfast.turns.slots import TurnSlots
from holdfast.turns.turn import ENCLOSING, Handler, Turn, TurnCancelled

_LOOK_FOR_LEASE_S = 0.5
_STOPPED_WAITING = "the caller stopped waiting"
_Choice: TypeAlias = Callable[[Run], bool]


class TurnQueue:
    """Submits, executes, cancels and steers runs."""

    def __init__(self, manager: SessionManager, keeper: LeaseKeeper) -> None:
        """Work on the manager's sessions; the keeper stands for this process."""
        self._manager = manager
        self._journal: Journal = manager.journal
        self._keeper = keeper
        self._claimed: dict[str, asyncio.Event] = {}
        self._left_over: set[asyncio.Task[Run]] = set()
        self._slots = TurnSlots()
        self.executor = TurnExecutor(manager, keeper)
        self.is_leaving = False
        """Set when this process stops and its runs shall go on in the next one: whoever is
        cancelled from then on leaves its run interrupted, as a crash would."""

    @property
    def owner(self) -> str:
        """This process, as the runs that it submits name it."""
        return self._keeper.owner

    # --- from outside -----------------------------------------------------------------

    async def submit(
        self,
        session_id: str,
        message: Message | None = None,
        *,
        on_busy: facts.OnBusy = "queue",
        agent: str = "",
        options: JsonObject | None = None,
        run_id: str = "",
        is_for_any_process: bool = False,
        correlation_id: str = "",
    ) -> Run:
        """Put a turn into the session's queue and return its run.

        While another run is under way, `queue` waits behind it, `reject` raises, `interrupt`
        ends it and goes first, and `steer` hands the message to it (and returns that run).
        `is_for_any_process` lets any process execute the run, not only this one. `correlation_id`
        says what the run belongs to; all its facts bear it.

        A `run_id` of one's own makes the call safe to repeat: the run exists once. Follow up
        with `run` or `drain`: turns behind this one wait for it.

        Raises:
            SessionBusy: the session is busy and `on_busy` is `reject`.
            InvalidTransition: the session is not active.
            AlreadyExists: another session has a run with this `run_id`.
        """
        if on_busy not in facts.ON_BUSY:
            raise UsageError(detail=f"on_busy is one of {', '.join(facts.ON_BUSY)}.")
        session_id = (await self._manager.get_session(session_id)).id
        await self._keeper.show_presence()
        around = ENCLOSING.get()
        queued = facts.RunQueued(
            run_id=check_id(run_id, "run") if run_id else make_id("run"),
            owner="" if is_for_any_process else self._keeper.owner,
            message=strip_session(message) if message else None,
            agent=agent,
            is_urgent=on_busy == "interrupt",
            options=options or {},
            traceparent=around.request.traceparent if around else INCOMING_TRACE.get(),
        )
        try:
            origin = Origin(run_id=queued.run_id, correlation_id=correlation_id)
            return await self._put(
                session_id, queued, message, on_busy, origin, is_known=bool(run_id)
            )
        except asyncio.CancelledError:
            await finish(self._abandon(queued.run_id))
            raise

    async def _put(
        self,
        session_id: str,
        queued: facts.RunQueued,
        message: Message | None,
        on_busy: facts.OnBusy,
        origin: Origin,
        *,
        is_known: bool,
    ) -> Run:
        while True:
            session = await self._manager.get_session(session_id)
            check_open(session, self._journal.clock.now())
            seq = await self._manager.find_last_number(session_id)
            known = await self.find(queued.run_id) if is_known else None
            if known is not None and known.session_id != session_id:
                raise AlreadyExists(kind="run", value=queued.run_id)
            if known is not None:
                return known
            current = await list_unfinished(self._journal, session_id)
            if current and on_busy == "reject":
                raise SessionBusy(session_id=session_id)
            try:
                if on_busy == "steer" and current and current[0].status == "running" and message:
                    await self._steer(current[0], message, after=seq)
                    return current[0]
                # A plain turn depends on nothing that others may have appended.
                after = None if on_busy == "queue" and not is_known else seq
                await self._journal.append(session_id, [queued], origin=origin, after=after)
                break
            except StaleWriter:
                continue
        if on_busy == "interrupt":
            for run in current:
                if run.has_started:
                    await self.cancel(run.id, reason=f"interrupted by {queued.run_id}")
        return await self.get(queued.run_id)

    async def execute(  # noqa: PLR0913 - all that `submit` and `run` are told
        self,
        session_id: str,
        message: Message,
        handler: Handler,
        *,
        run_id: str,
        is_new: bool,
        on_busy: facts.OnBusy = "queue",
        agent: str = "",
        options: JsonObject | None = None,
        opening: NewSession | None = None,
        correlation_id: str = "",
    ) -> Run:
        """Put a turn into the queue and return its run when it rests: `submit` and `run`.

        Cheaper than both where nothing waits in the session: one transaction takes the lease,
        queues the run and starts it. `is_new` promises that no process has used the `run_id`.
        `opening` is the session itself, if it is to begin with this run, in that transaction;
        one that is there already is used as it is.

        Raises:
            SessionBusy: the session is busy and `on_busy` is `reject`.
            InvalidTransition: the session is not active.
            AlreadyExists: another session has a run with this `run_id`.
        """
        turn: Turn | None = None
        has_place = False
        if is_new or opening is not None:
            around = ENCLOSING.get()
            queued = facts.RunQueued(
                run_id=check_id(run_id, "run"),
                owner=self._keeper.owner,
                message=strip_session(message),
                agent=agent,
                options=options or {},
                traceparent=around.request.traceparent if around else INCOMING_TRACE.get(),
            )
            try:
                has_place = await self._slots.take()
                turn = await self.executor.begin(session_id, queued, opening, correlation_id)
                if turn is not None:
                    run_id = turn.run.id
                    self._claimed[run_id] = asyncio.Event()
                    for late in await self.executor.execute(turn, handler):
                        self._continue_later(late, handler)
            except LeaseLost:
                pass  # another process has taken over and goes on from what is stored
            except asyncio.CancelledError:
                await finish(self._abandon(run_id))
                raise
            finally:
                if has_place:
                    self._slots.give_back()
                if turn is not None:
                    self._claimed.pop(run_id).set()
        if turn is not None:
            return turn.ended or await self.run(run_id, handler)
        run = await self.submit(
            session_id,
            message,
            on_busy=on_busy,
            agent=agent,
            options=options,
            run_id=run_id,
            correlation_id=correlation_id,
        )
        return await self.run(run.id, handler)

    async def run(self, run_id: str, handler: Handler) -> Run:
        """Make sure that a run is executed, here or elsewhere, and return it when it rests.

        It rests when it has ended or is parked. Calling this again for a run that was
        interrupted resumes it; for one that has ended, it returns at once. The handler is
        first given what stands before it and was left behind by processes that are gone.

        A caller that is cancelled takes its run with it: the run ends as cancelled.

        Raises:
            InvalidTransition: the session is no longer active.
            RunInTheWay: the handler cannot execute what stands before the run, and says so;
                both runs stay as they are.
        """
        return await self._see_to(run_id, handler, is_awaited=True)

    async def drain(self, session_id: str, handler: Handler) -> int:
        """Execute what waits in a session's queue and return how many runs were executed.

        Returns 0 when another process holds the session or nothing is for this process. A
        run that is under way when the caller is cancelled stays interrupted, to be resumed.
        """
        executed = 0
        while await self._make_step(session_id, handler, lambda run: run.id not in self._claimed):
            executed += 1
        return executed

    async def cancel(self, run_id: str, *, reason: str = "", stopped_by: str = "") -> Run:
        """Ask for a run to end; one that is not under way ends at once.

        A run that has ended already is returned as it is. `stopped_by` is who stopped a run
        below it where that asked, if that is why.
        """
        run = await self.get(run_id)
        if run.has_ended:
            return run
        request = facts.RunCancelRequested(run_id=run_id, reason=reason, stopped_by=stopped_by)
        await self._journal.append(run.session_id, [request], origin=Origin(run_id=run_id))
        turn = self.executor.find(run_id)
        if turn is not None:
            turn.ask_to_end(reason, stopped_by)
        else:
            await self._end_idle(run_id)
        return await self.get(run_id)

    async def steer(self, session_id: str, message: Message) -> Run:
        """Hand a message to the run that is under way in a session, and return that run.

        It joins the conversation before the run's next step. One that comes too late for it
        becomes a turn of its own.

        Raises:
            NotFound: no run is under way.
        """
        session_id = (await self._manager.get_session(session_id)).id
        while True:
            seq = await self._manager.find_last_number(session_id)
            current = await list_unfinished(self._journal, session_id)
            if not current or current[0].status != "running":
                raise NotFound(kind="run under way in session", value=session_id)
            try:
                await self._steer(current[0], message, after=seq)
                return current[0]
            except StaleWriter:
                continue

    async def wake(
        self,
        run_id: str,
        *,
        cause: str,
        is_for_any_process: bool = False,
        answers: Sequence[Payload] = (),
    ) -> Run:
        """Put a parked run back into the queue; one that is about to park will not rest.

        A run that is queued or has ended is returned as it is. `is_for_any_process` lets any
        process execute it, not only this one. `answers` is what it waited for, stored together
        with the wake-up: no crash can come between them and leave a run that waits for what is
        there already.
        """
        run = await self.get(run_id)
        payloads = list(answers)
        if run.status in ("parked", "running"):
            owner = "" if is_for_any_process else self._keeper.owner
            await self._keeper.show_presence()
            payloads.append(facts.RunWoken(run_id=run_id, cause=cause, owner=owner))
        if payloads:
            await self._journal.append(run.session_id, payloads, origin=Origin(run_id=run_id))
        return await self.get(run_id)

    async def get(self, run_id: str) -> Run:
        """Return a run.

        Raises:
            NotFound: there is none.
        """
        return await get_run(self._journal, run_id)

    async def find(self, run_id: str) -> Run | None:
        """Return a run, `None` when there is none."""
        return await find_run(self._journal, run_id)

    async def close(self) -> None:
        """Stop looking for signals, and leave what waits to others."""
        left_over = tuple(self._left_over)
        for task in left_over:
            task.cancel()
        await asyncio.gather(*left_over, return_exceptions=True)
        await self.executor.close()

    # --- inside -----------------------------------------------------------------------

    async def _steer(self, run: Run, message: Message, *, after: int) -> None:
        fact = facts.RunSteered(
            signal_id=make_id("sig"), run_id=run.id, message=strip_session(message)
        )
        origin = Origin(run_id=run.id)
        await self._journal.append(run.session_id, [fact], origin=origin, after=after)
        turn = self.executor.find(run.id)
        if turn is not None:
            turn.hear()

    async def _take_next(self, session_id: str, is_ours: _Choice) -> Run | None:
        """Return the run that should be executed now, if that is for this task to do.

        What was interrupted comes first; a parked run holds up the queue, because its turn
        is not over; a run of another living process, or of another task, is left to them.
        """
        waiting = await list_unfinished(self._journal, session_id)
        if not waiting or waiting[0].status == "parked" or not is_ours(waiting[0]):
            return None
        first = waiting[0]
        if first.status == "running" or first.owner in ("", self._keeper.owner):
            return first
        return None if await self._journal.store.is_alive(first.owner) else first

    async def _see_to(self, run_id: str, handler: Handler, *, is_awaited: bool) -> Run:
        """Wait until a run rests; execute it, and what others left behind before it."""
        claim: asyncio.Event | None = None

        def is_ours(run: Run) -> bool:
            if run.id in self._claimed:
                return run.id == run_id and claim is not None
            return run.status == "running" or run.owner != self._keeper.owner

        try:
            while True:
                if run_id not in self._claimed:
                    self._claimed[run_id] = claim = asyncio.Event()
                run = await self.get(run_id)
                if run.has_ended or run.status == "parked":
                    return run
                seq = await self._journal.read_last_seq()
                if not await self._make_step(run.session_id, handler, is_ours):
                    await self._wait_for_others(run, seq)
        except asyncio.CancelledError:
            if is_awaited and claim is not None:
                await finish(self._abandon(run_id))
            raise
        finally:
            if claim is not None:
                del self._claimed[run_id]
                claim.set()

    async def _wait_for_others(self, run: Run, seq: int) -> None:
        """Wait until the run before this one rests; of others, until something happens."""
        waiting = [each.id for each in await list_unfinished(self._journal, run.session_id)]
        before = waiting[: waiting.index(run.id)] if run.id in waiting else []
        claims = [self._claimed[run_id] for run_id in before if run_id in self._claimed]
        if not claims:
            await self._journal.store.changed(seq, _LOOK_FOR_LEASE_S)
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(claims[-1].wait(), _LOOK_FOR_LEASE_S)

    async def _make_step(self, session_id: str, handler: Handler, is_ours: _Choice) -> bool:
        """Execute the next run, if it is for this task; says whether one was executed."""
        if await self._take_next(session_id, is_ours) is None:
            return False
        check_open(await self._manager.get_session(session_id), self._journal.clock.now())
        has_place = await self._slots.take()
        lease = turn = None
        try:
            lease = await self._keeper.acquire(session_id)
            if lease is None:
                return False
            run = await self._take_next(session_id, is_ours)
            if run is None:
                return False
            turn = await self._begin(run, lease)
            if turn is not None:
                for late in await self.executor.execute(turn, handler):
                    self._continue_later(late, handler)
            return True
        except LeaseLost:
            # Another process has taken over and goes on from what is stored.
            return False
        finally:
            if has_place:
                self._slots.give_back()
            if lease is not None and turn is None:
                await self._keeper.release(lease)

    async def _begin(self, run: Run, lease: Lease) -> Turn | None:
        """Note that the run is under way; `None` when it was cancelled meanwhile."""
        turn = await self._turn(run, lease)
        while True:
            seq = await self._manager.find_last_number(run.session_id)
            run = await self.get(run.id)
            if run.has_ended:
                return None
            if run.is_cancel_requested:
                turn.ask_to_end(run.reason, run.stopped_by)
                return turn
            begin: Payload = facts.RunStarted(run_id=run.id)
            if run.has_started:
                cause = run.reason if run.status == "queued" else "interrupted"
                begin = facts.RunResumed(run_id=run.id, cause=cause)
            try:
                [event] = await turn.append(begin, after=seq)
            except StaleWriter:
                continue
            turn.run = RUNS.apply(run, event, event.decode()) or run
            return turn

    async def _turn(self, run: Run, lease: Lease) -> Turn:
        event = await find_queued(self._journal, run)
        request = event.expect(facts.RunQueued)
        return Turn(self._manager, run, lease, request, correlation_id=event.correlation_id)

    async def _end_idle(self, run_id: str) -> None:
        """End a run that no process is executing."""
        run = await self.get(run_id)
        lease = None if run.has_ended else await self._keeper.acquire(run.session_id)
        if lease is None:
            return
        try:
            run = await self.get(run_id)
            if not run.has_ended:
                outcome = TurnCancelled(reason=run.reason, stopped_by=run.stopped_by)
                turn = await self._turn(run, lease)
                await turn.close_own_calls(RUN_CANCELLED)
                await self.executor.end(turn, outcome)
        finally:
            # One that was given back with the last fact is left alone.
            await self._keeper.release(lease)

    async def _abandon(self, run_id: str) -> None:
        """End a run of this process, because nobody waits for it any more."""
        if self.is_leaving:
            return
        around = ENCLOSING.get()
        if around is not None and around.has_lost_lease:
            return  # it goes on where the run goes on that started it
        run = await self.find(run_id)
        if run is not None and run.owner == self._keeper.owner and run.status != "parked":
            await self.cancel(run_id, reason=_STOPPED_WAITING)

    def _continue_later(self, run_id: str, handler: Handler) -> None:
        """Execute a turn that came from late steering: no process waits for it."""
        task = asyncio.create_task(self._see_to(run_id, handler, is_awaited=False))
        self._left_over.add(task)
        task.add_done_callback(self._note_end)

    def _note_end(self, task: asyncio.Task[Run]) -> None:
        self._left_over.discard(task)
        if not task.cancelled():
            # Whatever went wrong: the run still waits in the queue for the next who comes.
            task.exception()
