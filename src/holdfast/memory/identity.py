"""For whom a manager works, and which places are theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast.errors import UsageError
from holdfast.memory.entry import MemoryEntry, Scope
from holdfast.memory.requests import check_name
from holdfast.memory.storage import MemoryPlace

DEFAULT_SCOPES: Final[tuple[Scope, ...]] = ("session", "project")


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """For whom a manager works; every row it touches belongs to this tenant."""

    tenant: str = "default"
    user: str = ""
    project: str = ""


def find_own_place(identity: Identity, scope: Scope, session_id: str) -> MemoryPlace:
    """Return where memories of a scope lie; raises UsageError if no caller owns it."""
    owner = {
        "session": session_id,
        "user": identity.user,
        "project": identity.project,
        "global": "everyone",
    }[scope]
    if not owner:
        whose = "a session id" if scope == "session" else f"a {scope} in its identity"
        raise UsageError(detail=f"Scope {scope!r} needs {whose}.")
    return MemoryPlace(identity.tenant, scope, owner)


def list_places(
    identity: Identity, session_id: str, *, across_sessions: bool, scopes: Sequence[Scope]
) -> tuple[MemoryPlace, ...]:
    """Return where a search looks; always inside the tenant.

    Unless scopes are named, at the session and its project only: what is kept for a user, or
    for everyone, was said in other projects too. Where there is neither, at the user's own.
    """
    has_owner: dict[Scope, bool] = {
        "session": bool(check_name(session_id, "A session id")) or across_sessions,
        "user": bool(identity.user),
        "project": bool(identity.project),
        "global": True,
    }
    unknown = [scope for scope in scopes if scope not in has_owner]
    if unknown:
        raise UsageError(detail=f"There is no scope {unknown[0]!r}.")
    places = []
    if not scopes:
        # Without either, as over HTTP, a user can only mean what is theirs.
        has_any = any(has_owner[scope] for scope in DEFAULT_SCOPES)
        scopes = DEFAULT_SCOPES if has_any else ("user",)
    for scope in scopes:
        if not has_owner[scope]:
            continue
        if scope == "session" and across_sessions:
            places.append(MemoryPlace(identity.tenant, "session", None))
        else:
            places.append(find_own_place(identity, scope, session_id))
    if not places:
        raise UsageError(
            detail="There is nothing to look at: no session and no project. "
            "What is kept for the user or for everyone is looked at with "
            "`scopes=('user', 'global')`."
        )
    return tuple(places)


def make_owning(identity: Identity, entry: MemoryEntry) -> Identity:
    """Return the identity to which an entry of the tenant belongs."""
    if entry.scope in ("user", "project"):
        return msgspec.structs.replace(identity, **{entry.scope: entry.owner})
    return identity


__all__ = ["DEFAULT_SCOPES", "Identity", "find_own_place", "list_places", "make_owning"]
