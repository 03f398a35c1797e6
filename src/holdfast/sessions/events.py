"""The facts of sessions, messages and runs, with the types that only facts are made of."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from holdfast.canonical import JsonObject
from holdfast.journal import Payload, payload, upcaster
from holdfast.messages import Message, Part

SessionState: TypeAlias = Literal["active", "suspended", "completed", "failed", "archived"]
Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""First and last numbers of events, sorted and apart."""
PermissionAction: TypeAlias = Literal["allow", "deny", "ask"]
OnBusy: TypeAlias = Literal["queue", "reject", "interrupt", "steer"]
ON_BUSY: tuple[OnBusy, ...] = ("queue", "reject", "interrupt", "steer")


class PermissionRule(msgspec.Struct, frozen=True, kw_only=True):
    """What one permission does for targets that match a pattern."""

    permission: str
    pattern: str = "*"
    action: PermissionAction = "ask"


class ForkPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a session branched off another one."""

    session_id: str
    session_seq: int
    hash: str


def _drop_content(message: Message) -> Message:
    return msgspec.structs.replace(message, parts=(), metadata={"redacted": True})


@payload("session.created", version=2, is_open=True, is_inherited=False)
class SessionCreated(Payload, frozen=True, kw_only=True):
    """A session began; always its first event."""

    slug: str
    project_id: str
    directory: str
    title: str
    version: str
    parent_id: str = ""
    permission: tuple[PermissionRule, ...] = ()
    expires_at: float = 0.0
    metadata: JsonObject = msgspec.field(default_factory=dict)
    forked_from: ForkPoint | None = None
    owner: str = ""
    """The subject whose session it is; empty: that of the owner of the state directory."""


@upcaster("session.created", from_version=1)
def _mark_owned_locally(value: JsonObject) -> JsonObject:
    """Sessions from before there were users belong to the owner of the state directory."""
    return value


@payload("session.forked", is_open=True, is_inherited=False)
class SessionForked(Payload, frozen=True, kw_only=True):
    """Everything before this was taken over from another session."""

    source: ForkPoint


class SessionChanges(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """New values of a session's fields; `UNSET` leaves a field as it is.

    `metadata` holds only the keys that change, so that two who change different keys at the
    same time both succeed; a value of `None` removes the key.
    """

    title: str | msgspec.UnsetType = msgspec.UNSET
    slug: str | msgspec.UnsetType = msgspec.UNSET
    summary: str | msgspec.UnsetType = msgspec.UNSET
    directory: str | msgspec.UnsetType = msgspec.UNSET
    project_id: str | msgspec.UnsetType = msgspec.UNSET
    permission: tuple[PermissionRule, ...] | msgspec.UnsetType = msgspec.UNSET
    expires_at: float | msgspec.UnsetType = msgspec.UNSET
    metadata: JsonObject | msgspec.UnsetType = msgspec.UNSET
    agent: str | msgspec.UnsetType = msgspec.UNSET
    pruned_to: str | msgspec.UnsetType = msgspec.UNSET


@payload("session.updated", is_open=True)
class SessionUpdated(Payload, frozen=True, kw_only=True):
    """Some of the session's fields have new values."""

    changes: SessionChanges


@payload("session.rules_added", is_open=True)
class SessionRulesAdded(Payload, frozen=True, kw_only=True):
    """Another process added permission rules behind those that the session has."""

    rules: tuple[PermissionRule, ...]
    by: str = ""


@payload("session.state_changed", is_inherited=False)
class SessionStateChanged(Payload, frozen=True, kw_only=True):
    """The session went to another state."""

    state: SessionState
    reason: str = ""


@payload("session.archived", is_inherited=False)
class SessionArchived(Payload, frozen=True, kw_only=True):
    """The session was put away."""

    reason: str = ""


@payload("session.restored", is_inherited=False)
class SessionRestored(Payload, frozen=True, kw_only=True):
    """The session is active again."""

    reason: str = ""


@payload("session.omitted")
class EventOmitted(Payload, frozen=True, kw_only=True):
    """Stands in a copy where the source has an event that copies do not take over.

    It keeps the numbers of all other events as they were, so that facts that name an event
    by its number mean the same in the copy.
    """

    omitted: str


@payload("session.reverted")
class SessionReverted(Payload, frozen=True, kw_only=True):
    """The conversation is again what it was at event `to`.

    `hidden` lists all ranges of event numbers that do not count from now on.
    """

    to: int
    message_count: int
    hidden: tuple[tuple[int, int], ...] = ()


@payload("message.created", has_content=True)
class MessageCreated(Payload, frozen=True, kw_only=True):
    """A message was added; `signal_id` names the steering message it came from."""

    message: Message
    signal_id: str = ""

    def redacted(self) -> MessageCreated:
        """Keep id, role and cost; drop parts and metadata."""
        return msgspec.structs.replace(self, message=_drop_content(self.message))


@payload("message.part.updated", has_content=True)
class MessagePartUpdated(Payload, frozen=True, kw_only=True):
    """A part of a message was replaced (same id) or added (new id)."""

    message_id: str
    part: Part | None

    def redacted(self) -> MessagePartUpdated:
        """Keep which message; drop the part."""
        return MessagePartUpdated(message_id=self.message_id, part=None)


@payload("message.deleted")
class MessageDeleted(Payload, frozen=True, kw_only=True):
    """A message was taken out of the conversation."""

    message_id: str


@payload("run.queued", version=2, is_open=True, is_inherited=False, has_content=True)
class RunQueued(Payload, frozen=True, kw_only=True):
    """A turn waits for the session; `owner` is the process that wants to execute it."""

    run_id: str
    owner: str = ""
    message: Message | None = None
    agent: str = ""
    is_urgent: bool = False
    options: JsonObject = msgspec.field(default_factory=dict)
    traceparent: str = ""
    """The place in its caller's trace, as W3C Trace Context writes it; empty without one."""

    @property
    def wakes_session(self) -> bool:
        """Whether it is for any process."""
        return not self.owner

    @property
    def wake_place(self) -> tuple[str, int]:
        """The queue and the priority that it was queued with."""
        return str(self.options.get("queue", "")), int(self.options.get("priority", 0))

    def redacted(self) -> RunQueued:
        """Keep who and when; drop message and options."""
        return msgspec.structs.replace(self, message=None, options={})


@upcaster("run.queued", from_version=1)
def _queue_without_trace(value: JsonObject) -> JsonObject:
    """Of the first version no trace is known; its options name no client, queue or priority."""
    return value


@payload("run.started", is_inherited=False)
class RunStarted(Payload, frozen=True, kw_only=True):
    """A run holds the session's lease for the first time."""

    run_id: str


@payload("run.resumed", is_inherited=False)
class RunResumed(Payload, frozen=True, kw_only=True):
    """A run goes on, after a crash or after it was parked."""

    run_id: str
    cause: str


@payload("run.parked", is_inherited=False, is_synced=True)
class RunParked(Payload, frozen=True, kw_only=True):
    """A run waits for an answer; nothing of it stays in memory."""

    run_id: str
    reason: str


@payload("run.woken", is_open=True, is_inherited=False)
class RunWoken(Payload, frozen=True, kw_only=True):
    """What a parked run waits for has come; it is queued again, at its old place.

    For a run that has not parked yet it is remembered until it does.
    """

    run_id: str
    cause: str
    owner: str = ""

    @property
    def wakes_session(self) -> bool:
        """Whether it is for any process."""
        return not self.owner


@payload("run.completed", is_inherited=False, is_synced=True, has_content=True)
class RunCompleted(Payload, frozen=True, kw_only=True):
    """A run has done its work."""

    run_id: str
    result: JsonObject = msgspec.field(default_factory=dict)

    def redacted(self) -> RunCompleted:
        """Keep that it ended; drop the result."""
        return RunCompleted(run_id=self.run_id)


@payload("run.failed", is_inherited=False, is_synced=True)
class RunFailure(Payload, frozen=True, kw_only=True):
    """A run ended with an error (`HoldfastError.to_dict`)."""

    run_id: str
    error: JsonObject


@payload("run.cancelled", is_inherited=False, is_synced=True)
class RunCancelled(Payload, frozen=True, kw_only=True):
    """A run was ended on request; `stopped_by` is who stopped it where it asked, if one did."""

    run_id: str
    reason: str = ""
    stopped_by: str = ""


@payload("run.cancel_requested", is_open=True, is_inherited=False, is_synced=True)
class RunCancelRequested(Payload, frozen=True, kw_only=True):
    """Another process wants a run to end; one that has not started ends with this fact.

    `stopped_by` is who stopped a run below this one where that asked, if one did.
    """

    run_id: str
    reason: str = ""
    stopped_by: str = ""


@payload("run.steered", is_open=True, is_inherited=False, has_content=True)
class RunSteered(Payload, frozen=True, kw_only=True):
    """A message for a run that is under way; consumed by `message.created`."""

    signal_id: str
    run_id: str
    message: Message | None

    def redacted(self) -> RunSteered:
        """Keep that it came; drop the message."""
        return msgspec.structs.replace(self, message=None)


@payload("run.signal_moved", is_inherited=False)
class SignalMoved(Payload, frozen=True, kw_only=True):
    """A steering message came too late for its run and became the turn `run_id`, if any."""

    signal_id: str
    run_id: str = ""
