"""A session: one conversation with its place, its rights and its state."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Literal, TypeAlias, TypeVar, get_args

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import InvalidTransition

T = TypeVar("T")
SessionState: TypeAlias = Literal["active", "suspended", "completed", "failed", "archived"]
STATES: tuple[SessionState, ...] = get_args(SessionState)

_LEGAL: dict[SessionState, tuple[SessionState, ...]] = {
    "active": ("suspended", "completed", "failed", "archived"),
    "suspended": ("active", "completed", "failed", "archived"),
    "completed": ("active", "archived"),
    "failed": ("active", "archived"),
    "archived": ("active",),
}

Ranges: TypeAlias = tuple[tuple[int, int], ...]
PermissionAction: TypeAlias = Literal["allow", "deny", "ask"]


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
    """Who takes the next turn when the caller names nobody; empty: the default agent."""
    pruned_to: str = ""
    """Up to this message the model sees a note instead of long tool output."""

    def is_expired(self, now: float) -> bool:
        """Say whether the session's time to live has passed."""
        return 0.0 < self.expires_at <= now

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


def allowed_states(current: SessionState) -> tuple[SessionState, ...]:
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
    if session.is_expired(now):
        current, allowed = "expired", "active, by update_session with another ttl_s"
    else:
        current, allowed = session.state, "active, by restore_session"
    if current != "active":
        raise InvalidTransition(
            what=f"Session {session.id}", current=current, wanted="a new turn", allowed=allowed
        )
