"""Retention: what is kept for how long, and what is removed when the time has come.

Content is removed by redaction, which leaves the hash chain valid and says what was removed;
whole sessions are removed by deletion, which leaves a note in the system chain.
"""

from __future__ import annotations

import msgspec

from holdfast.errors import SessionBusy
from holdfast.journal.envelope import Event
from holdfast.journal.payloads import known_kinds
from holdfast.journal.projection import Condition, RowQuery
from holdfast.sessions.manager import SessionManager
from holdfast.sessions.model import Session
from holdfast.sessions.projections import MESSAGES, SESSIONS

_PAGE = 500


class RetentionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How long things are kept; `None` keeps them without limit.

    `message_ttl_s` and `max_messages` remove the content of messages; `event_ttl_s` and
    `max_events` that of every kind of event; `session_ttl_s` removes sessions that nobody
    touched for so long, `max_sessions` the oldest archived ones beyond the number. Sessions
    whose own time to live has passed are always removed.
    """

    message_ttl_s: float | None = None
    event_ttl_s: float | None = None
    session_ttl_s: float | None = None
    max_messages: int | None = None
    max_events: int | None = None
    max_sessions: int | None = None


class RetentionReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a cleanup removed; sessions that were busy are left for the next time."""

    sessions_deleted: int = 0
    events_redacted: int = 0
    sessions_busy: int = 0
    blobs_removed: int = 0
    bytes_freed: int = 0


async def clean_up(manager: SessionManager, policy: RetentionPolicy) -> RetentionReport:
    """Remove what the policy no longer wants; safe to repeat and to interrupt."""
    deleted = busy = redacted = 0
    for session in await _doomed(manager, policy):
        try:
            await manager.delete_session(session.id, reason="retention")
            deleted += 1
        except SessionBusy:
            busy += 1
    if policy != RetentionPolicy(
        session_ttl_s=policy.session_ttl_s, max_sessions=policy.max_sessions
    ):
        for session in await _sessions(manager):
            redacted += await _redact_old(manager, session, policy)
    freed = await manager.journal.store.collect()
    return RetentionReport(
        sessions_deleted=deleted,
        events_redacted=redacted,
        sessions_busy=busy,
        blobs_removed=freed["blobs"],
        bytes_freed=freed["bytes"],
    )


async def _sessions(manager: SessionManager, *conditions: Condition) -> list[Session]:
    found: list[Session] = []
    query = RowQuery(
        projection=SESSIONS, where=conditions, order="time_updated", descending=True, limit=_PAGE
    )
    while page := await manager.journal.rows(query):
        found += [keyed.row for keyed in page]
        last = page[-1]
        query = msgspec.structs.replace(query, after=(last.row.time_updated, last.key))
    return found


async def _doomed(manager: SessionManager, policy: RetentionPolicy) -> list[Session]:
    now = manager.journal.clock.now()
    expired = (Condition("expires_at", ">", 0.0), Condition("expires_at", "<=", now))
    doomed = {session.id: session for session in await _sessions(manager, *expired)}
    if policy.session_ttl_s is not None:
        idle = Condition("time_updated", "<=", now - policy.session_ttl_s)
        doomed |= {session.id: session for session in await _sessions(manager, idle)}
    if policy.max_sessions is not None:
        archived = await _sessions(manager, Condition("state", "=", "archived"))
        doomed |= {session.id: session for session in archived[policy.max_sessions :]}
    return list(doomed.values())


async def _redact_old(manager: SessionManager, session: Session, policy: RetentionPolicy) -> int:
    """Redact what is too old or too much in one session."""
    now = manager.journal.clock.now()
    head = await manager.journal.head(session.id)
    if head is None:
        return 0
    keep_messages_from = await _first_kept_message(manager, session, policy.max_messages)
    keep_events_from = 0 if policy.max_events is None else head.session_seq - policy.max_events + 1
    wanted: list[int] = []
    after = 0
    while page := await manager.journal.read(
        session.id, after=after, limit=_PAGE, kinds=_kinds_with_content()
    ):
        after = page[-1].session_seq
        for event in page:
            is_message = event.kind.startswith("message.")
            too_many = event.session_seq < keep_events_from or (
                is_message and event.session_seq < keep_messages_from
            )
            if not event.is_redacted and (too_many or _too_old(event, now, policy)):
                wanted.append(event.session_seq)
    return await manager.journal.redact(session.id, wanted, reason="retention") if wanted else 0


def _too_old(event: Event, now: float, policy: RetentionPolicy) -> bool:
    limits = [policy.event_ttl_s]
    if event.kind.startswith("message."):
        limits.append(policy.message_ttl_s)
    return any(limit is not None and event.time <= now - limit for limit in limits)


def _kinds_with_content() -> frozenset[str]:
    return frozenset(kind for kind, cls in known_kinds().items() if cls.has_content)


async def _first_kept_message(
    manager: SessionManager, session: Session, max_messages: int | None
) -> int:
    if max_messages is None:
        return 0
    query = RowQuery(
        projection=MESSAGES,
        session_id=session.id,
        order="session_seq",
        descending=True,
        limit=max_messages,
    )
    newest = await manager.journal.rows(query)
    return newest[-1].row.session_seq if len(newest) == max_messages else 0
