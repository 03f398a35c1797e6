"""Tables that follow from the facts: sessions, messages, runs, signals."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from holdfast.canonical import JsonObject
from holdfast.journal.envelope import Event
from holdfast.journal.payloads import Payload
from holdfast.journal.projection import AnyProjection, Projection
from holdfast.sessions import events as facts
from holdfast.sessions.model import Session

RunStatus: TypeAlias = Literal["queued", "running", "parked", "completed", "failed", "cancelled"]
ENDED: tuple[RunStatus, ...] = ("completed", "failed", "cancelled")


class SessionsTable(Projection[Session]):
    """One row per session: the session itself."""

    name = "sessions"
    version = 1
    row_type = Session
    columns = (
        "id",
        "slug",
        "title",
        "project_id",
        "directory",
        "parent_id",
        "state",
        "time_created",
        "time_updated",
        "expires_at",
        "message_count",
        "total_cost",
    )
    indexes = (("time_updated",), ("slug",))
    kinds = frozenset(
        {
            facts.SessionCreated.kind,
            facts.SessionForked.kind,
            facts.SessionUpdated.kind,
            facts.SessionRulesAdded.kind,
            facts.SessionStateChanged.kind,
            facts.SessionArchived.kind,
            facts.SessionRestored.kind,
            facts.SessionReverted.kind,
            facts.MessageCreated.kind,
            facts.MessageDeleted.kind,
        }
    )

    def key(self, event: Event, payload: Payload) -> str:
        """A session has one row, under its own id."""
        return event.session_id

    def apply(self, row: Session | None, event: Event, payload: Payload) -> Session | None:
        """Fold one fact into the session."""
        if isinstance(payload, facts.SessionCreated):
            return _created(event, payload)
        if row is None:
            return None
        replace = msgspec.structs.replace
        row = replace(row, time_updated=max(row.time_updated, event.time))
        match payload:
            case facts.MessageCreated(message=message):
                cost = row.total_cost + message.cost_usd
                return replace(row, message_count=row.message_count + 1, total_cost=cost)
            case facts.MessageDeleted():
                return replace(row, message_count=max(0, row.message_count - 1))
            case facts.SessionUpdated(changes=changes):
                return _changed(row, changes)
            case facts.SessionRulesAdded(rules=rules):
                return replace(row, permission=(*row.permission, *rules))
            case facts.SessionStateChanged(state=state, reason=reason):
                return replace(row, state=state, state_reason=reason)
            case facts.SessionArchived(reason=reason):
                return replace(row, state="archived", state_reason=reason, time_archived=event.time)
            case facts.SessionRestored(reason=reason):
                return replace(row, state="active", state_reason=reason, time_archived=0.0)
            case facts.SessionReverted(to=to, message_count=count):
                hidden = _merged((*row.hidden, (to + 1, event.session_seq)))
                return replace(row, hidden=hidden, message_count=count)
            case facts.SessionForked():
                # What the other session spent is not spent again.
                return replace(row, total_cost=0.0)
        return row


def _created(event: Event, payload: facts.SessionCreated) -> Session:
    return Session(
        id=event.session_id,
        slug=payload.slug,
        project_id=payload.project_id,
        directory=payload.directory,
        title=payload.title,
        version=payload.version,
        parent_id=payload.parent_id,
        permission=payload.permission,
        expires_at=payload.expires_at,
        metadata=payload.metadata,
        forked_from=payload.forked_from,
        time_created=event.time,
        time_updated=event.time,
    )


def _changed(row: Session, changes: facts.SessionChanges) -> Session:
    values = {
        name: value
        for name, value in msgspec.structs.asdict(changes).items()
        if value is not msgspec.UNSET
    }
    return msgspec.structs.replace(row, **values)


def _merged(ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Join ranges that overlap, so that repeated reverts do not pile up."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return tuple(joined)


class MessageRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a message stands in the log; its content is read from there."""

    id: str
    role: str
    session_seq: int
    updates: tuple[int, ...] = ()
    run_id: str = ""
    is_deleted: bool = False


class MessagesTable(Projection[MessageRow]):
    """One row per message: its place in the log."""

    name = "messages"
    version = 1
    row_type = MessageRow
    columns = ("session_seq", "is_deleted", "role")
    indexes = (("session", "session_seq"),)
    kinds = frozenset(
        {facts.MessageCreated.kind, facts.MessagePartUpdated.kind, facts.MessageDeleted.kind}
    )

    def key(self, event: Event, payload: Payload) -> str:
        """A message has one row, under its id."""
        if isinstance(payload, facts.MessageCreated):
            return payload.message.id
        assert isinstance(payload, facts.MessagePartUpdated | facts.MessageDeleted)
        return payload.message_id

    def apply(self, row: MessageRow | None, event: Event, payload: Payload) -> MessageRow | None:
        """Fold one fact into the message's row."""
        if isinstance(payload, facts.MessageCreated):
            message = payload.message
            return MessageRow(
                id=message.id,
                role=message.role,
                session_seq=event.session_seq,
                run_id=event.run_id,
            )
        if row is None:
            return None
        if isinstance(payload, facts.MessageDeleted):
            return msgspec.structs.replace(row, is_deleted=True)
        return msgspec.structs.replace(row, updates=(*row.updates, event.session_seq))


class Run(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run: exactly one of queued, running (leased), parked, or ended.

    `queued_at` is the number of the event that queued it; its message and options are there.
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
    reason: str = ""
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
    columns = ("id", "session_id", "status", "place", "time_queued")
    indexes = (("id",), ("status",))
    kinds = frozenset(
        {
            facts.RunQueued.kind,
            facts.RunStarted.kind,
            facts.RunResumed.kind,
            facts.RunParked.kind,
            facts.RunWoken.kind,
            facts.RunCompleted.kind,
            facts.RunFailed.kind,
            facts.RunCancelled.kind,
        }
    )

    def key(self, event: Event, payload: Payload) -> str:
        """A run has one row, under its id."""
        return str(getattr(payload, "run_id", ""))

    def apply(self, row: Run | None, event: Event, payload: Payload) -> Run | None:
        """Fold one fact into the run."""
        if isinstance(payload, facts.RunQueued):
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
        if row is None:
            return None
        replace = msgspec.structs.replace
        match payload:
            case facts.RunStarted():
                return replace(row, status="running", has_started=True, time_started=event.time)
            case facts.RunResumed():
                return replace(row, status="running", has_started=True)
            case facts.RunParked(reason=reason):
                return replace(row, status="parked", reason=reason)
            case facts.RunWoken(cause=cause, owner=owner):
                return replace(row, status="queued", reason=cause, owner=owner)
            case facts.RunCompleted(result=result):
                return replace(row, status="completed", result=result, time_ended=event.time)
            case facts.RunFailed(error=error):
                return replace(row, status="failed", error=error, time_ended=event.time)
            case facts.RunCancelled(reason=reason):
                return replace(row, status="cancelled", reason=reason, time_ended=event.time)
        return row


class Signal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something sent to a run under way, not yet consumed; `session_seq` is where it stands."""

    id: str
    session_id: str
    run_id: str
    kind: Literal["cancel", "steer"]
    session_seq: int
    reason: str = ""


class SignalsTable(Projection[Signal]):
    """One row per signal that waits; consuming it removes the row."""

    name = "signals"
    version = 1
    row_type = Signal
    columns = ("session_id", "run_id", "session_seq")
    kinds = frozenset(
        {
            facts.RunCancelRequested.kind,
            facts.RunCompleted.kind,
            facts.RunFailed.kind,
            facts.RunCancelled.kind,
            facts.RunSteered.kind,
            facts.MessageCreated.kind,
            facts.SignalMoved.kind,
        }
    )

    def key(self, event: Event, payload: Payload) -> str:
        """A steering message has its own id; a run can be cancelled once."""
        match payload:
            case (
                facts.RunSteered(signal_id=signal_id)
                | facts.MessageCreated(signal_id=signal_id)
                | facts.SignalMoved(signal_id=signal_id)
            ):
                return signal_id
        return f"cancel:{getattr(payload, 'run_id', '')}"

    def apply(self, row: Signal | None, event: Event, payload: Payload) -> Signal | None:
        """Keep a new signal; drop a consumed one."""
        match payload:
            case facts.RunCancelRequested(run_id=run_id, reason=reason):
                return Signal(
                    id=f"cancel:{run_id}",
                    session_id=event.session_id,
                    run_id=run_id,
                    kind="cancel",
                    session_seq=event.session_seq,
                    reason=reason,
                )
            case facts.RunSteered(signal_id=signal_id, run_id=run_id):
                return Signal(
                    id=signal_id,
                    session_id=event.session_id,
                    run_id=run_id,
                    kind="steer",
                    session_seq=event.session_seq,
                )
        return None


SESSIONS = SessionsTable()
MESSAGES = MessagesTable()
RUNS = RunsTable()
SIGNALS = SignalsTable()

SESSION_PROJECTIONS: tuple[AnyProjection, ...] = (SESSIONS, MESSAGES, RUNS, SIGNALS)
"""The tables of this room, for the store."""
