"""Check a JSON value against the JSON Schema of a tool or of an answer.

The part of JSON Schema that tools really use: types, objects, arrays, enumerations,
bounds, combinations and local references. A keyword that is not known is not checked,
so a value that passes here may still be refused by the tool itself; a value that fails
here is wrong for sure.

Schemas come from models and from servers of others: no schema can keep us busy for long.
Patterns are matched in a time that grows with the text alone (what needs more, such as
look-ahead, is not checked), everything that costs time is counted, and a check that takes
more steps than a value of its size should counts as failed: some 0.1 s for a small value.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from holdfast.canonical import JsonObject, encode_canonical_json
from holdfast.errors import UsageError
from holdfast.linear_regex import MAX_COST, LinearPattern, compile_linear, measure_pattern

MAX_PROBLEMS = 20
# A step takes some 4 µs at most. What a value may cost grows with it, or long lists would fail.
MAX_STEPS = 25_000
_STEPS_PER_NODE = 20
_CHEAP_STEPS = 20
"""So many comparisons of a loop count as one step."""
_STATES_PER_STEP = 400
"""So many states of an expression held against one character count as one step."""
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
    a problem of its own, and so does one that would take too long.
    """
    found: list[str] = []
    root = _Root(schema, MAX_STEPS + _STEPS_PER_NODE * _count_nodes(value))
    try:
        _check(value, schema, _Place(root), found)
    except _TooManySteps:
        return [f"the value: cannot be checked within {root.allowed} steps"]
    return found[:MAX_PROBLEMS]


def _count_nodes(value: object) -> int:
    """Count what a value consists of; a text counts by its length too."""
    count, rest = 0, [value]
    while rest:
        one = rest.pop()
        count += 1
        if isinstance(one, dict):
            rest.extend(one.values())
        elif isinstance(one, list):
            rest.extend(one)
        elif isinstance(one, str):
            count += len(one) // 100
    return count


def fits(value: object, schema: object) -> bool:
    """Say whether a value fits a schema."""
    return not list_problems(value, schema)


def resolve(schema: object, root: object) -> JsonObject:
    """Follow local references until a schema stands there by itself.

    A reference that leads nowhere, or round in a circle, gives the empty schema, which
    everything fits.
    """
    return _follow(schema, root, lambda _steps: None)


def _follow(schema: object, root: object, spend: Callable[[int], None]) -> JsonObject:
    for _ in range(_MAX_DEPTH):
        if not isinstance(schema, dict):
            return {}
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        rest = {key: item for key, item in schema.items() if key != "$ref"}
        target = _look_up(reference, root)
        schema = {**target, **rest} if isinstance(target, dict) else rest
        spend(1 + (len(schema) + len(reference)) // _CHEAP_STEPS)
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


class _TooManySteps(Exception):
    """The check costs more than its value is worth."""


class _Root:
    """The whole schema, for references, and how many steps may still be made with it."""

    __slots__ = ("_patterns", "allowed", "left", "schema")

    def __init__(self, schema: object, allowed: int) -> None:
        self.schema = schema
        self.allowed = self.left = allowed
        self._patterns: dict[str, LinearPattern | None] = {}

    def spend(self, steps: int) -> None:
        """Count steps before they are made."""
        self.left -= steps
        if self.left < 0:
            raise _TooManySteps

    def find_pattern(self, source: str) -> LinearPattern | None:
        """Return what matches a pattern, None for one that cannot be matched safely."""
        if source not in self._patterns:
            self.spend(len(source) // _CHEAP_STEPS + min(measure_pattern(source)[1], MAX_COST))
            try:
                self._patterns[source] = compile_linear(source)
            except UsageError:
                self._patterns[source] = None
        return self._patterns[source]


class _Place:
    """Where the check stands: root schema for references, path for messages."""

    __slots__ = ("depth", "path", "root")

    def __init__(self, root: _Root, path: str = "", depth: int = 0) -> None:
        self.root = root
        self.path = path
        self.depth = depth

    def at(self, step: str) -> _Place:
        step = step if len(step) <= 100 else f"{step[:100]}…"
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
    place.root.spend(1)
    if len(found) >= MAX_PROBLEMS:
        return
    if place.depth > _MAX_DEPTH:
        found.append(f"{place.name()}: nested too deeply")
        return
    if schema is False:
        found.append(f"{place.name()}: not allowed here")
        return
    if not isinstance(schema, dict):
        return
    if "$ref" in schema:
        schema = _follow(schema, place.root.schema, place.root.spend)
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
    if isinstance(choices, list) or "const" in schema:
        # Each comparison may go through the whole of a list or an object.
        compared = _count_nodes(value) * (1 + len(_list(choices)))
        place.root.spend(compared // _CHEAP_STEPS)
    if isinstance(choices, list) and not any(_is_same(value, choice) for choice in choices):
        shown = ", ".join(_show(choice) for choice in choices[:20])
        found.append(f"{place.name()}: must be one of {shown}")
    if "const" in schema and not _is_same(value, schema["const"]):
        found.append(f"{place.name()}: must be {_show(schema['const'])}")


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 200


def _show(choice: object) -> str:
    return _SHORT.repr(choice)


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
    required = _list(schema.get("required"))
    place.root.spend((len(required) + len(value)) // _CHEAP_STEPS)
    for name in required:
        if name not in value and len(found) < MAX_PROBLEMS:
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
    place.root.spend(len(value) // _CHEAP_STEPS)
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
        place.root.spend(_count_nodes(value) // 4)
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
        matching = place.root.find_pattern(pattern)
        if matching is None:
            return
        place.root.spend(matching.size * len(value) // _STATES_PER_STEP)
        if not matching.matches(value):
            found.append(f"{place.name()}: must match {pattern}")


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
