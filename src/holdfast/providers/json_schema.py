"""Check a JSON value against the JSON Schema of a tool or of an answer.

The part of JSON Schema that tools really use: types, objects, arrays, enumerations,
bounds, combinations and local references. A keyword that is not known is not checked,
so a value that passes here may still be refused by the tool itself; a value that fails
here is wrong for sure.

Schemas come from models and from servers of others: no schema can keep us busy for long.
Patterns are matched in a time that grows with the text alone (what needs more, such as
look-ahead, is not checked), and a check that takes too many steps counts as failed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic_core import SchemaError, SchemaValidator, core_schema

from holdfast.canonical import JsonObject, encode_canonical_json

MAX_PROBLEMS = 20
MAX_STEPS = 1_000_000
_MAX_DEPTH = 64
_DATA = frozenset({"enum", "const", "default", "example", "examples"})

_TYPES: dict[str, Callable[[object], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: (
        not isinstance(value, bool)
        and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
    ),
}


def list_problems(value: object, schema: object) -> list[str]:
    """List what is wrong with a value, each with its place; empty means it fits.

    At most 20 problems are listed. A schema nested too deeply to be checked counts as
    a problem of its own, and so does one whose alternatives would take too long.
    """
    found: list[str] = []
    root = _Root(schema)
    _check(value, schema, _Place(root), found)
    if root.steps > MAX_STEPS:
        return [f"the value: cannot be checked within {MAX_STEPS} steps"]
    return found[:MAX_PROBLEMS]


def fits(value: object, schema: object) -> bool:
    """Say whether a value fits a schema."""
    return not list_problems(value, schema)


def resolve(schema: object, root: object) -> JsonObject:
    """Follow local references until a schema stands there by itself.

    A reference that leads nowhere, or round in a circle, gives the empty schema, which
    everything fits.
    """
    for _ in range(_MAX_DEPTH):
        if not isinstance(schema, dict):
            return {}
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        rest = {key: item for key, item in schema.items() if key != "$ref"}
        target = _look_up(reference, root)
        schema = {**target, **rest} if isinstance(target, dict) else rest
    return {}


def iterate_nodes(schema: object) -> Iterator[JsonObject]:
    """Yield every object in a schema that may be a schema itself; examples and values are none."""
    if isinstance(schema, dict):
        yield schema
        for key, item in schema.items():
            if key not in _DATA:
                yield from iterate_nodes(item)
    elif isinstance(schema, list):
        for item in schema:
            yield from iterate_nodes(item)


def list_faults(schema: object) -> list[str]:
    """List what is wrong with a schema: types that are none, references that lead nowhere.

    Also a text in the place of a list of required names.
    """
    found: dict[str, None] = {}
    for node in iterate_nodes(schema):
        for name in list_types(node):
            if name not in _TYPES:
                found[f"there is no type {name!r}"] = None
        if isinstance(required := node.get("required"), str):
            found[f"what is required is a list, not {required!r}"] = None
        reference = node.get("$ref")
        if isinstance(reference, str) and _look_up(reference, schema) is None:
            found[f"the reference {reference!r} leads nowhere in it"] = None
    return list(found)[:MAX_PROBLEMS]


def list_types(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the types that a schema names; empty means any."""
    named = schema.get("type")
    if isinstance(named, str):
        return (named,)
    if isinstance(named, list):
        return tuple(item for item in named if isinstance(item, str))
    return ()


class _Root:
    """The whole schema, for references, and how many steps were made with it."""

    __slots__ = ("schema", "steps")

    def __init__(self, schema: object) -> None:
        self.schema = schema
        self.steps = 0


class _Place:
    """Where the check stands: root schema for references, path for messages."""

    __slots__ = ("depth", "path", "root")

    def __init__(self, root: _Root, path: str = "", depth: int = 0) -> None:
        self.root = root
        self.path = path
        self.depth = depth

    def at(self, step: str) -> _Place:
        return _Place(self.root, f"{self.path}{step}", self.depth + 1)

    def go_deeper(self) -> _Place:
        return _Place(self.root, self.path, self.depth + 1)

    def name(self) -> str:
        return self.path.lstrip(".") or "the value"


def _look_up(reference: str, root: object) -> object:
    if not reference.startswith("#"):
        return None
    at: object = root
    for step in reference[1:].strip("/").split("/"):
        if not step:
            continue
        name = step.replace("~1", "/").replace("~0", "~")
        at = at.get(name) if isinstance(at, dict) else None
    return at


def _check(value: object, schema: object, place: _Place, found: list[str]) -> None:
    place.root.steps += 1
    if len(found) >= MAX_PROBLEMS or place.root.steps > MAX_STEPS:
        return
    if place.depth > _MAX_DEPTH:
        found.append(f"{place.name()}: nested too deeply")
        return
    if schema is False:
        found.append(f"{place.name()}: not allowed here")
        return
    if not isinstance(schema, dict):
        return
    schema = resolve(schema, place.root.schema)
    named = list_types(schema)
    if named and not any(_TYPES[name](value) for name in named if name in _TYPES):
        found.append(f"{place.name()}: must be {' or '.join(named)}")
        return
    _check_choice(value, schema, place, found)
    _check_combined(value, schema, place, found)
    if isinstance(value, dict):
        _check_object(value, schema, place, found)
    elif isinstance(value, list):
        _check_array(value, schema, place, found)
    elif isinstance(value, str):
        _check_text(value, schema, place, found)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _check_number(value, schema, place, found)


def _is_same(left: object, right: object) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return left == right


def _check_choice(value: object, schema: JsonObject, place: _Place, found: list[str]) -> None:
    choices = schema.get("enum")
    if isinstance(choices, list) and not any(_is_same(value, choice) for choice in choices):
        shown = ", ".join(repr(choice) for choice in choices[:20])
        found.append(f"{place.name()}: must be one of {shown}")
    if "const" in schema and not _is_same(value, schema["const"]):
        found.append(f"{place.name()}: must be {schema['const']!r}")


def _check_combined(value: object, schema: JsonObject, place: _Place, found: list[str]) -> None:
    for part in _list(schema.get("allOf")):
        _check(value, part, place.go_deeper(), found)
    for keyword in ("anyOf", "oneOf"):
        branches = _list(schema.get(keyword))
        if not branches:
            continue
        tries = [_check_branch(value, branch, place) for branch in branches]
        fitting = sum(not attempt for attempt in tries)
        if fitting == 0:
            found.extend(min(tries, key=len)[:2] or [f"{place.name()}: fits no alternative"])
        elif keyword == "oneOf" and fitting > 1:
            found.append(f"{place.name()}: fits more than one alternative")
    if "not" in schema and not _check_branch(value, schema["not"], place):
        found.append(f"{place.name()}: must not have this form")


def _check_branch(value: object, schema: object, place: _Place) -> list[str]:
    found: list[str] = []
    _check(value, schema, place.go_deeper(), found)
    return found


def _check_object(
    value: dict[str, Any], schema: JsonObject, place: _Place, found: list[str]
) -> None:
    known = schema.get("properties")
    known = known if isinstance(known, dict) else {}
    for name in _list(schema.get("required")):
        if name not in value:
            found.append(f"{place.at(f'.{name}').name()}: is missing")
    for name, item in value.items():
        if name in known:
            _check(item, known[name], place.at(f".{name}"), found)
        elif "additionalProperties" in schema:
            rest = schema["additionalProperties"]
            if rest is False:
                found.append(f"{place.at(f'.{name}').name()}: is not a known field")
            else:
                _check(item, rest, place.at(f".{name}"), found)
    if len(value) < _read_number(schema, "minProperties", 0):
        found.append(f"{place.name()}: has too few fields")
    if len(value) > _read_number(schema, "maxProperties", float("inf")):
        found.append(f"{place.name()}: has too many fields")


def _check_array(value: list[Any], schema: JsonObject, place: _Place, found: list[str]) -> None:
    first = _list(schema.get("prefixItems"))
    for index, item in enumerate(value):
        if len(found) >= MAX_PROBLEMS:
            return
        if index < len(first):
            _check(item, first[index], place.at(f"[{index}]"), found)
        elif "items" in schema:
            _check(item, schema["items"], place.at(f"[{index}]"), found)
    if len(value) < _read_number(schema, "minItems", 0):
        found.append(f"{place.name()}: has too few items")
    if len(value) > _read_number(schema, "maxItems", float("inf")):
        found.append(f"{place.name()}: has too many items")
    if schema.get("uniqueItems") is True:
        seen = {encode_canonical_json(item) for item in value}
        if len(seen) != len(value):
            found.append(f"{place.name()}: has equal items")


def _check_text(value: str, schema: JsonObject, place: _Place, found: list[str]) -> None:
    if len(value) < _read_number(schema, "minLength", 0):
        found.append(f"{place.name()}: is too short")
    if len(value) > _read_number(schema, "maxLength", float("inf")):
        found.append(f"{place.name()}: is too long")
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and len(pattern) <= 500 and len(value) <= 1000:
        matching = _find_matching(pattern)
        if matching is not None and not matching.isinstance_python(value):
            found.append(f"{place.name()}: must match {pattern}")


@functools.lru_cache(maxsize=256)
def _find_matching(pattern: str) -> SchemaValidator | None:
    """Return what matches a pattern, `None` for one that cannot be matched safely.

    Not Python's `re`: a model may be talked into a text with which a bad pattern never ends.
    """
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError:
        return None


def _check_number(value: float, schema: JsonObject, place: _Place, found: list[str]) -> None:
    low, high = (
        _read_number(schema, "minimum", float("-inf")),
        _read_number(schema, "maximum", float("inf")),
    )
    above = _read_number(schema, "exclusiveMinimum", float("-inf"))
    below = _read_number(schema, "exclusiveMaximum", float("inf"))
    if value < low or value <= above:
        found.append(f"{place.name()}: is too small")
    if value > high or value >= below:
        found.append(f"{place.name()}: is too large")
    step = _read_number(schema, "multipleOf", 0)
    if step > 0 and abs(value / step - round(value / step)) > 1e-9:
        found.append(f"{place.name()}: must be a multiple of {step:g}")


def _read_number(schema: JsonObject, key: str, default: float) -> float:
    found = schema.get(key)
    if isinstance(found, int | float) and not isinstance(found, bool):
        return found
    return default


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
