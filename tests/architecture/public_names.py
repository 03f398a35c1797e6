"""Render every public name of Holdfast with its signature, one per line.

`scripts/check --update-names` writes the list to public_names.txt; a test compares.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import pkgutil
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from holdfast.client import handles, surface
from holdfast.operations import LocalFunction, LocalMember, Operation, StreamOperation

Asked: TypeAlias = Operation[Any, Any] | StreamOperation[Any, Any] | LocalFunction[Any, Any]

SNAPSHOT = Path(__file__).with_name("public_names.txt")


def render() -> str:
    """Return the whole list, sorted by room and name."""
    return "".join(f"{line}\n" for room in rooms() for line in _room_lines(room))


def rooms() -> list[ModuleType]:
    """Return `holdfast`, every public room or module directly under it, and rooms in rooms."""
    front = importlib.import_module("holdfast")
    names = sorted(info.name for info in pkgutil.iter_modules(front.__path__))
    found = [front]
    for name in names:
        if not name.startswith("_"):
            room = importlib.import_module(f"holdfast.{name}")
            listed = (getattr(room, one) for one in getattr(room, "__all__", ()))
            found += [room, *(one for one in listed if isinstance(one, ModuleType))]
    return found


def public_names(room: ModuleType) -> list[str]:
    """Return `__all__`, or what the file itself defines without an underscore."""
    if hasattr(room, "__all__"):
        return sorted(room.__all__)
    own = (n for n, v in vars(room).items() if getattr(v, "__module__", "") == room.__name__)
    return sorted(name for name in own if not name.startswith("_"))


def _room_lines(room: ModuleType) -> Iterator[str]:
    for name in public_names(room):
        value = getattr(room, name)
        if room.__name__ == "holdfast" and inspect.getmodule(value) is not room:
            yield f"{room.__name__}.{name}"  # the front door repeats; the room has the details
        else:
            yield from _value_lines(f"{room.__name__}.{name}", value)
    if room.__name__ == "holdfast.client":
        yield from _client_lines(f"{room.__name__}.AsyncClient")


def _client_lines(client: str) -> Iterator[str]:
    """Render what a client has besides its own methods; the blocking one has the same."""
    for name, kind in sorted(namespaces().items()):
        for member in sorted(_members(kind)):
            yield from _member_lines(f"{client}.{name}.{member}", _members(kind)[member])
    for name, target in sorted(surface.FLAT.items()):
        yield f"  {client}.{name} = {client}.{target}"
    yield from _value_lines("holdfast.client.handles.RunHandle", handles.RunHandle)


def namespaces() -> dict[str, type]:
    """Return the classes of a client's namespaces by the names that it has for them."""
    found: dict[str, type] = {}
    for name, member in vars(surface.ClientSurface).items():
        hint = (
            inspect.get_annotations(member.fget)["return"] if isinstance(member, property) else ""
        )
        if hint.endswith("Namespace[Mode]"):
            kind = hint.partition("[")[0]
            home = importlib.import_module(f"holdfast.client.namespaces.{name}")
            found[name] = getattr(home, kind)
    return found


def _value_lines(name: str, value: object) -> Iterator[str]:
    if isinstance(value, type) and issubclass(value, Exception) and hasattr(value, "code"):
        fields = ", ".join(sorted(value.fields()))  # type: ignore[attr-defined]
        yield f"{name} {value.code!r} ({fields})"
    elif typing.get_origin(value) is typing.Literal:
        yield f"{name} = {', '.join(map(repr, typing.get_args(value)))}"
    elif isinstance(value, type) and issubclass(value, enum.Enum):
        yield f"{name} = {', '.join(repr(member.value) for member in value)}"
    elif isinstance(value, type):
        is_protocol = getattr(value, "_is_protocol", False)
        yield f"{name}: Protocol" if is_protocol else f"{name}{_signature(value)}"
        for member, found in sorted(_members(value).items()):
            yield from _member_lines(f"{name}.{member}", found)
    elif isinstance(value, ModuleType):
        yield f"{name}: room"
    elif callable(value) and hasattr(value, "__qualname__"):
        yield f"{name}{_signature(value)}"
    else:
        yield f"{name}: {type(value).__name__}"


def _members(kind: type) -> dict[str, object]:
    """Return the public members of a class, inherited ones too as far as they are ours."""
    ours = [one for one in reversed(kind.__mro__) if one.__module__.startswith("holdfast")]
    found = {name: member for one in ours for name, member in vars(one).items()}
    return {name: member for name, member in found.items() if not name.startswith("_")}


def _member_lines(name: str, member: object) -> Iterator[str]:
    asked = getattr(member, "_operation", getattr(member, "operation", member))
    if isinstance(asked, Operation | StreamOperation | LocalFunction):
        yield f"  {name}{_asked_for(member, asked)}"
        return
    if isinstance(member, classmethod | staticmethod):
        member = member.__func__
    if inspect.isfunction(member):
        yield f"  {name}{_signature(member)}"
    elif inspect.isbuiltin(member):
        yield f"  {name}(...)"  # only some Pythons know the parameters of their own functions
    elif isinstance(member, property):
        yield f"  {name}: property"


def _asked_for(member: object, asked: Asked) -> str:
    """Render an operation as the method that it is of a surface."""
    taken = 1 if isinstance(asked, LocalFunction) else 2
    if member is not asked and not isinstance(member, handles.StartsRun):
        taken += 1  # the run of the handle
    signature = inspect.signature(asked.function)
    kept = list(signature.parameters.values())[taken:]
    if isinstance(member, handles.StartsRun):
        signature = signature.replace(return_annotation="RunHandle")
    how = "" if isinstance(asked, StreamOperation | LocalMember) else " async "
    needs = "local" if isinstance(asked, LocalFunction) else asked.scope
    return f"{how}{_text(signature.replace(parameters=kept))} [{needs}]"


class _Bare(str):
    """An annotation that is already text, shown without quotes."""

    __repr__ = str.__str__


def _signature(value: object) -> str:
    prefix = " async " if inspect.iscoroutinefunction(value) else ""
    if typing.get_origin(value):  # a Callable[...]; Python 3.13 would say (*args, **kwargs)
        return "(...)"
    if hasattr(value, "model_rebuild"):
        value.model_rebuild()  # one that is built with its first use has no parameters before
    try:
        signature = inspect.signature(value)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return prefix + "(...)"
    return prefix + _text(signature)


def _text(signature: inspect.Signature) -> str:
    bare = [p.replace(annotation=_bare(p.annotation)) for p in signature.parameters.values()]
    signature = signature.replace(
        parameters=bare, return_annotation=_bare(signature.return_annotation)
    )
    text = str(signature).replace("pathlib._local.", "pathlib.")  # where Python 3.13 has Path
    return re.sub(r" at 0x[0-9a-f]+|\btyping\.|\bholdfast\.[a-z_.]*", "", text)


def _bare(annotation: object) -> object:
    return _Bare(annotation) if isinstance(annotation, str) else annotation


if __name__ == "__main__":
    if "--update" in sys.argv:
        SNAPSHOT.write_text(render(), encoding="utf-8")
    else:
        sys.stdout.write(render())
