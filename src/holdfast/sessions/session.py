"""A session: one conversation with its place, its rights and its state.

How it begins, how facts change it, and which states it may go to.
"""

from __future__ import annotations

import bisect
import functools
import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import TypeVar, get_args

import msgspec

from holdfast._version import __version__
from holdfast.canonical import JsonObject
from holdfast.errors import InvalidTransition, UsageError
from holdfast.ids import check_id, make_id
from holdfast.journal import SYSTEM_SESSION, Event, Payload, Projection
from holdfast.messages import Message, read_compaction
from holdfast.sessions import events as facts
from holdfast.sessions.acting import SUBJECT
from holdfast.sessions.events import ForkPoint, PermissionRule, Ranges, SessionState

T = TypeVar("T")
STATES: tuple[SessionState, ...] = get_args(SessionState)
LONGEST_TITLE = 500
_LARGEST_METADATA = 64 * 1024

_LEGAL: dict[SessionState, tuple[SessionState, ...]] = {
    "active": ("suspended", "completed", "failed", "archived"),
    "suspended": ("active", "completed", "failed", "archived"),
    "completed": ("active", "archived"),
    "failed": ("active", "archived"),
    "archived": ("active",),
}


class Session(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A session as of its last event; times are seconds since the epoch, 0 means never.

    `hidden` lists ranges of event numbers that do not count since a revert: messages,
    changes of messages and deletions in them are as if they had not happened.
    """

    id: str
    slug: str
    project_id: str
    directory: str
    title: str
    version: str
    parent_id: str = ""
    summary: str = ""
    permission: tuple[PermissionRule, ...] = ()
    state: SessionState = "active"
    state_reason: str = ""
    time_created: float
    time_updated: float
    time_archived: float = 0.0
    expires_at: float = 0.0
    message_count: int = 0
    total_cost: float = 0.0
    total_tokens: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    metadata: JsonObject = msgspec.field(default_factory=dict)
    forked_from: ForkPoint | None = None
    hidden: Ranges = ()
    agent: str = ""
    """Who takes the next turn when the caller names no agent; empty: the default agent."""
    pruned_to: str = ""
    """Up to this message the model sees a note instead of long tool output."""
    compacted_at: int = 0
    """The event with the newest summary that stands for what came before it; 0 if there is none."""
    owner: str = ""
    """The subject whose session it is; empty: that of the owner of the state directory."""

    def derived(self, name: str, work_out: Callable[[Session], T]) -> T:
        """Return what follows from this session by one name, worked out once.

        It lives as long as this object and is no part of the session: it is neither stored
        nor compared, and a changed copy works out its own.
        """
        known = self.__dict__
        if name not in known:
            known[name] = work_out(self)
        found: T = known[name]
        return found


def is_hidden(hidden: Ranges, number: int) -> bool:
    """Say whether an event lies in one of the ranges, which are sorted and apart."""
    place = bisect.bisect_right(hidden, number, key=lambda ends: ends[0])
    return place > 0 and number <= hidden[place - 1][1]


def hide(hidden: Ranges, low: int, high: int) -> Ranges:
    """Return the ranges with one more; ranges that touch are joined."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted((*hidden, (low, high))):
        if joined and start <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return tuple(joined)


def list_allowed_states(current: SessionState) -> tuple[SessionState, ...]:
    """Return the states that a session may go to next."""
    return _LEGAL[current]


def check_transition(session: Session, wanted: SessionState) -> None:
    """Refuse a change of state that is not legal.

    Raises:
        InvalidTransition: with the states that are allowed instead.
    """
    if wanted not in _LEGAL[session.state]:
        raise InvalidTransition(
            what=f"Session {session.id}",
            current=session.state,
            wanted=wanted,
            allowed=", ".join(_LEGAL[session.state]),
        )


def check_open(session: Session, now: float) -> None:
    """Refuse new turns and messages unless the session is active and not expired."""
    if 0.0 < session.expires_at <= now:
        current, allowed = "expired", "active, by update_session with another ttl_s"
    else:
        current, allowed = session.state, "active, by restore_session"
    if current != "active":
        raise InvalidTransition(
            what=f"Session {session.id}", current=current, wanted="a new turn", allowed=allowed
        )


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that a caller is about to begin, alone or together with its first run."""

    id: str
    created: facts.SessionCreated

    def named(self, title: str, session_id: str) -> NewSession:
        """Return a session that begins like this one, with a title and an id of its own.

        Raises:
            UsageError: title or id would not do.
        """
        name = check_name(session_id)
        slug = make_slug(check_title(title), name)
        return NewSession(
            id=name, created=msgspec.structs.replace(self.created, title=title, slug=slug)
        )

    def as_of(self, time: float) -> Session:
        """Return the session as it is if it begins at this time."""
        created = self.created
        return Session(
            id=self.id,
            slug=created.slug,
            project_id=created.project_id,
            directory=created.directory,
            title=created.title,
            version=created.version,
            parent_id=created.parent_id,
            permission=created.permission,
            expires_at=created.expires_at,
            metadata=created.metadata,
            forked_from=created.forked_from,
            owner=created.owner,
            time_created=time,
            time_updated=time,
        )


def find_project_id(directory: str | os.PathLike[str]) -> str:
    """Return the project that sessions in a directory belong to, unless they name another."""
    return _make_project_id(os.path.abspath(directory))


@functools.lru_cache(maxsize=256)
def _make_project_id(place: str) -> str:
    return f"prj_{hashlib.sha256(os.fsencode(place)).hexdigest()[:16]}"


def make_new_session(  # noqa: PLR0913 - what a session begins with
    title: str,
    *,
    project_id: str = "",
    directory: str | os.PathLike[str] = ".",
    parent_id: str = "",
    permission: Sequence[PermissionRule] = (),
    metadata: JsonObject | None = None,
    expires_at: float = 0.0,
    session_id: str = "",
    owner: str = "",
) -> NewSession:
    """Return a session that can be begun; nothing is stored.

    `parent_id` is taken as it is: whoever gives it knows that session. Without an `owner` it
    belongs to the subject in whose name this happens (`act_for`).

    Raises:
        UsageError: title, metadata or id would not do.
    """
    name = check_name(session_id) if session_id else make_id("ses")
    place = os.path.abspath(directory)
    created = facts.SessionCreated(
        slug=make_slug(check_title(title), name),
        project_id=project_id or _make_project_id(place),
        directory=place,
        title=title,
        version=__version__,
        parent_id=parent_id,
        permission=tuple(permission),
        expires_at=expires_at,
        metadata=check_metadata(metadata) if metadata else {},
        owner=owner or SUBJECT.get(),
    )
    return NewSession(id=name, created=created)


def check_name(session_id: str) -> str:
    """Return an id that a session of the application's own may have."""
    if check_id(session_id, "session") == SYSTEM_SESSION:
        raise UsageError(detail=f"The id {SYSTEM_SESSION!r} belongs to Holdfast itself.")
    return session_id


def make_slug(title: str, session_id: str) -> str:
    """Make a short readable name that is unique by the end of the session's id."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:40].strip("-")
    return f"{words or 'session'}-{session_id[-6:]}".replace("_", "-")


def check_title(title: str) -> str:
    """Return a title that a session may have."""
    if not title.strip() or len(title) > LONGEST_TITLE:
        raise UsageError(detail=f"A session needs a title of 1 to {LONGEST_TITLE} characters.")
    return title


def check_metadata(metadata: JsonObject) -> JsonObject:
    """Return a copy of metadata that can be kept with a session."""
    try:
        written = json.dumps(metadata, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(detail=f"Metadata must be JSON: {error}") from error
    size = len(written.encode())
    if size > _LARGEST_METADATA:
        raise UsageError(
            detail=f"Metadata takes {size} bytes; at most {_LARGEST_METADATA} are kept with a "
            "session. Keep large content in a message or a file."
        )
    copy: JsonObject = json.loads(written)
    return copy


class SessionsTable(Projection[Session]):
    """One row per session: the session itself."""

    name = "sessions"
    version = 6
    is_lazy = True
    row_type = Session
    columns = (
        "id",
        "slug",
        "title",
        "project_id",
        "directory",
        "parent_id",
        "owner",
        "state",
        "time_created",
        "time_updated",
        "expires_at",
        "message_count",
        "total_cost",
    )
    indexes = (("time_updated",), ("slug",), ("parent_id",), ("owner", "time_updated"))
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
            return NewSession(id=event.session_id, created=payload).as_of(event.time)
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
                return _apply_change(row, changes)
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
        compacted_at=event.session_seq if read_compaction(message) else row.compacted_at,
    )


def _apply_change(row: Session, changes: facts.SessionChanges) -> Session:
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


SESSIONS = SessionsTable()
