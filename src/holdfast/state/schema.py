"""Typed values: a schema with a version, and migrations that run when an old value is read.

A value keeps the name and version of the schema it was written with. Migrations are like the
upcasters of events: each turns the JSON of one version into the next, they run on read, and none
is ever removed while a value of its version may exist. Nothing is written by reading.
`holdfast.testing.check_migrations` proves that all versions are still readable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from holdfast.errors import StateUnreadable, UsageError

T = TypeVar("T")
Migration: TypeAlias = Callable[[Any], Any]
"""Turns the JSON value of one version into that of the next."""


class StateSchema(Generic[T]):
    """How a kind of value is written and read: a pydantic model, a msgspec struct, a dataclass.

    ::

        preferences = StateSchema("preferences", Preferences, version=2)

        @preferences.migration(from_version=1)
        def split_the_name(old):
            return {**old, "first": old["name"].split()[0]}
    """

    def __init__(
        self,
        name: str,
        kind: type[T],
        *,
        version: int = 1,
        migrations: Mapping[int, Migration] | None = None,
    ) -> None:
        """Declare it; `migrations` are by the version that they start from.

        Raises:
            UsageError: the name is empty, the version no positive number, or a migration starts
                from a version that is not an older one.
        """
        given: object = name
        if not isinstance(given, str) or not given.strip():
            raise UsageError(detail="A state schema needs a name.")
        if type(version) is not int or version < 1:
            raise UsageError(detail=f"The version of a state schema counts from 1, not {version}.")
        if not isinstance(kind, type):
            raise UsageError(detail=f"A state schema is made of a class, not of {kind!r:.80}.")
        self.name = name
        self.kind = kind
        # A model is known by its methods, so that pydantic need not be loaded here.
        self._pydantic: Any = kind if hasattr(kind, "model_validate") else None
        self.version = version
        self._migrations: dict[int, Migration] = {}
        for start, function in (migrations or {}).items():
            self.migration(from_version=start)(function)

    def migration(self, *, from_version: int) -> Callable[[Migration], Migration]:
        """Declare how the JSON of one version becomes that of the next; a decorator."""
        if type(from_version) is not int or not 1 <= from_version < self.version:
            raise UsageError(
                detail=f"{self.name} has version {self.version}; a migration cannot start "
                f"from {from_version}."
            )
        if from_version in self._migrations:
            raise UsageError(
                detail=f"{self.name} has a migration from version {from_version} already."
            )

        def declare(function: Migration) -> Migration:
            self._migrations[from_version] = function
            return function

        return declare

    def missing(self) -> tuple[int, ...]:
        """Return the versions from which no migration leads on; none should be here."""
        return tuple(v for v in range(1, self.version) if v not in self._migrations)

    def encode(self, value: object) -> Any:  # noqa: ANN401 - JSON
        """Return a value as JSON, after checking that it fits.

        Raises:
            UsageError: it does not; nothing was written.
        """
        try:
            if self._pydantic is not None:
                return self._pydantic.model_validate(value).model_dump(mode="json")
            if not isinstance(value, self.kind):
                value = msgspec.convert(value, self.kind)
            # Through JSON, because a field may hold what its type does not allow.
            data = msgspec.json.encode(value)
            msgspec.json.decode(data, type=self.kind)
            return msgspec.json.decode(data)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise UsageError(detail=f"The value is no {self.name}: {error}") from error

    def decode(self, value: object, version: int, address: str = "a value") -> T:
        """Return JSON of any version as the newest type.

        Raises:
            StateUnreadable: it is newer than this schema, a migration is missing or failed, or
                it does not fit.
        """
        if version > self.version:
            raise self.explain_unreadable(
                address, f"it has version {version}, newer than {self.version}"
            )
        try:
            for step in range(version, self.version):
                if step not in self._migrations:
                    raise self.explain_unreadable(address, f"no migration from version {step}")
                value = self._migrations[step](value)
            if self._pydantic is not None:
                made: T = self._pydantic.model_validate(value)
                return made
            return msgspec.convert(value, self.kind)
        except StateUnreadable:
            raise
        except Exception as error:
            raise self.explain_unreadable(address, f"{type(error).__name__}: {error}") from error

    def explain_unreadable(self, address: str, detail: str) -> StateUnreadable:
        """Return the error that says why a value cannot be read."""
        return StateUnreadable(
            address=address, schema=f"{self.name} version {self.version}", detail=detail
        )


def as_schema(given: StateSchema[T] | type[T]) -> StateSchema[T]:
    """Return a schema; a class alone is version 1 of a schema of its name."""
    return given if isinstance(given, StateSchema) else StateSchema(given.__name__, given)


__all__ = ["Migration", "StateSchema", "as_schema"]
