"""The envelope around every fact, and the hash chain that binds envelopes together."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec

from holdfast.errors import UsageError
from holdfast.journal.payloads import Payload, decode_payload, decode_redacted

GENESIS = "0" * 64
"""The hash before the first event of a session."""

SYSTEM_SESSION = "system"
"""The chain that holds facts about the store as a whole, such as deletions."""

P = TypeVar("P", bound=Payload)
_encode = msgspec.json.Encoder().encode


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One kept fact: where it stands, what it says, and how it is bound to the one before.

    `seq` counts the whole store, `session_seq` one session without gaps. `payload` is
    JSON; `is_redacted` says that its content was removed and only its shape is left.
    """

    seq: int
    session_id: str
    session_seq: int
    run_id: str
    agent_path: str
    kind: str
    version: int
    time: float
    correlation_id: str
    causation_id: str
    epoch: int
    payload_digest: str
    hash: str
    payload: bytes
    is_redacted: bool = False

    def decode(self) -> Payload:
        """Return the payload, or what redaction left of it, as the newest class of its kind."""
        if self.is_redacted:
            return decode_redacted(self.kind, self.payload)
        return decode_payload(self.kind, self.version, self.payload)

    def expect(self, wanted: type[P]) -> P:
        """Return the payload, which must be of the given class."""
        value = self.decode()
        if not isinstance(value, wanted):
            raise UsageError(detail=f"Event {self.seq} is {self.kind}, not {wanted.kind}.")
        return value


class Origin(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Who caused a fact: the run, the agent inside it, and the chain of causes."""

    run_id: str = ""
    agent_path: str = ""
    correlation_id: str = ""
    causation_id: str = ""


NO_ORIGIN = Origin()


class Encoded(msgspec.Struct, frozen=True, gc=False):
    """A fact on its way into the journal, of which it is certain that it can be kept.

    It may still hold secrets; `Journal.batch` takes them out.
    """

    value: Payload
    payload: bytes
    time: float
    origin: Origin


class Draft(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A fact as it will be stored, already encoded; `value` is what was encoded."""

    kind: str
    version: int
    time: float
    origin: Origin
    payload: bytes
    payload_digest: str
    value: Payload


class Batch(msgspec.Struct, frozen=True, gc=False):
    """Facts that are stored together, as they will be: encoded, and without secrets."""

    drafts: tuple[Draft, ...]
    was_redacted: bool = False
    """Whether one of them is not what was given."""


def payload_digest(payload: bytes) -> str:
    """Return the digest by which the chain knows a payload; `Journal.batch` makes the same."""
    return hashlib.sha256(payload).hexdigest()


def chain_hash(previous: str, header: tuple[object, ...]) -> str:
    """Return the hash that binds an event to the one before it.

    It covers the header with the payload's digest, not the payload, so that a redacted
    payload leaves the chain valid. The store-wide `seq` is not covered, so that an exported
    session keeps its hashes in another store.
    """
    return hashlib.sha256(_encode((previous, *header))).hexdigest()


def header_of(event: Event) -> tuple[object, ...]:
    """Return what the chain covers of an event, in the order in which it is hashed."""
    return (
        event.session_id,
        event.session_seq,
        event.kind,
        event.version,
        event.time,
        event.run_id,
        event.agent_path,
        event.correlation_id,
        event.causation_id,
        event.epoch,
        event.payload_digest,
    )


class ChainEnd(Protocol):
    """Where a chain ends, and under which lease it is written on."""

    @property
    def epoch(self) -> int:
        """That of the lease."""

    @property
    def hash(self) -> str:
        """That of the last event."""

    @property
    def session_seq(self) -> int:
        """The number of the last event."""


def chained(drafts: Sequence[Draft], session_id: str, end: ChainEnd, seq: int) -> list[Event]:
    """Return the events that drafts become at the end of a session's chain, behind `seq`.

    The hash of each is `chain_hash` over its `header_of`.
    """
    epoch, hash, session_seq = end.epoch, end.hash, end.session_seq
    events = []
    for draft in drafts:
        session_seq, seq, origin = session_seq + 1, seq + 1, draft.origin
        covered = (
            hash,
            session_id,
            session_seq,
            draft.kind,
            draft.version,
            draft.time,
            origin.run_id,
            origin.agent_path,
            origin.correlation_id,
            origin.causation_id,
            epoch,
            draft.payload_digest,
        )
        hash = hashlib.sha256(_encode(covered)).hexdigest()
        event = Event(
            seq=seq,
            session_id=session_id,
            session_seq=session_seq,
            run_id=origin.run_id,
            agent_path=origin.agent_path,
            kind=draft.kind,
            version=draft.version,
            time=draft.time,
            correlation_id=origin.correlation_id,
            causation_id=origin.causation_id,
            epoch=epoch,
            payload_digest=draft.payload_digest,
            hash=hash,
            payload=draft.payload,
        )
        events.append(event)
    return events
