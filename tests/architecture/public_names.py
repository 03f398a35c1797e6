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

SNAPSHOT = Path(__file__).with_name("public_names.txt")


def render() -> str:
    """Return the whole list, sorted by room and name."""
    return "".join(f"{line}\n" for room in rooms() for line in _room_lines(room))


def rooms() -> list[ModuleType]:
    """Return `holdfast` and every public room or module directly under it."""
    front = importlib.import_module("holdfast")
    names = sorted(info.name for info in pkgutil.iter_modules(front.__path__))
    return [front, *(importlib.import_module(f"holdfast.{n}") for n in names if n[0] != "_")]


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
        for member in sorted(vars(value)):
            if not member.startswith("_"):
                yield from _member_lines(f"{name}.{member}", vars(value)[member])
    elif callable(value) and hasattr(value, "__qualname__"):
        yield f"{name}{_signature(value)}"
    else:
        yield f"{name}: {type(value).__name__}"


def _member_lines(name: str, member: object) -> Iterator[str]:
    if isinstance(member, classmethod | staticmethod):
        member = member.__func__
    if inspect.isfunction(member):
        yield f"  {name}{_signature(member)}"
    elif inspect.isbuiltin(member):
        yield f"  {name}(...)"  # only some Pythons know the parameters of their own functions
    elif isinstance(member, property):
        yield f"  {name}: property"


class _Bare(str):
    """An annotation that is already text, shown without quotes."""

    __repr__ = str.__str__


def _signature(value: object) -> str:
    prefix = " async " if inspect.iscoroutinefunction(value) else ""
    if typing.get_origin(value):  # a Callable[...]; Python 3.13 would say (*args, **kwargs)
        return "(...)"
    try:
        signature = inspect.signature(value)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return prefix + "(...)"
    bare = [p.replace(annotation=_bare(p.annotation)) for p in signature.parameters.values()]
    signature = signature.replace(
        parameters=bare, return_annotation=_bare(signature.return_annotation)
    )
    text = str(signature).replace("pathlib._local.", "pathlib.")  # where Python 3.13 has Path
    return prefix + re.sub(r" at 0x[0-9a-f]+|\btyping\.|\bholdfast\.[a-z_.]*", "", text)


def _bare(annotation: object) -> object:
    return _Bare(annotation) if isinstance(annotation, str) else annotation


if __name__ == "__main__":
    if "--update" in sys.argv:
        SNAPSHOT.write_text(render(), encoding="utf-8")
    else:
        sys.stdout.write(render())
