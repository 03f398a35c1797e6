"""How a turn is executed: from its first transaction to the facts that say how it ended.

Where nothing waits, one transaction begins a turn, on what was read before it. A process
remembers where it left the sessions that had nothing more to do. A session that is read after
that, and has not grown until its next turn begins, is what that turn would read. None of this
is trusted by itself: the turn says at which number the session must still end, and the store
refuses if it does not.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from holdfast.errors import AlreadyExists, SessionBusy, StaleWriter, StorageError, UsageError
from holdfast.journal import Condition, Event, Origin, Payload, RowQuery, decode_payload
from holdfast.sessions import (
    RUNS,
    SUBJECT,
    NewSession,
    Run,
    Session,
    SessionManager,
    acting_for,
    check_open,
    get_run,
    list_unfinished,
)
from holdfast.sessions import events as facts
from holdfast.turns.leases import LeaseKeeper
from holdfast.turns.outcomes import finish, list_late_steering, make_failed, make_outcome
from holdfast.turns.turn import (
    Handler,
    Outcome,
    Turn,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnParked,
)

_MOST = 1_000
_LOOK_FOR_SIGNALS_S = 0.2
RUN_CANCELLED = "The run was cancelled."


class IdleSession(msgspec.Struct, frozen=True):
    """A session in which nothing waits, and the number at which its log ends."""

    session: Session
    number: int


class TurnExecutor:
    """Begins turns, calls their handlers, notes how they ended; knows those under way here.

    Who asks for an end in this process tells the turn itself; what others ask is looked for in
    the journal, as long as there is a turn.
    """

    def __init__(self, manager: SessionManager, keeper: LeaseKeeper) -> None:
        """Know nothing yet of the manager's sessions; nothing is under way."""
        self._manager = manager
        self._journal = manager.journal
        self._keeper = keeper
        self._turns: dict[str, Turn] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watcher: asyncio.Task[None] | None = None
        # Bounded: the sessions that were left, or looked up, last.
        self._left_at: OrderedDict[str, int] = OrderedDict()
        self._looked_up: OrderedDict[str, IdleSession] = OrderedDict()
        keeper.on_loss(self._note_loss)

    @property
    def active(self) -> int:
        """How many turns are executed here now."""
        return len(self._turns)

    def find(self, run_id: str) -> Turn | None:
        """Return the turn of a run that is executed here now."""
        return self._turns.get(run_id)

    async def look_up(self, session_id: str) -> Session:
        """Return a session in which a turn is about to begin, and keep it for that turn.

        Raises:
            NotFound: there is none.
        """
        number = self._left_at.get(session_id)
        session = await self._manager.get_session(session_id)
        if number is not None:
            self._looked_up.pop(session_id, None)
            self._looked_up[session_id] = IdleSession(session, number)
            if len(self._looked_up) > _MOST:
                self._looked_up.popitem(last=False)
        return session

    async def begin(
        self,
        session_id: str,
        queued: facts.RunQueued,
        opening: NewSession | None,
        correlation_id: str = "",
    ) -> Turn | None:
        """Queue and start a run in one transaction; `None` when something else comes first.

        Raises:
            InvalidTransition: the session is not active.
        """
        origin = Origin(run_id=queued.run_id, correlation_id=correlation_id)
        if opening is not None:
            first = IdleSession(opening.as_of(0.0), 0)
            return await self._begin(first, queued, origin, opening.created)
        known = self._looked_up.pop(session_id, None)
        turn = await self._begin(known, queued, origin) if known is not None else None
        if turn is None:
            session_id = (await self._manager.get_session(session_id)).id
            number = await self._manager.find_last_number(session_id)
            # Read after the number, so that it is not older.
            session = await self._manager.get_session(session_id)
            check_open(session, self._journal.clock.now())
            if not await list_unfinished(self._journal, session_id):
                turn = await self._begin(IdleSession(session, number), queued, origin)
        return turn

    async def _begin(
        self,
        idle: IdleSession,
        queued: facts.RunQueued,
        origin: Origin,
        created: facts.SessionCreated | None = None,
    ) -> Turn | None:
        """Begin a turn in a session that is idle at this number; `None` if it is not any more."""
        session, journal = idle.session, self._journal
        check_open(session, journal.clock.now())
        first: list[Payload] = [queued, facts.RunStarted(run_id=queued.run_id)]
        if created is not None:
            first.insert(0, created)
        batch = journal.batch(first, origin)
        try:
            lease, events = await self._keeper.begin(
                session.id, batch, after=idle.number, must_be_new=created is not None
            )
        except (StaleWriter, SessionBusy, AlreadyExists):
            return None
        except asyncio.CancelledError:
            await finish(self._keeper.forgo(session.id))
            raise
        transcript = self._manager.messages.transcripts.kept.get(session.id)
        if transcript is not None:
            transcript.follow(events, batch.drafts)
        # As they were stored: without secrets.
        begun, request = batch.drafts[0].value, batch.drafts[-2].value
        if isinstance(begun, facts.SessionCreated):
            session = NewSession(id=session.id, created=begun).as_of(events[0].time)
        assert isinstance(request, facts.RunQueued)
        run = RUNS.apply(None, events[-2], request)
        assert run is not None
        correlation_id = origin.correlation_id
        turn = Turn(self._manager, run, lease, request, session, correlation_id=correlation_id)
        turn.run = RUNS.apply(run, events[-1], batch.drafts[-1].value) or run
        return turn

    async def execute(self, turn: Turn, handler: Handler) -> list[str]:
        """Call the handler, note the outcome, and return the runs that late steering became.

        The session is given back, whatever happens.
        """
        self._turns[turn.run.id] = turn
        self._loop = asyncio.get_running_loop()
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(self._look_for_cancellation())
        try:
            outcome: object = TurnCancelled()
            if not turn.cancelled.is_set():
                try:
                    session = turn.session or await self._manager.get_session(turn.session_id)
                    # What begins meanwhile is the session owner's, also where another caller asked.
                    is_owner = SUBJECT.get() == session.owner
                    with contextlib.nullcontext() if is_owner else acting_for(session.owner):
                        outcome = await turn.work(handler)
                except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - see there
                    outcome = await make_outcome(turn, error)
            if not isinstance(outcome, TurnCompleted | TurnParked | TurnCancelled | TurnFailed):
                kind = type(outcome).__name__
                outcome = make_failed(f"the handler returned {kind}, which is no outcome")
            return await self.end(turn, outcome)
        finally:
            del self._turns[turn.run.id]
            if not turn.is_released:
                # Where even that cannot be stored, the lease runs out.
                with contextlib.suppress(StorageError):
                    await self._keeper.release(turn.lease)

    async def end(self, turn: Turn, outcome: Outcome) -> list[str]:
        """Note how a run ended or that it rests.

        Steering messages that no process took become turns of their own: none is lost. Their runs
        are returned.
        """
        is_alone = turn.is_alone
        while True:
            # What its own appends have shown need not be read; the store refuses if there is more.
            seq = turn.last if is_alone else await self._manager.find_last_number(turn.session_id)
            # Where no other process has written, no process has steered, woken or cancelled.
            run = turn.run if is_alone else await get_run(self._journal, turn.run.id)
            if isinstance(outcome, TurnParked) and run.is_cancel_requested:
                await turn.close_own_calls(RUN_CANCELLED)
                outcome = TurnCancelled(reason=run.reason, stopped_by=run.stopped_by)
                continue
            is_over = is_alone or isinstance(outcome, TurnParked)
            moved = [] if is_over else await list_late_steering(turn, self._keeper.owner)
            try:
                events = await turn.append(
                    *_end_facts(turn, run, outcome), *moved, after=seq, release=True
                )
            except StaleWriter:
                # Unless its own facts came between, which were still being stored.
                is_alone = turn.is_alone and turn.last != seq
                continue
            except UsageError as error:
                outcome = make_failed(f"the outcome cannot be stored: {error}")
                continue
            turn.is_released = True
            self._keeper.let_go(turn.lease)
            if is_alone:
                turn.ended = _fold(run, events)
                if turn.session is not None and not isinstance(outcome, TurnParked):
                    self._left_at.pop(turn.session_id, None)
                    self._left_at[turn.session_id] = turn.last
                    if len(self._left_at) > _MOST:
                        self._left_at.popitem(last=False)
            return [fact.run_id for fact in moved if isinstance(fact, facts.RunQueued)]

    async def close(self) -> None:
        """Stop looking for what other processes ask."""
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
        self._watcher = None

    def _note_loss(self, session_id: str, epoch: int) -> None:
        """Have a turn stopped whose lease is lost; called in the thread that renews."""
        # A loop that has ended has no turns either.
        with contextlib.suppress(RuntimeError):
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._overtake, session_id, epoch)

    def _overtake(self, session_id: str, epoch: int) -> None:
        for turn in tuple(self._turns.values()):
            if (turn.session_id, turn.epoch) == (session_id, epoch):
                turn.overtake()

    async def _look_for_cancellation(self) -> None:
        wanted = (Condition("status", "=", "running"), Condition("is_cancel_requested", "=", True))
        query = RowQuery(projection=RUNS, where=wanted, limit=250)
        while self._turns:
            with contextlib.suppress(StorageError):
                asked = {found.key: found.row for found in await self._journal.rows(query)}
                for run_id in asked.keys() & self._turns.keys():
                    run = asked[run_id]
                    self._turns[run_id].ask_to_end(run.reason, run.stopped_by)
            await asyncio.sleep(_LOOK_FOR_SIGNALS_S)


def _end_facts(turn: Turn, run: Run, outcome: Outcome) -> list[Payload]:
    """Return the facts that say how a run ended or that it rests."""
    match outcome:
        case TurnCompleted(result=result):
            return [facts.RunCompleted(run_id=run.id, result=result)]
        case TurnFailed(error=error):
            return [facts.RunFailure(run_id=run.id, error=error)]
        case TurnCancelled(reason=reason, stopped_by=by):
            reason, by = reason or turn.cancel_reason, by or turn.stopped_by
            return [facts.RunCancelled(run_id=run.id, reason=reason, stopped_by=by)]
    parked = facts.RunParked(run_id=run.id, reason=outcome.reason)
    woken = facts.RunWoken(run_id=run.id, cause="woken before it parked", owner=run.owner)
    return [parked, woken] if run.is_woken else [parked]


def _fold(run: Run, events: Sequence[Event]) -> Run:
    """Return a run after the last facts about it, as the queue would read it."""
    for event in events:
        fact = decode_payload(event.kind, event.version, event.payload)
        run = RUNS.apply(run, event, fact) or run
        if isinstance(fact, facts.RunCompleted):
            run = msgspec.structs.replace(run, result=fact.result)
    return run
