"""Roles: sets of scopes under names that people know."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from holdfast.errors import UsageError

_READS: Final = frozenset(
    f"{kind}:read"
    for kind in (
        "agents",
        "approvals",
        "artifacts",
        "audit",
        "events",
        "hooks",
        "mcp",
        "memory",
        "metrics",
        "policies",
        "providers",
        "runs",
        "sessions",
        "skills",
        "state",
        "storage",
        "tools",
        "triggers",
        "usage",
        "webhooks",
        "workflows",
    )
)
_WORKS: Final = frozenset(
    {
        "agents:read",
        "agents:write",
        "approvals:read",
        "artifacts:read",
        "artifacts:write",
        "events:read",
        "mcp:read",
        "memory:read",
        "memory:write",
        "policies:read",
        "providers:read",
        "runs:read",
        "runs:write",
        "sessions:read",
        "sessions:write",
        "skills:read",
        "state:read",
        "state:write",
        "tools:call",
        "tools:read",
        "triggers:read",
        "usage:read",
        "workflows:read",
    }
)

ROLES: Final[dict[str, frozenset[str]]] = {
    "viewer": _READS | {"sessions:all"},
    "operator": _READS
    | {"sessions:all", "approvals:answer", "runs:write", "sessions:write", "triggers:write"},
    "developer": _WORKS,
    "admin": frozenset({"*"}),
}
"""A viewer sees what all do and changes nothing; an operator also answers, cancels and resumes; a
developer works with agents, in sessions that are its own; an admin may do everything in its
tenant."""


def expand_roles(roles: Iterable[str], scopes: Iterable[str] = ()) -> frozenset[str]:
    """Return all scopes that roles and scopes give together.

    Raises:
        UsageError: there is no such role.
    """
    found = set(scopes)
    for role in roles:
        if role not in ROLES:
            raise UsageError(detail=f"There is no role {role!r}, only {', '.join(ROLES)}.")
        found |= ROLES[role]
    return frozenset(found)


__all__ = ["ROLES", "expand_roles"]
