"""Tables that follow from the facts: sessions, messages, runs, signals."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from holdfast.canonical import JsonObject
from holdfast.journal import Payload
from holdfast.journal.envelope import Event
from holdfast.journal.projection import AnyProjection, Projection
from holdfast.messages import Message
from holdfast.sessions import events as facts
from holdfast.sessions.model import Ranges, Session, is_hidden

RunStatus: TypeAlias = Literal["queued", "running", "parked", "completed", "failed", "cancelled"]
ENDED: tuple[RunStatus, ...] = ("completed", "failed", "cancelled")


class SessionsTable(Projection[Session]):
    """One row per session: the session itself."""

    name = "sessions"
    version = 4
    is_lazy = True
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
    indexes = (("time_updated",), ("slug",), ("parent_id",))
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
    beginnings = frozenset({facts.SessionCreated.kind})

    def key(self, event: Event, payload: Payload) -> str:
        """A session has one row, under its own id."""
        return event.session_id

    def apply(self, row: Session | None, event: Event, payload: Payload) -> Session | None:
        """Fold one fact into the session."""
        if isinstance(payload, facts.SessionCreated):
            return session_of(event.session_id, payload, event.time)
        if row is None:
            return None
        if isinstance(payload, facts.MessageCreated):
            return _with_message(row, event, payload.message)
        replace = msgspec.structs.replace
        row = replace(row, time_updated=max(row.time_updated, event.time))
        match payload:
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
            case facts.SessionReverted(hidden=hidden, message_count=count):
                return replace(row, hidden=hidden, message_count=count)
        # A fork: what the other session spent is not spent again.
        return replace(row, total_cost=0.0, total_tokens=0, model_calls=0, tool_calls=0)


def session_of(session_id: str, payload: facts.SessionCreated, time: float) -> Session:
    """Return a session as it is when it begins."""
    return Session(
        id=session_id,
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
        time_created=time,
        time_updated=time,
    )


def _with_message(row: Session, event: Event, message: Message) -> Session:
    """Count a message and what it cost; what is deleted or reverted later stays spent."""
    is_answer = message.role == "assistant"
    used = message.usage.total if is_answer and message.usage else 0
    return msgspec.structs.replace(
        row,
        time_updated=max(row.time_updated, event.time),
        message_count=row.message_count + 1,
        total_cost=row.total_cost + message.cost_usd,
        total_tokens=row.total_tokens + used,
        model_calls=row.model_calls + is_answer,
        tool_calls=row.tool_calls + (len(message.tool_calls) if is_answer else 0),
    )


def _changed(row: Session, changes: facts.SessionChanges) -> Session:
    values = {
        name: value
        for name, value in msgspec.structs.asdict(changes).items()
        if value is not msgspec.UNSET
    }
    if "metadata" in values:
        values["metadata"] = merge_metadata(row.metadata, values["metadata"])
    return msgspec.structs.replace(row, **values)


def merge_metadata(old: JsonObject, changes: JsonObject) -> JsonObject:
    """Return metadata with changes applied key by key; `None` removes a key."""
    return {key: value for key, value in {**old, **changes}.items() if value is not None}


class MessageRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a message stands in the log; its content is read from there.

    `updates` and `deletions` are numbers of events; those that a revert hid do not count.
    Written with every message and every result, so it is kept small.
    """

    session_seq: int
    updates: tuple[int, ...] = ()
    deletions: tuple[int, ...] = ()

    def is_visible(self, hidden: Ranges) -> bool:
        """Say whether the message belongs to the conversation."""
        return not is_hidden(hidden, self.session_seq) and all(
            is_hidden(hidden, number) for number in self.deletions
        )


class MessagesTable(Projection[MessageRow]):
    """One row per message: its place in the log."""

    name = "messages"
    version = 4
    is_lazy = True
    row_type = MessageRow
    columns = ("session_seq",)
    indexes = (("session", "session_seq"),)
    kinds = frozenset(
        {facts.MessageCreated.kind, facts.MessagePartUpdated.kind, facts.MessageDeleted.kind}
    )
    beginnings = frozenset({facts.MessageCreated.kind})

    def key(self, event: Event, payload: Payload) -> str:
        """A message has one row, under its id."""
        if isinstance(payload, facts.MessagePartUpdated):
            return payload.message_id
        if isinstance(payload, facts.MessageCreated):
            return payload.message.id
        assert isinstance(payload, facts.MessageDeleted)
        return payload.message_id

    def apply(self, row: MessageRow | None, event: Event, payload: Payload) -> MessageRow | None:
        """Fold one fact into the message's row."""
        if isinstance(payload, facts.MessageCreated):
            return MessageRow(event.session_seq)
        if row is None:
            return None
        if isinstance(payload, facts.MessagePartUpdated):
            return msgspec.structs.replace(row, updates=(*row.updates, event.session_seq))
        return msgspec.structs.replace(row, deletions=(*row.deletions, event.session_seq))


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
    """Somebody woke it before it had parked."""
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
            facts.RunFailed.kind,
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
            return _queued(event, payload) if isinstance(payload, facts.RunQueued) else None
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
        return _ended(row, event, payload)


def _ended(row: Run, event: Event, payload: Payload) -> Run:
    replace = msgspec.structs.replace
    row = replace(row, time_ended=event.time, ended_at=event.session_seq)
    match payload:
        case facts.RunFailed(error=error):
            return replace(row, status="failed", error=error)
        case facts.RunCancelled() | facts.RunCancelRequested():
            by = payload.stopped_by
            return replace(row, status="cancelled", reason=payload.reason, stopped_by=by)
    return replace(row, status="completed")


def _queued(event: Event, payload: facts.RunQueued) -> Run:
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


SESSIONS = SessionsTable()
MESSAGES = MessagesTable()
RUNS = RunsTable()
SIGNALS = SignalsTable()

SESSION_PROJECTIONS: tuple[AnyProjection, ...] = (SESSIONS, MESSAGES, RUNS, SIGNALS)
"""The tables of this room, for the store."""
