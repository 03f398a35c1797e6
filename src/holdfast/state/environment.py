"""In whose name state is read and written: whose scopes are one's own, what is allowed, taint.

Rooms above hand these in: the runtime for the owner of the client and for every run.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from holdfast.clock import Clock
from holdfast.errors import UsageError
from holdfast.journal import NO_ORIGIN, Origin
from holdfast.state.address import ScopeKind, StateScope, check_scope_id
from holdfast.state.store import StateStore

MOST_BYTES: Final = 256 * 1024
"""So large may a value be, as JSON, unless the settings say otherwise."""
MOST_KEYS: Final = 100_000
"""So many keys may a scope have, unless the settings say otherwise."""
StateAction: TypeAlias = Literal["read", "write"]


class StateLimits(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How large values may be, and how many keys a scope may have."""

    value_bytes: int = MOST_BYTES
    keys: int = MOST_KEYS


class StateOwner(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Whose each scope is where no id is given; empty where there is none of it."""

    tenant: str = "local"
    user: str = "local"
    project: str = ""
    session: str = ""
    agent: str = ""
    workflow: str = ""
    run: str = ""


class StateAccess(Protocol):
    """Says what may be read and written; rules are handed in from above."""

    def check(self, action: StateAction, target: str, *, is_own: bool) -> None:
        """Return if it may be; raises PermissionDenied.

        `target` is the address, without the id where the scope is the caller's own; `is_own`
        says that it belongs to the caller's session, run, agent, tool or workflow.
        """
        ...

    def may(self, action: StateAction, target: str, *, is_own: bool) -> bool:
        """Say whether it may be."""
        ...


class FullAccess:
    """Allows everything: for the owner of the state directory."""

    def check(self, action: StateAction, target: str, *, is_own: bool) -> None:
        """Return."""

    def may(self, action: StateAction, target: str, *, is_own: bool) -> bool:
        """Say yes."""
        return True


class FiresHooks(Protocol):
    """Who is asked and told at the hook points of state; `holdfast.hooks.Hooks` is one."""

    @property
    def is_empty(self) -> bool:
        """Whether there is none."""
        ...

    def has(self, *points: type[Any]) -> bool:
        """Say whether any hook waits at one of these points."""
        ...

    async def fire(self, payload: Any, /) -> Any:  # noqa: ANN401 - a payload, and what came of it
        """Ask, tell, and return what came out."""
        ...

    async def notify(self, payload: Any, /) -> None:  # noqa: ANN401
        """Tell everybody."""
        ...


class Taint(Protocol):
    """The labels of what a caller has read so far, which whatever it writes bears too."""

    @property
    def seen(self) -> Collection[str]:
        """Every label so far."""
        ...

    def add(self, labels: Any, /) -> None:  # noqa: ANN401 - a tuple of labels
        """Note that something with these labels was read."""
        ...


class NoTaint:
    """A caller of whom nothing is noted: the application itself."""

    seen: Collection[str] = ()

    def add(self, labels: Any, /) -> None:  # noqa: ANN401 - as above
        """Note nothing."""


FULL_ACCESS: Final = FullAccess()
NO_TAINT: Final = NoTaint()


class LastChange(msgspec.Struct, frozen=True, gc=False):
    """The version of a key that was written here last, and the number of its fact."""

    version: int
    number: int


class LastChanges(dict[tuple[str, str], LastChange]):
    """What this process wrote last, so that the next write of the same key need not look first.

    Only a guess: the store refuses a fact that is not the next version, and then the key is read.
    """

    _MOST: Final = 4_096

    def note(self, scope: StateScope, key: str, version: int, number: int) -> None:
        """Remember a change; those that were noted first are dropped.

        A version of 0 is that of a key whose value is gone, or goes by itself: it is looked up.
        """
        if not version:
            self.pop((scope.chain, key), None)
            return
        if len(self) >= self._MOST:
            del self[next(iter(self))]
        self[scope.chain, key] = LastChange(version, number)

    def __init__(self) -> None:
        """Remember nothing yet."""
        super().__init__()
        self.counts: dict[tuple[str, str], int] = {}
        """How many keys scopes have, as far as is known here; counted anew now and then."""

    def find(self, scope: StateScope, key: str) -> LastChange | None:
        """Return what is known of a key of a scope that has a chain of its own."""
        return self.get((scope.chain, key)) if scope.is_own_chain else None


class StateEnvironment(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Everything that reading and writing state needs to know about the caller."""

    store: StateStore
    clock: Clock
    hooks: FiresHooks
    owner: StateOwner = StateOwner()
    access: StateAccess = FULL_ACCESS
    taint: Taint = NO_TAINT
    origin: Origin = NO_ORIGIN
    limits: StateLimits = StateLimits()
    last: LastChanges = msgspec.field(default_factory=LastChanges)

    def find_scope(self, kind: ScopeKind, identity: str, tool: str = "") -> StateScope:
        """Return a scope: that with the id, or without one the caller's own.

        Raises:
            UsageError: there is no own one here, or the id cannot be one.
        """
        owner = self.owner
        if kind == "global":
            if identity:
                raise UsageError(detail="There is one global scope; it has no id.")
            return StateScope(kind, "", owner.tenant)
        own = tool if kind == "tool" else "" if kind == "custom" else getattr(owner, kind)
        chosen = check_scope_id(identity) if identity else own
        if not chosen:
            raise UsageError(
                detail=f"There is no {kind} here to whom a value could belong; name one: "
                f"{kind}:ID/KEY."
            )
        session = owner.session if kind == "run" and chosen == owner.run else ""
        return StateScope(kind, chosen, owner.tenant, session)

    def is_own(self, scope: StateScope, tool: str) -> bool:
        """Say whether a scope belongs to the caller alone: no rule has to give it."""
        owner = self.owner
        match scope.kind:
            case "session":
                return scope.id == owner.session
            case "run":
                return scope.id == owner.run
            case "agent":
                return scope.id == owner.agent
            case "workflow":
                return scope.id == owner.workflow
            case "tool":
                return scope.id == tool
        return False

    def name_of(self, scope: StateScope, key: str, tool: str) -> str:
        """Return a value's address as rules speak of it: one's own without an id."""
        own = self.is_own(scope, tool) or scope.id in ("", self._find_current(scope.kind))
        return f"{scope.kind}/{key}" if own else f"{scope.kind}:{scope.id}/{key}"

    def _find_current(self, kind: ScopeKind) -> str:
        if kind == "user":
            return self.owner.user
        return self.owner.project if kind == "project" else ""


__all__ = [
    "MOST_BYTES",
    "MOST_KEYS",
    "StateAccess",
    "StateAction",
    "StateEnvironment",
    "StateLimits",
    "StateOwner",
    "Taint",
]
