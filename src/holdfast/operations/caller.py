"""Caller: in whose name an operation happens, and what they may ask for."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.errors import NotPermitted

EVERYTHING: Final = "*"


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant, a subject (a person or a key), and scopes such as `sessions:read`.

    `*` means every scope, `sessions:*` every one of that kind.
    """

    tenant: str = "local"
    subject: str = "owner"
    scopes: frozenset[str] = frozenset({EVERYTHING})

    def may(self, scope: str) -> bool:
        """Say whether a scope was given to this caller."""
        given = self.scopes
        return EVERYTHING in given or scope in given or f"{scope.split(':', 1)[0]}:*" in given

    def check(self, scope: str) -> None:
        """Return if a scope was given to this caller.

        Raises:
            NotPermitted: it was not; nothing was done.
        """
        if EVERYTHING not in self.scopes and not self.may(scope):
            raise NotPermitted(subject=self.subject, scope=scope)


OWNER: Final = Caller()
"""Whoever owns the state directory, and works with it in this process."""

__all__ = ["OWNER", "Caller"]
