"""Copies of events, for sessions that begin with what another one has."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.journal import (
    Draft,
    Event,
    Journal,
    Origin,
    Payload,
    digest_payload,
    list_known_kinds,
)
from holdfast.sessions.events import EventOmitted


def copy_draft(
    journal: Journal, event: Event, *, is_kept: Callable[[type[Payload]], bool]
) -> Draft:
    """Return an event as a draft for another chain: same time, same origin, same bytes.

    What is not kept is replaced by a fact that says so. Kinds that no process here knows are kept,
    unless they are redacted. Of a redacted event the copy holds what is left of it.
    """
    kind = list_known_kinds().get(event.kind, Payload)
    if not is_kept(kind) or (event.is_redacted and kind is Payload):
        omitted = journal.draft(EventOmitted(omitted=event.kind))
        return msgspec.structs.replace(omitted, time=event.time)
    origin = Origin(
        run_id=event.run_id,
        agent_path=event.agent_path,
        correlation_id=event.correlation_id,
        causation_id=event.causation_id,
    )
    if event.is_redacted:
        return msgspec.structs.replace(journal.draft(event.decode(), origin), time=event.time)
    return Draft(
        kind=event.kind,
        version=event.version,
        time=event.time,
        origin=origin,
        payload=event.payload,
        payload_digest=digest_payload(event.payload),
        value=Payload() if kind is Payload else event.decode(),
    )
