"""Everything that can be asked of Holdfast stands in one table, and rights are checked there."""

from __future__ import annotations

import collections.abc
import importlib
import inspect
import pkgutil
import re
import types
import typing
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast.client import AsyncClient, namespaces
from holdfast.client.flat import FlatNames
from holdfast.client.handles import RunHandle, StartsRun
from holdfast.client.surface import FLAT, ClientSurface
from holdfast.errors import NotPermitted
from holdfast.messages import TextPart
from holdfast.operations import (
    Caller,
    LocalFunction,
    Operation,
    StreamOperation,
    Surface,
    list_local_functions,
    list_operations,
)
from holdfast.sync import Client

SOURCE = Path(holdfast.__file__).parent
TABLE = list_operations()

SET_FOR_ALL_RUNS = {
    "context",
    "settings",
    "base_dir",
    "tenant",
    "redactor",
    "context_builder",
    "approver",
    "attendant",
    "rate_limiter",
    "fallback_models",
}
"""What belongs to the process in which a client lives; nobody asks for it from elsewhere."""
OF_ITSELF = {"close"}

TWICE: set[str] = set()
"""Class names that occur in several files; may only shrink."""

JSON_OF_ANY_TYPE = {"state.get"}
"""What somebody stored as JSON is given back, of whatever type it is."""
EXAMPLES: dict[str, dict[str, Any]] = {
    "triggers.add": {
        "trigger": {"name": "t", "at": {"cron": "0 6 * * *"}, "agent": "build", "message": "go"}
    }
}
"""Requests whose content is checked before the runtime is asked."""

every_operation = pytest.mark.parametrize("name", sorted(TABLE))


def namespace_classes() -> dict[str, type]:
    """Return the class of every namespace by the name that a client has for it."""
    found: dict[str, type] = {}
    for info in pkgutil.iter_modules(namespaces.__path__):
        module = importlib.import_module(f"{namespaces.__name__}.{info.name}")
        for value in vars(module).values():
            if getattr(value, "__module__", "") == module.__name__ and isinstance(value, type):
                found[value.__name__] = value
    return {name: found[kind] for name, kind in namespace_properties().items()}


def namespace_properties() -> dict[str, str]:
    """Return the properties of a client that are namespaces, with the names of their classes."""
    hints = {
        name: str(member.fget.__annotations__["return"])
        for name, member in vars(ClientSurface).items()
        if isinstance(member, property) and member.fget is not None
    }
    marked = "Namespace[Mode]"
    return {n: hint.partition("[")[0] for n, hint in hints.items() if hint.endswith(marked)}


def public_members(kind: type) -> dict[str, Any]:
    return {name: value for name, value in vars(kind).items() if not name.startswith("_")}


def projected(member: object) -> object:
    """Return the operation behind a member: itself, or what a handle or a start asks for."""
    if isinstance(member, StartsRun):
        return member.operation
    return getattr(member, "_operation", member)


# --- the table ------------------------------------------------------------------------


def test_no_two_operations_share_a_name() -> None:
    found: Counter[str] = Counter()
    for info in pkgutil.iter_modules([str(SOURCE / "operations")]):
        module = importlib.import_module(f"holdfast.operations.{info.name}")
        for value in vars(module).values():
            if isinstance(value, Operation | StreamOperation | LocalFunction):
                found[value.name] += 1
    assert [name for name, count in found.items() if count > 1] == []
    assert set(found) == {*TABLE, *list_local_functions()}, (
        "a module is missing in the table's list"
    )


@every_operation
def test_an_operation_says_what_it_does_and_which_scope_it_needs(name: str) -> None:
    operation = TABLE[name]
    assert re.fullmatch(r"[a-z]+:[a-z]+", operation.scope)
    assert (operation.function.__doc__ or "").strip()
    assert re.fullmatch(r"[a-z]+\.[a-z_]+", name)


@every_operation
def test_a_request_is_data_and_survives_the_way_over_json(name: str) -> None:
    kind = TABLE[name].request
    asked = kind(**smallest(name))
    sent = msgspec.json.encode(asked)
    assert msgspec.json.encode(msgspec.json.decode(sent, type=kind)) == sent


@every_operation
def test_a_parameter_that_takes_python_objects_says_what_to_send_instead(name: str) -> None:
    kind = TABLE[name].request
    assert [field.name for field in msgspec.structs.fields(kind) if not is_data(field.type)] == []
    parts = [part for found in TABLE[name].local_parts.values() for part in found]
    assert all(part.instead.strip() for part in parts)


@every_operation
def test_an_answer_has_a_type(name: str) -> None:
    operation = TABLE[name]
    returned = typing.get_type_hints(operation.function, include_extras=True)["return"]
    assert operation.response is not None
    assert (operation.response is Any) == (name in JSON_OF_ANY_TYPE)
    is_stream = typing.get_origin(returned) is collections.abc.AsyncGenerator
    assert is_stream == operation.is_stream


@every_operation
def test_an_answer_is_data(name: str) -> None:
    assert is_data(TABLE[name].response)


def is_data(hint: Any) -> bool:
    """Say whether msgspec knows a form for everything in a type."""
    try:
        found = [msgspec.inspect.type_info(hint)]
    except TypeError:
        return False  # a union whose members cannot be told apart
    seen: set[int] = set()
    while found:
        one = found.pop()
        if isinstance(one, msgspec.inspect.CustomType):
            return False
        if id(one) not in seen and isinstance(one, msgspec.Struct):
            found += [getattr(one, name) for name in one.__struct_fields__]
        elif isinstance(one, tuple | list):
            found += one
        seen.add(id(one))
    return True


def smallest(name: str) -> dict[str, Any]:
    """Return values for the fields that a request must have."""
    if name in EXAMPLES:
        return EXAMPLES[name]
    kind = TABLE[name].request
    return {
        field.encode_name: value_of(field.type)
        for field in msgspec.structs.fields(kind)
        if field.required
    }


def value_of(hint: Any) -> Any:
    origin = typing.get_origin(hint) or hint
    if origin is typing.Literal:
        return typing.get_args(hint)[0]
    if origin in (typing.Union, types.UnionType):
        kinds = typing.get_args(hint)
        return value_of(str) if str in kinds else TextPart(text="x")
    plain = {
        bytes: b"x",
        str: "x",
        int: 1,
        bool: True,
        dict: {},
        collections.abc.Mapping: {},
        Any: [1],
    }
    if origin in plain:
        return plain[origin]
    if origin is collections.abc.Sequence:
        return [value_of(one) for one in typing.get_args(hint)]
    raise AssertionError(f"no value for {hint}: say here how such a request looks")


# --- projections ----------------------------------------------------------------------


def test_every_member_of_every_namespace_is_an_operation_or_says_what_to_do_instead() -> None:
    strays = [
        f"{name}.{member}"
        for name, kind in namespace_classes().items()
        for member, value in public_members(kind).items()
        if not is_listed(projected(value))
    ]
    assert strays == []


def is_listed(member: object) -> bool:
    if isinstance(member, LocalFunction):
        return bool(member.instead.strip()) and list_local_functions().get(member.name) is member
    is_asked = isinstance(member, Operation | StreamOperation)
    return is_asked and TABLE.get(member.name) is member


def test_everything_that_a_handle_does_is_an_operation() -> None:
    members = public_members(RunHandle)
    assert [name for name, one in members.items() if not is_listed(projected(one))] == []
    assert {"result", "events", "stream", "cancel", "steer", "fork"} <= set(members)


@pytest.mark.parametrize("client", [AsyncClient, Client])
def test_a_client_has_namespaces_and_nothing_else_but_what_is_listed(client: type) -> None:
    mro = [kind for kind in client.__mro__ if kind.__module__.startswith("holdfast")]
    members = {name for kind in mro for name in public_members(kind)}
    assert members == {*namespace_properties(), *SET_FOR_ALL_RUNS, *OF_ITSELF}


def test_every_operation_and_every_local_function_is_reachable_through_a_namespace() -> None:
    reached = {
        getattr(projected(value), "name", "")
        for kind in namespace_classes().values()
        for value in public_members(kind).values()
    }
    assert {*TABLE, *list_local_functions()} - reached == set()


def test_every_namespace_is_a_surface_that_a_client_has() -> None:
    modules = {info.name for info in pkgutil.iter_modules(namespaces.__path__)}
    classes = namespace_classes()
    assert len(classes) == len(modules)
    assert all(issubclass(kind, Surface) for kind in classes.values())


def test_flat_names_forward_to_methods_that_exist() -> None:
    classes = namespace_classes()
    for name, target in FLAT.items():
        namespace, _, method = target.partition(".")
        member = public_members(classes[namespace])[method]
        assert getattr(FlatNames, name) is projected(member), name
    assert set(public_members(FlatNames)) == set(FLAT), "type checkers see other names"


# --- rights ---------------------------------------------------------------------------


class Touched(Exception):
    """The runtime was asked for something."""


class Untouchable:
    """A runtime that nobody may reach before the caller's rights are checked."""

    def __getattribute__(self, name: str) -> Any:
        raise Touched(name)


async def ask(name: str, *scopes: str) -> None:
    """Perform an operation in the name of a caller who has these scopes."""
    operation = TABLE[name]
    caller = Caller(tenant="t", subject="ada", scopes=frozenset(scopes))
    begun = operation.perform(Untouchable(), caller, **smallest(name))  # type: ignore[arg-type]
    if inspect.isawaitable(begun):
        await begun
    else:
        await anext(begun)


@every_operation
async def test_a_caller_without_the_scope_is_refused_before_anything_happens(name: str) -> None:
    scope = TABLE[name].scope
    kind, _, _ = scope.partition(":")
    others = {one.scope for one in TABLE.values()} - {scope}
    elsewhere = {f"{one.partition(':')[0]}:*" for one in others} - {f"{kind}:*"}
    for scopes in (set(), others, elsewhere, {kind, f"{kind}:", f"{scope}x", "**", ""}):
        with pytest.raises(NotPermitted) as refused:
            await ask(name, *scopes)
        assert refused.value.code == NotPermitted.code
        assert refused.value.context["scope"] == scope


@every_operation
async def test_a_caller_with_the_scope_passes(name: str) -> None:
    scope = TABLE[name].scope
    for given in (scope, f"{scope.partition(':')[0]}:*", "*"):
        with pytest.raises(Touched):
            await ask(name, given, "sessions:all")


# --- names ----------------------------------------------------------------------------


def test_every_class_name_occurs_once() -> None:
    found: Counter[str] = Counter()
    for file in SOURCE.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        found.update(re.findall(r"^class ([A-Z]\w*)", text, flags=re.MULTILINE))
    assert {name for name, count in found.items() if count > 1} == TWICE


def test_every_room_says_what_is_public() -> None:
    rooms = [path.parent for path in SOURCE.glob("*/__init__.py")]
    silent = [
        room.name
        for room in rooms
        if not getattr(importlib.import_module(f"holdfast.{room.name}"), "__all__", None)
    ]
    assert silent == []
