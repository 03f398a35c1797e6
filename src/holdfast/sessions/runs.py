"""Runs as they are recorded: queued, running, parked or ended, and what waits for them."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import NotFound
from holdfast.ids import check_id
from holdfast.journal import Condition, Event, Journal, Payload, Projection, RowQuery
from holdfast.sessions import events as facts

RunStatus: TypeAlias = Literal["queued", "running", "parked", "completed", "failed", "cancelled"]
ENDED: tuple[RunStatus, ...] = ("completed", "failed", "cancelled")


class Run(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A run: exactly one of queued, running (leased), parked, or ended.

    `queued_at` is the number of the event that queued it; its message and options are there.
    `result` comes from the event that ended it, so that content is kept in one place only.
    """

    id: str
    session_id: str
    status: RunStatus
    queued_at: int
    owner: str = ""
    agent: str = ""
    place: int = 0
    """The queue's order: urgent runs stand before all others."""
    has_started: bool = False
    is_cancel_requested: bool = False
    is_woken: bool = False
    """Another process woke it before it had parked."""
    ended_at: int = 0
    reason: str = ""
    stopped_by: str = ""
    """Who stopped it where it, or a run below it, asked; empty where it ends otherwise."""
    result: JsonObject = msgspec.field(default_factory=dict)
    error: JsonObject = msgspec.field(default_factory=dict)
    time_queued: float = 0.0
    time_started: float = 0.0
    time_ended: float = 0.0

    @property
    def has_ended(self) -> bool:
        """Say whether the run is over."""
        return self.status in ENDED


class RunsTable(Projection[Run]):
    """One row per run."""

    name = "runs"
    version = 1
    row_type = Run
    columns = ("id", "session_id", "status", "place", "time_queued", "is_cancel_requested")
    indexes = (("id",), ("session", "status"), ("status",))
    kinds = frozenset(
        {
            facts.RunQueued.kind,
            facts.RunStarted.kind,
            facts.RunResumed.kind,
            facts.RunParked.kind,
            facts.RunWoken.kind,
            facts.RunCompleted.kind,
            facts.RunFailure.kind,
            facts.RunCancelled.kind,
            facts.RunCancelRequested.kind,
        }
    )

    def key(self, event: Event, payload: Payload) -> str:
        """A run has one row, under its id."""
        return str(getattr(payload, "run_id", ""))

    def apply(self, row: Run | None, event: Event, payload: Payload) -> Run | None:
        """Fold one fact into the run; a run exists once, and its end is final."""
        if row is None:
            if not isinstance(payload, facts.RunQueued):
                return None
            return Run(
                id=payload.run_id,
                session_id=event.session_id,
                status="queued",
                queued_at=event.session_seq,
                owner=payload.owner,
                agent=payload.agent,
                place=-event.session_seq if payload.is_urgent else event.session_seq,
                time_queued=event.time,
            )
        if row.status in ENDED:
            return row
        replace = msgspec.structs.replace
        match payload:
            case facts.RunStarted():
                return replace(row, status="running", has_started=True, time_started=event.time)
            case facts.RunResumed():
                return replace(row, status="running", is_woken=False)
            case facts.RunParked(reason=reason):
                return replace(row, status="parked", reason=reason)
            case facts.RunWoken(cause=cause, owner=owner):
                if row.status == "parked":
                    return replace(row, status="queued", reason=cause, owner=owner)
                return replace(row, is_woken=True)
            case facts.RunCancelRequested(reason=reason, stopped_by=by):
                if row.has_started:
                    return replace(row, is_cancel_requested=True, reason=reason, stopped_by=by)
        return _make_ended(row, event, payload)


def _make_ended(row: Run, event: Event, payload: Payload) -> Run:
    replace = msgspec.structs.replace
    row = replace(row, time_ended=event.time, ended_at=event.session_seq)
    match payload:
        case facts.RunFailure(error=error):
            return replace(row, status="failed", error=error)
        case facts.RunCancelled() | facts.RunCancelRequested():
            by = payload.stopped_by
            return replace(row, status="cancelled", reason=payload.reason, stopped_by=by)
    return replace(row, status="completed")


class Signal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message for a run under way, not yet taken; `session_seq` is where it stands."""

    id: str
    session_id: str
    run_id: str
    session_seq: int


class SignalsTable(Projection[Signal]):
    """One row per signal that waits; consuming it removes the row."""

    name = "signals"
    version = 1
    row_type = Signal
    columns = ("session_id", "run_id", "session_seq")
    kinds = frozenset({facts.RunSteered.kind, facts.MessageCreated.kind, facts.SignalMoved.kind})

    def key(self, event: Event, payload: Payload) -> str:
        """A signal has its own id; most messages come from none."""
        return str(getattr(payload, "signal_id", ""))

    def apply(self, row: Signal | None, event: Event, payload: Payload) -> Signal | None:
        """Keep a new signal; drop a consumed one."""
        if not isinstance(payload, facts.RunSteered):
            return None
        return Signal(
            id=payload.signal_id,
            session_id=event.session_id,
            run_id=payload.run_id,
            session_seq=event.session_seq,
        )


RUNS = RunsTable()
SIGNALS = SignalsTable()


async def find_run(journal: Journal, run_id: str) -> Run | None:
    """Return a run, `None` when there is none."""
    query = RowQuery(projection=RUNS, where=(Condition("id", "=", run_id),), limit=1)
    found = await journal.rows(query)
    if not found:
        return None
    run = found[0].row
    if run.status == "completed":
        [event] = await journal.store.read(run.session_id, seqs=[run.ended_at])
        run = msgspec.structs.replace(run, result=event.expect(facts.RunCompleted).result)
    return run


async def get_run(journal: Journal, run_id: str) -> Run:
    """Return a run.

    Raises:
        NotFound: there is none.
    """
    run = await find_run(journal, check_id(run_id, "run"))
    if run is None:
        raise NotFound(kind="run", value=run_id)
    return run


async def list_unfinished(journal: Journal, session_id: str) -> list[Run]:
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


async def find_queued(journal: Journal, run: Run) -> Event:
    """Return the event with which a run was queued."""
    [event] = await journal.store.read(run.session_id, seqs=[run.queued_at])
    return event


async def request_of(journal: Journal, run: Run) -> facts.RunQueued:
    """Return the request that a run was queued with."""
    return (await find_queued(journal, run)).expect(facts.RunQueued)
