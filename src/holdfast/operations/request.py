"""Requests as data: a struct per operation, made from the parameters of its function."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from holdfast.errors import UsageError
from holdfast.operations.local_values import Local


class LocalPart(msgspec.Struct, frozen=True):
    """What of a parameter stays here: classes of objects, and what to send instead."""

    instead: str
    kinds: tuple[type, ...] = ()


def make_request_type(name: str, function: Callable[..., object]) -> type[msgspec.Struct]:
    """Return a struct with the parameters of an operation, without what is marked `Local`.

    Raises:
        UsageError: a parameter is no data and not marked, or its default is mutable.
    """
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter, hint in _list_parameters(function):
        kind = _strip_local(hint)
        if kind is None:
            continue
        if parameter.default is parameter.empty:
            fields.append((parameter.name, kind))
        elif isinstance(parameter.default, list | dict | set):
            raise UsageError(detail=f"{name}: a default must not be mutable.")
        else:
            fields.append((parameter.name, kind, parameter.default))
    made = "".join(part.title().replace("_", "") for part in name.split("."))
    return msgspec.defstruct(
        f"{made}Request",
        fields,
        kw_only=True,
        frozen=True,
        omit_defaults=True,
        forbid_unknown_fields=True,
    )


def find_local_parts(function: Callable[..., object]) -> Mapping[str, tuple[LocalPart, ...]]:
    """Return the parameters that take Python objects, with what to send instead of them."""
    found = {
        parameter.name: tuple(_list_local_parts(hint))
        for parameter, hint in _list_parameters(function)
    }
    return {name: marks for name, marks in found.items() if marks}


def make_request(
    name: str,
    kind: type[msgspec.Struct],
    local_parts: Mapping[str, tuple[LocalPart, ...]],
    given: Mapping[str, Any],
) -> msgspec.Struct:
    """Return arguments as a request, checked as the other side will check it.

    Raises:
        UsageError: one of them is no data, or of another type.
    """
    types_of = {field.name: field.type for field in msgspec.structs.fields(kind)}
    sent: dict[str, Any] = {}
    for key, value in given.items():
        try:
            stays = [kind for part in local_parts.get(key, ()) for kind in part.kinds]
            if key not in types_of or isinstance(value, tuple(stays)):
                raise TypeError("it is a Python object, or a place of this machine")
            sent[key] = msgspec.convert(msgspec.to_builtins(value), types_of[key])
        except (TypeError, ValueError) as error:
            advice = " ".join(f"Elsewhere: {one.instead}." for one in local_parts.get(key, ()))
            detail = f"{name}: {key} cannot be sent: {error}. {advice}".strip()
            raise UsageError(detail=detail) from error
    return kind(**sent)


def _list_parameters(function: Callable[..., object]) -> list[tuple[inspect.Parameter, Any]]:
    hints = typing.get_type_hints(function, include_extras=True)
    # The first two are the runtime and the caller.
    parameters = list(inspect.signature(function).parameters.values())[2:]
    return [(one, hints[one.name]) for one in parameters]


def _list_local_parts(hint: Any) -> list[LocalPart]:
    if typing.get_origin(hint) is typing.Annotated:
        marks = [one for one in hint.__metadata__ if isinstance(one, Local)]
        return [LocalPart(one.instead, tuple(_list_classes(hint.__origin__))) for one in marks]
    if _is_union(hint):
        return [part for one in typing.get_args(hint) for part in _list_local_parts(one)]
    return []


def _list_classes(hint: Any) -> list[type]:
    """Return the classes of a type by which its objects can be known for certain.

    Bytes are an iterable too, and much is callable: such objects are found when they are encoded.
    """
    if _is_union(hint):
        return [kind for one in typing.get_args(hint) for kind in _list_classes(one)]
    kind = typing.get_origin(hint) or hint
    is_vague = getattr(kind, "_is_protocol", False) or kind.__module__ == "collections.abc"
    return [kind] if isinstance(kind, type) and not is_vague else []


def _strip_local(hint: Any) -> Any:
    """Return a type without what is marked; `None` if nothing is left."""
    if _list_local_parts(hint) and not _is_union(hint):
        return None
    if not _is_union(hint):
        return hint
    kept = [one for one in map(_strip_local, typing.get_args(hint)) if one is not None]
    if all(one is type(None) for one in kept):
        return None
    return functools.reduce(lambda a, b: a | b, kept)


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


__all__ = ["LocalPart", "find_local_parts", "make_request", "make_request_type"]
