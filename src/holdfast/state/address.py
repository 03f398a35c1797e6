"""Addresses of values: a scope, the id of whose it is, and a key.

Written `scope/key` for one's own and `scope:id/key` for another's: `user/language`,
`user:ann/language`, `custom:team-red/board`. A scope has a home, a chain of the journal: that
of the session for `session` and `run`, and one of its own for every other scope and id.
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from holdfast.errors import UsageError

ScopeKind: TypeAlias = Literal[
    "global", "user", "project", "session", "agent", "tool", "workflow", "run", "custom"
]
SCOPES: Final[tuple[ScopeKind, ...]] = get_args(ScopeKind)

LONGEST_KEY: Final = 512
LONGEST_ID: Final = 200
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff\U0010ffff]")
_APART: Final = "\x1f"
"""Parts keys that only Holdfast writes from those of the session: no key may contain it."""
RESERVED: Final = ("holdfast.", "external_directories")
"""Beginnings of keys that only Holdfast writes: taint labels, and the directories that a person
has brought into reach. Who could set these could give rights away."""


class StateScope(msgspec.Struct, frozen=True, gc=False):
    """A kind of scope, whose it is, and where its values are kept.

    `session_id` is the session of a run, whose chain the run's values are kept in.
    """

    kind: ScopeKind
    id: str = ""
    tenant: str = "local"
    session_id: str = ""

    @property
    def chain(self) -> str:
        """The chain of the journal that keeps the values."""
        if self.kind == "session":
            return self.id
        if self.kind == "run":
            return self.session_id
        # With a character that no id of a session has, so that the two never meet.
        return f"state:{self.tenant}:{self.kind}:{self.id}"

    @property
    def is_own_chain(self) -> bool:
        """Whether the chain keeps nothing else."""
        return self.kind not in ("session", "run")

    @property
    def prefix(self) -> str:
        """What the keys begin with in the chain."""
        return f"{_APART}run{_APART}{self.id}{_APART}" if self.kind == "run" else ""

    def __str__(self) -> str:
        """The scope as it stands in an address."""
        return f"{self.kind}:{self.id}" if self.id else self.kind


class StateAddress(msgspec.Struct, frozen=True, gc=False):
    """A scope by its words, and a key in it; an empty id means one's own."""

    kind: ScopeKind
    id: str
    key: str

    def __str__(self) -> str:
        """The address as it is written."""
        return f"{self.kind}:{self.id}/{self.key}" if self.id else f"{self.kind}/{self.key}"


def parse_address(text: str, *, may_be_prefix: bool = False) -> StateAddress:
    """Return what `scope/key` or `scope:id/key` means; a prefix may have no key.

    Raises:
        UsageError: it is no address; says what one looks like.
    """
    given: object = text
    scope, mark, key = text.partition("/") if isinstance(given, str) else ("", "", "")
    name, _, identity = scope.partition(":")
    kind = check_kind(name, text)
    if not key and not may_be_prefix:
        raise UsageError(detail=f"{text!r:.200} names no key; write {kind}/KEY.")
    if identity or ":" in scope:
        check_scope_id(identity)
    if mark and key:
        check_key(key)
    return StateAddress(kind, identity, key)


def check_kind(name: object, given: object = "") -> ScopeKind:
    """Return a kind of scope; raises UsageError and names all of them."""
    for kind in SCOPES:
        if name == kind:
            return kind
    raise UsageError(
        detail=f"{given or name!r:.200} names no scope; an address is SCOPE/KEY or SCOPE:ID/KEY, "
        f"and a scope one of {', '.join(SCOPES)}."
    )


def check_scope_id(identity: object) -> str:
    """Return whose a scope is, if that can be; raises UsageError."""
    if (
        not isinstance(identity, str)
        or not 0 < len(identity) <= LONGEST_ID
        or "/" in identity
        or identity != identity.strip()
        or _CONTROL.search(identity)
    ):
        raise UsageError(
            detail=f"{identity!r:.200} cannot be the id of a scope: it has 1 to {LONGEST_ID} "
            "characters, no slash, no control character, and no space around it."
        )
    return identity


def check_key(key: object) -> str:
    """Return a key if it can be one; raises UsageError."""
    if not isinstance(key, str) or not key:
        raise UsageError(detail=f"A key of the state is a text that is not empty, not {key!r:.80}.")
    if len(key) > LONGEST_KEY:
        raise UsageError(detail=f"A key of the state has at most {LONGEST_KEY} characters.")
    if _CONTROL.search(key):
        raise UsageError(detail=f"{key!r:.200} holds a control character; a key has none.")
    return key


def is_reserved(key: str) -> bool:
    """Say whether only Holdfast itself writes and reads a key of a session."""
    return key.startswith(RESERVED)


__all__ = [
    "LONGEST_ID",
    "LONGEST_KEY",
    "RESERVED",
    "SCOPES",
    "ScopeKind",
    "StateAddress",
    "StateScope",
    "check_key",
    "check_kind",
    "check_scope_id",
    "is_reserved",
    "parse_address",
]
