"""The facts of triggers: made, fired, ended, removed.

A firing is claimed by its fact before anything is started. Its run has an id that follows from
the trigger and the event or tick, so that the caller that takes it up starts the same run.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from holdfast.canonical import JsonObject
from holdfast.journal import Payload, payload

FiringStatus: TypeAlias = Literal["open", "completed", "failed", "parked", "cancelled", "refused"]


@payload("trigger.created", is_open=True, is_inherited=False, is_of_store=True)
class TriggerCreated(Payload, frozen=True, kw_only=True):
    """A trigger is in force from here on."""

    trigger_id: str
    name: str
    definition: JsonObject


@payload("trigger.removed", is_open=True, is_inherited=False, is_of_store=True)
class TriggerRemoved(Payload, frozen=True, kw_only=True):
    """A trigger is no longer in force."""

    name: str


@payload(
    "trigger.fired",
    is_open=True,
    is_inherited=False,
    is_synced=True,
    has_content=True,
    is_of_store=True,
)
class TriggerFired(Payload, frozen=True, kw_only=True):
    """A process has claimed one event or tick; `given` is the message or the inputs.

    `chain` names the triggers that led here, this one last.
    """

    trigger_id: str
    name: str
    occurrence: str
    run_id: str
    session_id: str
    owner: str
    position: int = 0
    tick: float = 0.0
    chain: tuple[str, ...] = ()
    given: JsonObject = msgspec.field(default_factory=dict)

    def redacted(self) -> TriggerFired:
        """Keep what fired; drop what it was given."""
        return msgspec.structs.replace(self, given={})


@payload("trigger.ended", is_open=True, is_inherited=False, is_of_store=True)
class TriggerEnded(Payload, frozen=True, kw_only=True):
    """What was started rests: it has ended, or waits for a person."""

    trigger_id: str
    name: str
    occurrence: str
    run_id: str
    status: FiringStatus
    chain: tuple[str, ...] = ()
    error: JsonObject = msgspec.field(default_factory=dict)


@payload("trigger.passed", is_open=True, is_inherited=False, is_of_store=True)
class TriggerPassed(Payload, frozen=True, kw_only=True):
    """Everything up to here was looked at, and nothing more of it will fire."""

    trigger_id: str
    name: str
    position: int = 0
    tick: float = 0.0


__all__ = [
    "FiringStatus",
    "TriggerCreated",
    "TriggerEnded",
    "TriggerFired",
    "TriggerPassed",
    "TriggerRemoved",
]
