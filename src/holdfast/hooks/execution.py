"""ExecutionContext: who this is for, what it carries, and the services it may use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import NotFound, UsageError

T = TypeVar("T")
_MISSING: Any = object()
_IDS = ("conversation_id", "user_id", "session_id", "run_id")


class ContextData(msgspec.Struct, eq=False):
    """Named JSON values. A child sees its parent's values until it sets its own.

    Values are copied on the way in and out: changing one in place changes nothing here.
    """

    _parent: ContextData | None = None
    _own: dict[str, bytes | None] = {}

    def set(self, key: str, value: object) -> None:
        """Set a value.

        Raises:
            UsageError: it cannot be JSON.
        """
        try:
            self._own[key] = msgspec.json.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise UsageError(detail=f"{key!r} must be JSON: {error}") from error

    def get(self, key: str, kind: type[T], default: T = _MISSING) -> T:
        """Return a value as the given type.

        Raises:
            NotFound: there is none, and no default.
            UsageError: it has another type.
        """
        found = self._find(key)
        if found is None:
            if default is _MISSING:
                raise NotFound(kind="context value", value=key)
            return default
        try:
            return msgspec.json.decode(found, type=kind)
        except msgspec.ValidationError as error:
            raise UsageError(detail=f"{key!r} is no {kind}: {error}") from error

    def delete(self, key: str) -> None:
        """Forget a value; a parent's stays, but is not seen here any more."""
        self._own[key] = None

    def __contains__(self, key: str) -> bool:
        """Say whether there is a value."""
        return self._find(key) is not None

    def __iter__(self) -> Iterator[str]:
        """The names of all values, sorted."""
        return iter(sorted(key for key in self._list_keys() if key in self))

    def __len__(self) -> int:
        """How many values there are."""
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        """Show the names; values may be private."""
        return f"ContextData({', '.join(self)})"

    def to_dict(self) -> JsonObject:
        """Return all values as plain JSON."""
        return {key: self.get(key, object) for key in self}

    def flatten(self) -> ContextData:
        """Return a copy with all values that are seen here, bound to nothing."""
        copy = ContextData()
        copy._own = {key: self._find(key) for key in self}
        return copy

    def _find(self, key: str) -> bytes | None:
        if key in self._own:
            return self._own[key]
        return self._parent._find(key) if self._parent is not None else None

    def _list_keys(self) -> frozenset[str]:
        inherited = self._parent._list_keys() if self._parent is not None else frozenset()
        return inherited | frozenset(self._own)


class _Services(msgspec.Struct, eq=False):
    """Objects by their type; a child sees its parent's."""

    _parent: _Services | None = None
    _own: dict[type, object] = {}

    def put(self, kind: type, service: object) -> None:
        self._own[kind] = service

    def find(self, kind: type) -> object:
        if kind in self._own:
            return self._own[kind]
        return self._parent.find(kind) if self._parent is not None else _MISSING

    def flatten(self) -> _Services:
        copy = _Services()
        copy._own = {**(self._parent.flatten()._own if self._parent else {}), **self._own}
        return copy


class ExecutionContext:
    """Travels with a run: ids, data, and services by type.

    Four ways to hand it on:

    ==========  =================================  ==================================
    way         data                               services
    ==========  =================================  ==================================
    `inherit`   sees the parent's, also later      sees the parent's, also later
                changes; its own stay its own      ones; its own stay its own
    `isolate`   none                               none
    `copy`      all as they are now, independent   the same objects, independent list
    `share`     the very same: changes on either   the very same list
                side are seen on both
    ==========  =================================  ==================================

    Ids are taken over unless others are given. Tools reach it as `context.execution`.
    """

    def __init__(
        self,
        *,
        conversation_id: str = "",
        user_id: str = "",
        session_id: str = "",
        run_id: str = "",
    ) -> None:
        """Start with these ids, no data and no services."""
        self.conversation_id = conversation_id
        self.user_id = user_id
        self.session_id = session_id
        self.run_id = run_id
        self.data = ContextData()
        self._services = _Services()

    @property
    def ids(self) -> dict[str, str]:
        """The four ids by name."""
        return {name: getattr(self, name) for name in _IDS}

    def provide(self, kind: type[T], service: T) -> None:
        """Offer a service under a type, which may be a protocol; replaces an older one."""
        self._services.put(kind, service)

    def get(self, kind: type[T]) -> T:
        """Return the service of a type.

        Raises:
            NotFound: nothing provided one.
        """
        found = self._services.find(kind)
        if found is _MISSING:
            raise NotFound(kind="service", value=kind.__qualname__)
        service: T = found  # type: ignore[assignment]  # `provide` took it so
        return service

    def has(self, kind: type) -> bool:
        """Say whether there is a service of a type."""
        return self._services.find(kind) is not _MISSING

    def inherit(
        self, services: Mapping[type, object] | None = None, /, **ids: str
    ) -> ExecutionContext:
        """Return a child that sees everything here and keeps its own changes to itself.

        It may have services of its own from the beginning.
        """
        own = _Services(self._services, dict(services) if services else {})
        return self._with(ids, ContextData(self.data), own)

    def isolate(self, **ids: str) -> ExecutionContext:
        """Return one with the same ids, and nothing else."""
        return self._with(ids, ContextData(), _Services())

    def copy(self, **ids: str) -> ExecutionContext:
        """Return an independent one with everything that is here now."""
        return self._with(ids, self.data.flatten(), self._services.flatten())

    def share(self, **ids: str) -> ExecutionContext:
        """Return one with the very same data and services; only its ids may differ."""
        return self._with(ids, self.data, self._services)

    def _with(
        self, ids: dict[str, str], data: ContextData, services: _Services
    ) -> ExecutionContext:
        own = {name: getattr(self, name) for name in _IDS}
        if unknown := ids.keys() - own.keys():
            raise UsageError(detail=f"An execution context has no {', '.join(sorted(unknown))}.")
        made = ExecutionContext.__new__(ExecutionContext)
        made.__dict__.update(own, **ids, data=data, _services=services)
        return made
