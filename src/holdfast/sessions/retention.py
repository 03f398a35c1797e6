"""Retention: what is kept for how long, and what is removed when the time has come.

Content is removed by redaction, which leaves the hash chain valid and says what was removed;
whole sessions are removed by deletion, which leaves a note in the system chain.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from holdfast.errors import NotFound, SessionBusy, UsageError
from holdfast.journal import Condition, Event, RowQuery, list_known_kinds
from holdfast.sessions import events as facts
from holdfast.sessions.manager import SessionManager
from holdfast.sessions.messages import MESSAGES
from holdfast.sessions.runs import RUNS
from holdfast.sessions.session import SESSIONS, Session

_PAGE = 500
_MESSAGES_OF_RUNS = (facts.RunQueued.kind, facts.RunSteered.kind)


class RetentionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How long things are kept; `None` keeps them without limit.

    `message_ttl_s` and `max_messages` remove the content of messages; `event_ttl_s` and
    `max_events` that of every kind of event; `session_ttl_s` removes sessions that no process
    touched for so long, `max_sessions` the oldest archived ones beyond the number. Sessions
    whose own time to live has passed are always removed. What a run that has not ended
    still needs is kept.
    """

    message_ttl_s: float | None = None
    event_ttl_s: float | None = None
    session_ttl_s: float | None = None
    max_messages: int | None = None
    max_events: int | None = None
    max_sessions: int | None = None

    def __post_init__(self) -> None:
        """Refuse limits that cannot be meant, before they remove anything."""
        for name, limit in msgspec.structs.asdict(self).items():
            if limit is not None and not limit >= 0:
                raise UsageError(detail=f"{name} cannot be {limit}.")

    @property
    def removes_content(self) -> bool:
        """Whether anything but whole sessions is limited."""
        limits = (self.message_ttl_s, self.event_ttl_s, self.max_messages, self.max_events)
        return any(limit is not None for limit in limits)


class RetentionReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a cleanup removed; sessions that were busy are left for the next time."""

    sessions_deleted: int = 0
    events_redacted: int = 0
    sessions_busy: int = 0
    blobs_removed: int = 0
    bytes_freed: int = 0


async def clean_up(manager: SessionManager, policy: RetentionPolicy) -> RetentionReport:
    """Remove what the policy no longer wants; safe to repeat, to interrupt and to run twice."""
    deleted = busy = redacted = 0
    for session in await _list_doomed(manager, policy):
        try:
            deleted += await _delete(manager, session)
        except SessionBusy:
            busy += 1
        except NotFound:
            continue
    if policy.removes_content:
        for session in await _list_sessions(manager):
            redacted += await _redact_old(manager, session, policy)
    freed = await manager.journal.store.collect()
    return RetentionReport(
        sessions_deleted=deleted,
        events_redacted=redacted,
        sessions_busy=busy,
        blobs_removed=freed["blobs"],
        bytes_freed=freed["bytes"],
    )


async def _list_sessions(manager: SessionManager, *conditions: Condition) -> list[Session]:
    found: list[Session] = []
    query = RowQuery(
        projection=SESSIONS, where=conditions, order="time_updated", descending=True, limit=_PAGE
    )
    while page := await manager.journal.rows(query):
        found += [keyed.row for keyed in page]
        last = page[-1]
        query = msgspec.structs.replace(query, after=(last.row.time_updated, last.key))
    return found


async def _list_doomed(manager: SessionManager, policy: RetentionPolicy) -> list[Session]:
    now = manager.journal.clock.now()
    expired = (Condition("expires_at", ">", 0.0), Condition("expires_at", "<=", now))
    doomed = {session.id: session for session in await _list_sessions(manager, *expired)}
    if policy.session_ttl_s is not None:
        idle = Condition("time_updated", "<=", now - policy.session_ttl_s)
        doomed |= {session.id: session for session in await _list_sessions(manager, idle)}
    if policy.max_sessions is not None:
        archived = await _list_sessions(manager, Condition("state", "=", "archived"))
        doomed |= {session.id: session for session in archived[policy.max_sessions :]}
    return list(doomed.values())


async def _delete(manager: SessionManager, session: Session) -> int:
    """Delete a session, unless another process has used it since it was found."""
    async with manager.writing(session.id, wait_s=0) as hold:
        if await manager.get_session(session.id) != session:
            return 0
        await manager.delete_held(hold, session.id, "retention")
    return 1


async def _redact_old(manager: SessionManager, session: Session, policy: RetentionPolicy) -> int:
    """Redact what is too old or too much in one session."""
    heads = await manager.journal.store.heads(session.id)
    last = max([head.session_seq for head in heads], default=0)
    first_event = 0 if policy.max_events is None else last - policy.max_events + 1
    kept = await _find_newest_messages(manager, session, policy.max_messages)
    now = manager.journal.clock.now()
    wanted: list[int] = []
    async for event in _with_content(manager, session):
        limits = [policy.event_ttl_s]
        is_too_much = event.session_seq < first_event
        if event.kind.startswith("message.") or event.kind in _MESSAGES_OF_RUNS:
            limits.append(policy.message_ttl_s)
            is_too_much = is_too_much or (kept is not None and _find_message_id(event) not in kept)
        is_too_old = any(limit is not None and event.time <= now - limit for limit in limits)
        if is_too_much or is_too_old:
            wanted.append(event.session_seq)
    return await manager.journal.redact(session.id, wanted, reason="retention") if wanted else 0


async def _with_content(manager: SessionManager, session: Session) -> AsyncIterator[Event]:
    """Yield the events that hold content, without what unfinished runs still need."""
    kinds = frozenset(kind for kind, cls in list_known_kinds().items() if cls.has_content)
    after = 0
    while page := await manager.journal.read(session.id, after=after, limit=_PAGE, kinds=kinds):
        after = page[-1].session_seq
        for event in page:
            if not event.is_redacted and not await _is_needed(manager, event):
                yield event


async def _is_needed(manager: SessionManager, event: Event) -> bool:
    if event.kind not in _MESSAGES_OF_RUNS:
        return False
    run_id: str = getattr(event.decode(), "run_id", "")
    run = await manager.journal.row(RUNS, event.session_id, run_id)
    return run is not None and not run.has_ended


def _find_message_id(event: Event) -> str:
    value = event.decode()
    if isinstance(value, facts.MessagePartUpdated):
        return value.message_id
    message = getattr(value, "message", None)
    return message.id if message is not None else ""


async def _find_newest_messages(
    manager: SessionManager, session: Session, count: int | None
) -> set[str] | None:
    """Return the ids of the newest messages, `None` when all may stay."""
    if count is None:
        return None
    ids: set[str] = set()
    query = RowQuery(
        projection=MESSAGES,
        session_id=session.id,
        order="session_seq",
        descending=True,
        limit=_PAGE,
    )
    while len(ids) < count and (page := await manager.journal.rows(query)):
        ids.update(keyed.key for keyed in page[: count - len(ids)])
        query = msgspec.structs.replace(query, after=(page[-1].row.session_seq, page[-1].key))
    return ids
