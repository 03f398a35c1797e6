"""How a turn begins where nothing waits: one transaction, on what was read before it.

A process remembers where it left the sessions that had nothing more to do. A session that is
read after that, and has not grown until its next turn begins, is what that turn would read.
None of this is trusted by itself: the turn says at which number the session must still end,
and the store refuses if it does not.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from holdfast.errors import AlreadyExists, SessionBusy, StaleWriter
from holdfast.journal import Payload
from holdfast.journal.envelope import Draft, Event, Origin
from holdfast.journal.journal import Journal
from holdfast.journal.projection import Condition, RowQuery
from holdfast.sessions import events as facts
from holdfast.sessions.creation import NewSession
from holdfast.sessions.manager import SessionManager
from holdfast.sessions.model import Session, check_open
from holdfast.sessions.projections import RUNS, Run, session_of
from holdfast.sessions.writing import Lease
from holdfast.turns.leases import LeaseKeeper
from holdfast.turns.outcomes import finish
from holdfast.turns.turn import Turn

V = TypeVar("V")
_MOST = 1_000


class IdleSession(msgspec.Struct, frozen=True):
    """A session in which nothing waits, and the number at which its log ends."""

    session: Session
    number: int


class FastStart:
    """Begins turns; remembers a bounded number of sessions for that."""

    def __init__(self, manager: SessionManager, keeper: LeaseKeeper) -> None:
        """Know nothing yet of the manager's sessions."""
        self._manager = manager
        self._keeper = keeper
        self._left_at: OrderedDict[str, int] = OrderedDict()
        self._looked_up: OrderedDict[str, IdleSession] = OrderedDict()

    def leave(self, session_id: str, number: int) -> None:
        """Note that a session ends at this number, and that nothing waits in it."""
        _put(self._left_at, session_id, number)

    async def look_up(self, session_id: str) -> Session:
        """Return a session in which a turn is about to begin, and keep it for that turn.

        Raises:
            NotFound: there is none.
        """
        number = self._left_at.get(session_id)
        session = await self._manager.get_session(session_id)
        if number is not None:
            _put(self._looked_up, session_id, IdleSession(session, number))
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
            number = await self._manager.last_number(session_id)
            # Read after the number, so that it is not older.
            session = await self._manager.get_session(session_id)
            check_open(session, self._manager.journal.clock.now())
            if not await unfinished(self._manager.journal, session_id):
                turn = await self._begin(IdleSession(session, number), queued, origin)
        return turn

    async def _begin(
        self,
        standing: IdleSession,
        queued: facts.RunQueued,
        origin: Origin,
        created: facts.SessionCreated | None = None,
    ) -> Turn | None:
        """Begin a turn in a session that stands like this; `None` if it does not any more."""
        session_id, journal = standing.session.id, self._manager.journal
        check_open(standing.session, journal.clock.now())
        first: list[Payload] = [queued, facts.RunStarted(run_id=queued.run_id)]
        if created is not None:
            first.insert(0, created)
        batch = journal.batch(first, origin)
        try:
            lease, events = await self._keeper.begin(
                session_id, batch, after=standing.number, must_be_new=created is not None
            )
        except (StaleWriter, SessionBusy, AlreadyExists):
            return None
        except asyncio.CancelledError:
            await finish(self._keeper.forgo(session_id))
            raise
        self._manager.messages.transcripts.follow(events, batch.drafts)
        return _begun(self._manager, standing.session, lease, events, batch.drafts)


async def unfinished(journal: Journal, session_id: str) -> list[Run]:
    """Return what waits or is under way in a session, in the order in which it is executed."""
    query = RowQuery(
        projection=RUNS,
        session_id=session_id,
        where=(Condition("status", "in", ("running", "parked", "queued")),),
        order="place",
        limit=200,
    )
    waiting = [keyed.row for keyed in await journal.rows(query)]
    return sorted(waiting, key=lambda run: not run.has_started)


async def request_of(journal: Journal, run: Run) -> facts.RunQueued:
    """Return the request that a run was queued with."""
    return (await queued_of(journal, run)).expect(facts.RunQueued)


async def queued_of(journal: Journal, run: Run) -> Event:
    """Return the event with which a run was queued."""
    [event] = await journal.store.read(run.session_id, seqs=[run.queued_at])
    return event


def _begun(
    manager: SessionManager,
    session: Session,
    lease: Lease,
    events: Sequence[Event],
    drafts: Sequence[Draft],
) -> Turn:
    """Return the turn that began with these facts; the first may be of the session itself."""
    # As they were stored: without secrets.
    first, queued, started = drafts[0].value, drafts[-2].value, drafts[-1].value
    if isinstance(first, facts.SessionCreated):
        session = session_of(session.id, first, events[0].time)
    assert isinstance(queued, facts.RunQueued)
    run = RUNS.apply(None, events[-2], queued)
    assert run is not None
    correlation_id = events[-2].correlation_id
    turn = Turn(manager, run, lease, queued, session, correlation_id=correlation_id)
    turn.run = RUNS.apply(run, events[-1], started) or run
    return turn


def _put(kept: OrderedDict[str, V], key: str, value: V) -> None:
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > _MOST:
        kept.popitem(last=False)
