"""The turn queue: one run at a time per session, in order, across processes and crashes.

A run is put into the queue as a fact that anyone may append. Whoever holds the session's
lease executes the queue: first what was interrupted, then run after run. A run is executed
by the process that submitted it, or by any other once that process is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import HoldfastError, LeaseLost, NotFound, SessionBusy, UsageError
from holdfast.ids import check_id, new_id
from holdfast.journal.envelope import Event, Origin
from holdfast.journal.journal import Journal
from holdfast.journal.payloads import Payload
from holdfast.journal.projection import Condition, RowQuery
from holdfast.messages import Message
from holdfast.sessions import events as facts
from holdfast.sessions.leases import Lease, LeaseKeeper
from holdfast.sessions.manager import SessionManager
from holdfast.sessions.messages import stored
from holdfast.sessions.model import check_open
from holdfast.sessions.projections import RUNS, SIGNALS, Run, Signal

_LOOK_FOR_SIGNALS_S = 0.2
_LOOK_FOR_LEASE_S = 0.5


class Completed(msgspec.Struct, frozen=True, kw_only=True):
    """The run has done its work."""

    result: JsonObject = msgspec.field(default_factory=dict)


class Parked(msgspec.Struct, frozen=True, kw_only=True):
    """The run waits for somebody; it goes on after `TurnQueue.wake`."""

    reason: str


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """The run was ended on request."""

    reason: str = ""


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """The run cannot go on; `error` is an error's `to_dict`."""

    error: JsonObject


Outcome: TypeAlias = Completed | Parked | Cancelled | Failed


class Turn:
    """A run that holds the session: what a handler works with."""

    def __init__(
        self, manager: SessionManager, run: Run, lease: Lease, request: facts.RunQueued
    ) -> None:
        """Made by the queue."""
        self.run = run
        self.request = request
        self.is_resumed = run.has_started
        self.cancelled = asyncio.Event()
        """Set when somebody asked for the run to end; the handler returns `Cancelled` soon."""
        self.cancel_reason = ""
        self._manager = manager
        self._lease = lease

    @property
    def session_id(self) -> str:
        """The session that this turn holds."""
        return self.run.session_id

    @property
    def epoch(self) -> int:
        """The epoch under which this turn writes."""
        return self._lease.epoch

    async def append(
        self, *payloads: Payload, agent_path: str = "", is_synced: bool = False
    ) -> tuple[Event, ...]:
        """Append facts of this run; they are stored together or not at all.

        Raises:
            LeaseLost: another process has taken over; stop at once.
        """
        origin = Origin(run_id=self.run.id, agent_path=agent_path)
        return await self._manager.journal.append(
            self.session_id,
            payloads,
            epoch=self.epoch,
            origin=origin,
            is_synced=is_synced,
        )

    async def add_message(self, message: Message, *, agent_path: str = "") -> None:
        """Add a message of this run to the conversation."""
        fact = facts.MessageCreated(message=stored(message))
        await self.append(fact, agent_path=agent_path)

    async def take_steering(self) -> tuple[Message, ...]:
        """Return messages that arrived for this run since the last call.

        They join the conversation in the same transaction that takes them from the inbox.
        """
        signals = await self.signals("steer")
        if not signals:
            return ()
        numbers = [signal.session_seq for signal in signals]
        events = await self._manager.journal.store.read(self.session_id, seqs=numbers)
        sent = [event.expect(facts.RunSteered) for event in events]
        taken = [
            facts.MessageCreated(message=each.message, signal_id=each.signal_id)
            for each in sent
            if each.message is not None
        ]
        if taken:
            await self.append(*taken)
        return tuple(
            msgspec.structs.replace(fact.message, session_id=self.session_id) for fact in taken
        )

    async def signals(self, kind: Literal["cancel", "steer"]) -> list[Signal]:
        """Return what was sent to this run and not consumed yet, oldest first."""
        query = RowQuery(
            projection=SIGNALS,
            session_id=self.session_id,
            where=(Condition("run_id", "=", self.run.id),),
            order="session_seq",
            limit=1000,
        )
        found = await self._manager.journal.rows(query)
        return [keyed.row for keyed in found if keyed.row.kind == kind]


Handler: TypeAlias = Callable[[Turn], Awaitable[Outcome]]


class TurnQueue:
    """Submits, executes, cancels and steers runs."""

    def __init__(self, manager: SessionManager, keeper: LeaseKeeper) -> None:
        """Work on the manager's sessions; the keeper stands for this process."""
        self._manager = manager
        self._journal: Journal = manager.journal
        self._keeper = keeper
        self._active: dict[str, Turn] = {}
        self._watcher: asyncio.Task[None] | None = None

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
        is_for_anyone: bool = False,
    ) -> Run:
        """Put a turn into the session's queue and return its run.

        While another run is under way, `queue` waits behind it, `reject` raises, `interrupt`
        ends it and goes first, and `steer` hands the message to it (and returns that run).
        `is_for_anyone` lets any process execute the run, not only this one.

        A `run_id` of one's own makes the call safe to repeat: the run exists once.

        Raises:
            SessionBusy: the session is busy and `on_busy` is `reject`.
            InvalidTransition: the session is not active.
        """
        if on_busy not in facts.ON_BUSY:
            raise UsageError(detail=f"on_busy is one of {', '.join(facts.ON_BUSY)}.")
        session = await self._manager.get_session(session_id)
        check_open(session, self._journal.clock.now())
        if run_id:
            known = await self.find(check_id(run_id, "run"))
            if known is not None:
                return known
        current = await self._unfinished(session.id)
        if current and on_busy == "reject":
            raise SessionBusy(session_id=session.id)
        if on_busy == "steer" and message is not None:
            under_way = [run for run in current if run.status == "running"]
            if under_way:
                return await self._steer(under_way[0], message)
        self._keeper.show_presence()
        queued = facts.RunQueued(
            run_id=run_id or new_id("run"),
            owner="" if is_for_anyone else self._keeper.owner,
            message=stored(message) if message else None,
            agent=agent,
            is_urgent=on_busy == "interrupt",
            options=options or {},
        )
        await self._journal.append(session.id, [queued], origin=Origin(run_id=queued.run_id))
        if on_busy == "interrupt":
            for run in current:
                if run.status != "queued":
                    await self.cancel(run.id, reason=f"interrupted by {queued.run_id}")
        return await self.get(queued.run_id)

    async def run(self, run_id: str, handler: Handler) -> Run:
        """Make sure that a run is executed, here or elsewhere, and return it when it rests.

        It rests when it has ended or is parked. Calling this again for a run that was
        interrupted resumes it; for one that has ended, it returns at once.
        """
        while True:
            run = await self.get(run_id)
            if run.has_ended or run.status == "parked":
                return run
            seq = await self._journal.last_seq()
            if not await self.drain(run.session_id, handler):
                await self._journal.store.changed(seq, _LOOK_FOR_LEASE_S)

    async def drain(self, session_id: str, handler: Handler) -> int:
        """Execute what waits in a session's queue and return how many runs were executed.

        Returns 0 when somebody else holds the session or nothing is for this process.
        """
        executed = 0
        while await self._next(session_id) is not None:
            lease = await self._keeper.acquire(session_id)
            if lease is None:
                return executed
            try:
                while run := await self._next(session_id):
                    await self._execute(run, lease, handler)
                    executed += 1
            finally:
                await self._keeper.release(lease)
        return executed

    async def cancel(self, run_id: str, *, reason: str = "") -> Run:
        """Ask for a run to end; one that is not under way ends at once.

        A run that has ended already is returned as it is.
        """
        run = await self.get(run_id)
        if run.has_ended:
            return run
        request = facts.RunCancelRequested(run_id=run_id, reason=reason)
        await self._journal.append(run.session_id, [request], origin=Origin(run_id=run_id))
        turn = self._active.get(run_id)
        if turn is not None:
            turn.cancel_reason = reason
            turn.cancelled.set()
            return run
        lease = await self._keeper.acquire(run.session_id)
        if lease is not None:
            run = await self._end_idle(run_id, lease, reason)
        return run

    async def wake(self, run_id: str, *, cause: str, is_for_anyone: bool = False) -> Run:
        """Put a parked run back into the queue; any other is returned as it is.

        `is_for_anyone` lets any process execute it, not only this one.
        """
        run = await self.get(run_id)
        if run.status == "parked":
            owner = "" if is_for_anyone else self._keeper.owner
            self._keeper.show_presence()
            fact = facts.RunWoken(run_id=run_id, cause=cause, owner=owner)
            await self._journal.append(run.session_id, [fact], origin=Origin(run_id=run_id))
        return await self.get(run_id)

    async def get(self, run_id: str) -> Run:
        """Return a run.

        Raises:
            NotFound: there is none.
        """
        run = await self.find(check_id(run_id, "run"))
        if run is None:
            raise NotFound(kind="run", value=run_id)
        return run

    async def find(self, run_id: str) -> Run | None:
        """Return a run, `None` when there is none."""
        query = RowQuery(projection=RUNS, where=(Condition("id", "=", run_id),), limit=1)
        found = await self._journal.rows(query)
        return found[0].row if found else None

    async def close(self) -> None:
        """Stop looking for signals."""
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
            self._watcher = None

    # --- inside -----------------------------------------------------------------------

    async def _steer(self, run: Run, message: Message) -> Run:
        fact = facts.RunSteered(signal_id=new_id("sig"), run_id=run.id, message=stored(message))
        await self._journal.append(run.session_id, [fact], origin=Origin(run_id=run.id))
        return run

    async def _unfinished(self, session_id: str) -> list[Run]:
        query = RowQuery(
            projection=RUNS,
            session_id=session_id,
            where=(Condition("status", "in", ("running", "parked", "queued")),),
            order="place",
            limit=1000,
        )
        return [keyed.row for keyed in await self._journal.rows(query)]

    async def _next(self, session_id: str) -> Run | None:
        """Return the run that this process should execute now.

        What was interrupted comes first; a parked run holds up the queue, because its turn
        is not over; a run of another living process is left to that process.
        """
        waiting = await self._unfinished(session_id)
        waiting.sort(key=lambda run: not run.has_started)
        if not waiting or waiting[0].status == "parked":
            return None
        first = waiting[0]
        if first.status == "running" or first.owner in ("", self._keeper.owner):
            return first
        return None if await self._journal.store.is_alive(first.owner) else first

    async def _execute(self, run: Run, lease: Lease, handler: Handler) -> None:
        [queued] = await self._journal.store.read(run.session_id, seqs=[run.queued_at])
        turn = Turn(self._manager, run, lease, queued.expect(facts.RunQueued))
        cancelled = await turn.signals("cancel")
        if cancelled:
            await self._end(turn, Cancelled(reason=cancelled[0].reason))
            return
        begin: Payload = facts.RunStarted(run_id=run.id)
        if run.has_started:
            cause = run.reason if run.status == "queued" else "interrupted"
            begin = facts.RunResumed(run_id=run.id, cause=cause)
        await turn.append(begin)
        self._active[run.id] = turn
        self._watch()
        try:
            outcome = await self._outcome(turn, handler)
            await self._end(turn, outcome)
        except asyncio.CancelledError:
            await asyncio.shield(self._end(turn, Cancelled(reason="the caller stopped waiting")))
            raise
        finally:
            del self._active[run.id]

    async def _outcome(self, turn: Turn, handler: Handler) -> Outcome:
        try:
            return await handler(turn)
        except LeaseLost:
            raise
        except HoldfastError as error:
            return Failed(error=error.to_dict())
        except Exception as error:  # noqa: BLE001 - the turn is where a failure becomes a fact
            detail = f"{type(error).__name__}: {error}"
            return Failed(error=HoldfastError(detail=detail).to_dict())

    async def _end(self, turn: Turn, outcome: Outcome) -> None:
        run_id = turn.run.id
        match outcome:
            case Completed(result=result):
                end: Payload = facts.RunCompleted(run_id=run_id, result=result)
            case Parked(reason=reason):
                end = facts.RunParked(run_id=run_id, reason=reason)
            case Cancelled(reason=reason):
                reason = reason or turn.cancel_reason
                end = facts.RunCancelled(run_id=run_id, reason=reason)
            case Failed(error=error):
                end = facts.RunFailed(run_id=run_id, error=error)
        moved = () if isinstance(outcome, Parked) else await self._late_steering(turn)
        await turn.append(end, *moved)

    async def _late_steering(self, turn: Turn) -> tuple[Payload, ...]:
        """Turn steering messages that nobody took into turns of their own: none is lost."""
        signals = await turn.signals("steer")
        if not signals:
            return ()
        numbers = [signal.session_seq for signal in signals]
        moved: list[Payload] = []
        for event in await self._journal.store.read(turn.session_id, seqs=numbers):
            sent = event.expect(facts.RunSteered)
            run_id = new_id("run")
            moved.append(facts.SignalMoved(signal_id=sent.signal_id, run_id=run_id))
            moved.append(
                facts.RunQueued(
                    run_id=run_id,
                    owner=turn.request.owner,
                    message=sent.message,
                    agent=turn.request.agent,
                    options=turn.request.options,
                )
            )
        return tuple(moved)

    async def _end_idle(self, run_id: str, lease: Lease, reason: str) -> Run:
        """End a run that nobody is executing, and give the lease back."""
        try:
            run = await self.get(run_id)
            if not run.has_ended:
                fact = facts.RunCancelled(run_id=run_id, reason=reason)
                await self._journal.append(
                    run.session_id, [fact], epoch=lease.epoch, origin=Origin(run_id=run_id)
                )
        finally:
            await self._keeper.release(lease)
        return await self.get(run_id)

    def _watch(self) -> None:
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(self._look_for_signals())

    async def _look_for_signals(self) -> None:
        """Notice what other processes ask of runs that are executed here."""
        query = RowQuery(projection=SIGNALS, limit=1000)
        while self._active:
            for keyed in await self._journal.rows(query):
                turn = self._active.get(keyed.row.run_id)
                if turn is not None and keyed.row.kind == "cancel":
                    turn.cancel_reason = keyed.row.reason
                    turn.cancelled.set()
            await asyncio.sleep(_LOOK_FOR_SIGNALS_S)
