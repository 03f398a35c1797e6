"""A session: one conversation with its place, its rights and its state."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import InvalidTransition

SessionState: TypeAlias = Literal["active", "suspended", "completed", "failed", "archived"]
STATES: tuple[SessionState, ...] = get_args(SessionState)

_LEGAL: dict[SessionState, tuple[SessionState, ...]] = {
    "active": ("suspended", "completed", "failed", "archived"),
    "suspended": ("active", "completed", "failed", "archived"),
    "completed": ("active", "archived"),
    "failed": ("active", "archived"),
    "archived": ("active",),
}

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


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A session as of its last event; times are seconds since the epoch, 0 means never.

    `hidden` lists ranges of event numbers that a revert took out of the conversation.
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
    metadata: JsonObject = msgspec.field(default_factory=dict)
    forked_from: ForkPoint | None = None
    hidden: tuple[tuple[int, int], ...] = ()

    def is_expired(self, now: float) -> bool:
        """Say whether the session's time to live has passed."""
        return 0.0 < self.expires_at <= now


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
    current = "expired" if session.is_expired(now) else session.state
    if current != "active":
        raise InvalidTransition(
            what=f"Session {session.id}",
            current=current,
            wanted="a new turn",
            allowed="active, by restore_session",
        )
