"""Caller: in whose name an operation happens, and what they may ask for."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.errors import NotPermitted

EVERYTHING: Final = "*"
ALL_OWNERS: Final = "sessions:all"
"""The scope of who sees what belongs to other subjects of the tenant too."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant, a subject (a person or a key), and the scopes that it was given.

    A scope is `sessions:read`; `sessions:*` means every one of that kind, `*` every scope.
    A third part limits it to one agent: `runs:write:helper`. What is not written so gives
    nothing.
    """

    tenant: str
    subject: str
    scopes: frozenset[str] = frozenset()

    def may(self, scope: str, agent: str = "") -> bool:
        """Say whether a scope was given to this caller, for every agent or for this one."""
        allowed = self.find_allowed_agents(scope)
        return allowed is None or (bool(agent) and agent.casefold() in allowed)

    def find_allowed_agents(self, scope: str) -> frozenset[str] | None:
        """Return the agents to which a scope is limited: `None` for all, none if not given."""
        kind = scope.split(":", 1)[0]
        given = self.scopes
        if EVERYTHING in given or scope in given or f"{kind}:*" in given:
            return None
        limited = (f"{scope}:", f"{kind}:*:")
        found = {one.split(":", 2)[2].casefold() for one in given if one.startswith(limited)}
        return frozenset(found - {""})

    def check(self, scope: str) -> None:
        """Return if a scope was given to this caller without a limit.

        Raises:
            NotPermitted: it was not; nothing was done.
        """
        if self.find_allowed_agents(scope) is not None:
            raise NotPermitted(subject=self.subject, scope=scope)

    def may_see(self, subject: str) -> bool:
        """Say whether what belongs to a subject of the tenant may be seen: one's own, or all."""
        return subject == self.subject or self.may(ALL_OWNERS)


OWNER: Final = Caller(tenant="local", subject="owner", scopes=frozenset({EVERYTHING}))
"""Whoever owns the state directory, and works with it in this process.

Known by identity: a caller from elsewhere who has every scope is still not the owner.
"""


def resolve_actor(caller: Caller, by: str) -> str:
    """Return in whose name something is decided.

    The owner says on whose behalf; everybody else acts in their own name only.

    Raises:
        NotPermitted: another name was given.
    """
    if caller is OWNER:
        return by
    if by and by != caller.subject:
        raise NotPermitted(subject=caller.subject, scope=f"to act as {by}")
    return caller.subject


__all__ = ["ALL_OWNERS", "OWNER", "Caller", "resolve_actor"]
