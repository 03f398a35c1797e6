"""Facts about the journal itself."""

from __future__ import annotations

import msgspec

from holdfast.journal.envelope import Payload, payload


class ExportedHead(msgspec.Struct, frozen=True, kw_only=True):
    """Where a chain ended when the heads were exported."""

    session_seq: int
    hash: str


@payload("journal.redacted", is_open=True, is_inherited=False, is_synced=True)
class EventsRedacted(Payload, frozen=True, kw_only=True):
    """The content of these events of the session was removed for good.

    `digests` are those of what is left of them, in the same order, so that this cannot be
    edited either.
    """

    numbers: tuple[int, ...]
    reason: str
    digests: tuple[str, ...] = ()


@payload("session.deleted", is_open=True, is_inherited=False, is_synced=True, is_of_store=True)
class SessionDeleted(Payload, frozen=True, kw_only=True):
    """A session was removed; its chain ended at `last` with `hash`. Kept in the system chain."""

    session_id: str
    last: int
    hash: str
    reason: str = ""


@payload("journal.anchored", is_open=True, is_inherited=False, is_synced=True, is_of_store=True)
class HeadsAnchored(Payload, frozen=True, kw_only=True):
    """Where chains of a store ended at a time, kept outside of it: those that have grown.

    `store` names the store, `seq` is its last store-wide number, `system_seq` that of its system
    chain, behind which deletions were recorded later.
    """

    store: str
    time: float
    seq: int
    system_seq: int
    heads: dict[str, ExportedHead]
