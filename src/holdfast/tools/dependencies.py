"""Dependencies by type: what the application hands to a run, found by what a function asks for.

`deps=` of a run is one object of the application: a connection, or a dataclass with several.
A tool asks for it, or for one of its fields, by a parameter `Injected[Kind]`; neither the model
nor the journal ever sees it.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from typing_extensions import TypeVar

from holdfast.errors import DependencyMissing, NotFound, UsageError
from holdfast.hooks import ExecutionContext

T = TypeVar("T")
DepsT = TypeVar("DepsT", default=Any)
"""The type of what is handed to a run as `deps`."""


class _Injection:
    """Marks a parameter that is filled by its type."""


_MARK: Final = _Injection()
Injected: TypeAlias = Annotated[T, _MARK]
"""A parameter of a tool that the run fills, by its type: `shop: Injected[Shop]`.

To type checkers it is the type itself; the model does not see it.
"""


class Need(msgspec.Struct, frozen=True):
    """What a function asks for: a parameter, and the type by which it is filled."""

    parameter: str
    kind: type
    is_optional: bool = False

    @property
    def name(self) -> str:
        """The type as errors call it."""
        return self.kind.__qualname__


def read_need(parameter: str, hint: object, *, has_default: bool, is_marked: bool = True) -> Need:
    """Return what a parameter asks for.

    Raises:
        UsageError: it is not a class that a value can be recognised by.
    """
    if is_marked:
        hint = typing.get_args(hint)[0]
    kinds = [kind for kind in _list_members(hint) if kind is not type(None)]
    found = typing.get_origin(kinds[0]) or kinds[0] if len(kinds) == 1 else None
    if not isinstance(found, type):
        raise UsageError(detail=f"{parameter!r} is filled by its type, which must be one class.")
    if getattr(found, "_is_protocol", False) and not getattr(found, "_is_runtime_protocol", False):
        raise UsageError(
            detail=f"{parameter!r} is filled by the protocol {found.__qualname__}: decorate that "
            "with @runtime_checkable, so that a value can be recognised."
        )
    is_optional = has_default or len(kinds) < len(_list_members(hint))
    return Need(parameter, found, is_optional)


def is_injected(hint: object) -> bool:
    """Say whether a hint is `Injected[…]`."""
    return _MARK in getattr(hint, "__metadata__", ())


def find_dependency(kind: type, deps: object, execution: ExecutionContext | None) -> object:
    """Return the value of a type: `deps` itself, one of its fields, or a service of the client.

    Raises:
        NotFound: there is none.
        UsageError: several fields have the type.
    """
    if isinstance(deps, kind) and deps is not None:
        return deps
    found = {id(value): value for value in _list_values(deps) if isinstance(value, kind)}
    if len(found) > 1:
        raise UsageError(
            detail=f"{len(found)} fields of {type(deps).__qualname__} are a {kind.__qualname__}: "
            f"ask for {type(deps).__qualname__}, and take the one that is meant."
        )
    for value in found.values():
        return value
    if execution is not None and execution.has(kind):
        return execution.get(kind)
    raise NotFound(kind="dependency", value=kind.__qualname__)


def fill(
    needs: Iterable[Need], deps: object, execution: ExecutionContext | None
) -> Mapping[str, object]:
    """Return the values of all parameters that are filled by their type.

    Raises:
        NotFound: there is none for one that has no default.
    """
    values: dict[str, object] = {}
    for need in needs:
        try:
            values[need.parameter] = find_dependency(need.kind, deps, execution)
        except NotFound:
            if not need.is_optional:
                raise
    return values


def check_needs(
    who: str, needs: Iterable[Need], deps: object, execution: ExecutionContext | None
) -> None:
    """Return if everything that functions ask for is there.

    Raises:
        DependencyMissing: something is not; it says what to pass.
    """
    for need in needs:
        if not need.is_optional:
            try:
                find_dependency(need.kind, deps, execution)
            except NotFound:
                given = f"; deps is a {type(deps).__qualname__}" if deps is not None else ""
                raise DependencyMissing(agent=who, wanted=need.name, given=given) from None


def _list_members(hint: object) -> tuple[object, ...]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def _list_values(deps: object) -> list[object]:
    """Return the values of the fields of an object; a dictionary or a list has none."""
    if deps is None or isinstance(deps, str | bytes | int | float | Mapping | list | tuple | set):
        return []
    if dataclasses.is_dataclass(deps) and not isinstance(deps, type):
        names = [field.name for field in dataclasses.fields(deps)]
    elif isinstance(deps, msgspec.Struct):
        names = list(deps.__struct_fields__)
    else:
        names = [name for name in getattr(deps, "__dict__", {}) if not name.startswith("_")]
    return [getattr(deps, name, None) for name in names]


__all__ = [
    "DepsT",
    "Injected",
    "Need",
    "check_needs",
    "fill",
    "find_dependency",
    "is_injected",
    "read_need",
]
