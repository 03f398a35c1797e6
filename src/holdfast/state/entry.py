"""Values as callers see them: an entry, a page of entries, a change, a snapshot."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from holdfast.journal import Event
from holdfast.state.address import StateScope
from holdfast.state.events import StateChanged
from holdfast.state.store import STATE, StateRow


class StateEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A value with everything that is known about it.

    `version` counts the changes of the key; hand it over as `expected` for compare-and-set.
    `labels` say whether strangers may have written it (`untrusted`) or must not learn it
    (`private`). `number` is that of its fact in the chain of the scope.
    """

    scope: str
    scope_id: str
    key: str
    value: Any
    version: int
    labels: tuple[str, ...] = ()
    time_updated: float = 0.0
    expires_at: float = 0.0
    schema: str = ""
    schema_number: int = 0
    agent_path: str = ""
    number: int = 0

    @property
    def address(self) -> str:
        """Where it is kept, as it is written."""
        return f"{self.scope}:{self.scope_id}/{self.key}" if self.scope_id else self.short_address

    @property
    def short_address(self) -> str:
        """Where it is kept, without whose it is."""
        return f"{self.scope}/{self.key}"


class StatePage(msgspec.Struct, frozen=True, kw_only=True):
    """Entries in order of keys; `cursor` continues, and is empty on the last page."""

    entries: tuple[StateEntry, ...]
    cursor: str = ""


class StateChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change as the journal has it; `value` is `None` where the value was removed.

    `seq` is its place in the whole store, with which a watch continues after it.
    """

    scope: str
    scope_id: str
    key: str
    value: Any
    version: int
    is_deleted: bool = False
    is_redacted: bool = False
    """Whether the value was removed from the journal for good."""
    cause: str = "set"
    labels: tuple[str, ...] = ()
    time: float = 0.0
    expires_at: float = 0.0
    schema: str = ""
    schema_number: int = 0
    run_id: str = ""
    agent_path: str = ""
    number: int = 0
    seq: int = 0


Changes: TypeAlias = list[StateChange]


class StateSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All values of a scope at one moment; `position` names it for `at` and `restore`."""

    scope: str
    scope_id: str
    position: int
    entries: tuple[StateEntry, ...]

    @property
    def values(self) -> dict[str, Any]:
        """The values by key."""
        return {entry.key: entry.value for entry in self.entries}


def make_entry(scope: StateScope, row: StateRow) -> StateEntry:
    """Return the entry of a row that has a value."""
    return StateEntry(
        scope=scope.kind,
        scope_id=scope.id,
        key=row.key[len(scope.prefix) :] if scope.kind == "run" else row.key,
        value=row.data.get("value"),
        version=row.version,
        labels=row.labels,
        time_updated=row.time,
        expires_at=row.expires_at,
        schema=row.schema,
        schema_number=row.schema_number,
        agent_path=row.agent_path,
        number=row.number,
    )


def make_change(scope: StateScope, event: Event) -> StateChange:
    """Return the change that a fact tells of; old facts have no version of their own."""
    fact = event.decode()
    key = STATE.key(event, fact)
    old = fact if isinstance(fact, StateChanged) else StateChanged(key=key, version=0)
    data = getattr(fact, "data", {})
    return StateChange(
        scope=scope.kind,
        scope_id=scope.id,
        key=key[len(scope.prefix) :],
        value=data.get("value"),
        version=old.version,
        is_deleted=not data and not event.is_redacted,
        is_redacted=event.is_redacted,
        cause=old.cause,
        labels=old.labels,
        time=event.time,
        expires_at=old.expires_at,
        schema=old.schema,
        schema_number=old.schema_number,
        run_id=event.run_id,
        agent_path=event.agent_path,
        number=event.session_seq,
        seq=event.seq,
    )


__all__ = ["StateChange", "StateEntry", "StatePage", "StateSnapshot"]
