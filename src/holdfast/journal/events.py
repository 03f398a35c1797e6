"""Facts about the journal itself."""

from __future__ import annotations

from holdfast.journal.envelope import Payload, payload


@payload("journal.redacted", is_open=True, is_inherited=False, is_synced=True)
class EventsRedacted(Payload, frozen=True, kw_only=True):
    """The content of these events of the session was removed for good.

    `digests` are those of what is left of them, in the same order, so that this cannot be
    edited either.
    """

    numbers: tuple[int, ...]
    reason: str
    digests: tuple[str, ...] = ()


@payload("session.deleted", is_open=True, is_inherited=False, is_synced=True)
class SessionDeleted(Payload, frozen=True, kw_only=True):
    """A session was removed; its chain ended at `last` with `hash`. Kept in the system chain."""

    session_id: str
    last: int
    hash: str
    reason: str = ""
