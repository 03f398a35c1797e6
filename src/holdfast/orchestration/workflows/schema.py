"""The part of JSON Schema that inputs and outputs are described with, and its check.

A keyword that is not in the list is refused, never ignored: a limit that nothing checks would
be worse than none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from holdfast.canonical import JsonObject, encode_canonical_json

TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (Mapping,),
    "null": (type(None),),
}
_NUMBERS = ("minimum", "maximum")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_NOTES = ("title", "description", "default", "examples")
_KEYWORDS = frozenset(
    {
        "type", "enum", "const", "properties", "required", "additionalProperties", "items",
        *_NUMBERS, *_COUNTS, *_NOTES,
    }
)  # fmt: skip
_DEEPEST = 10
_MOST_MISTAKES = 5


def check_schema(schema: object, depth: int = 0) -> list[str]:
    """Return what is wrong with a schema; [] means that every part of it will be checked."""
    if not isinstance(schema, Mapping):
        return ["a schema is an object such as {type: string}"]
    if depth > _DEEPEST:
        return ["the schema is too deep"]
    wrong = [f"unknown keyword {key!r}" for key in schema if key not in _KEYWORDS]
    kinds = schema.get("type", "object")
    listed = kinds if isinstance(kinds, list) else [kinds]
    wrong += [
        f"type {kind!r} is none of {', '.join(TYPES)}"
        for kind in listed
        if not isinstance(kind, str) or kind not in TYPES
    ]
    if not isinstance(schema.get("enum", []), list):
        wrong.append("enum is a list")
    wrong += [f"{key} is a number" for key in _NUMBERS if not _is_number(schema.get(key, 0))]
    wrong += [f"{key} is a whole number" for key in _COUNTS if not _is_count(schema.get(key, 0))]
    names = schema.get("required", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        wrong.append("required is a list of names")
    return wrong + _check_parts(schema, depth)


def _check_parts(schema: Mapping[str, Any], depth: int) -> list[str]:
    fields = schema.get("properties", {})
    if not isinstance(fields, Mapping):
        return ["properties is an object"]
    parts = [(f"properties.{name}", part) for name, part in fields.items()]
    parts += [(key, schema[key]) for key in ("items", "additionalProperties") if key in schema]
    return [
        f"{name}: {text}"
        for name, part in parts
        if not (name == "additionalProperties" and isinstance(part, bool))
        for text in check_schema(part, depth + 1)
    ]


def list_mistakes(value: object, schema: JsonObject, where: str = "it") -> list[str]:
    """Return in what a value does not fit a schema, the first few things."""
    found: list[str] = []
    for text in _list_mistakes(value, schema, where):
        found.append(text)
        if len(found) == _MOST_MISTAKES:
            break
    return found


def _list_mistakes(value: Any, schema: JsonObject, where: str) -> Iterator[str]:  # noqa: ANN401 - JSON
    kinds = schema.get("type", [])
    listed: list[str] = kinds if isinstance(kinds, list) else [kinds]
    if listed and not any(is_of(value, kind) for kind in listed):
        yield f"{where} is no {' or '.join(listed)}"
        return
    if "enum" in schema and not any(_is_same(value, one) for one in schema["enum"]):
        yield f"{where} is none of the values that are allowed"
    if "const" in schema and not _is_same(value, schema["const"]):
        yield f"{where} is not the value that is allowed"
    if _is_number(value):
        if value < schema.get("minimum", value):
            yield f"{where} is less than {schema['minimum']}"
        if value > schema.get("maximum", value):
            yield f"{where} is more than {schema['maximum']}"
    elif isinstance(value, str):
        yield from _count(len(value), "Length", "characters", schema, where)
    elif isinstance(value, list | tuple):
        yield from _count(len(value), "Items", "items", schema, where)
        for number, item in enumerate(value):
            if "items" in schema:
                yield from _list_mistakes(item, schema["items"], f"{where}[{number}]")
    elif isinstance(value, Mapping):
        yield from _count(len(value), "Properties", "fields", schema, where)
        yield from _iterate_fields(value, schema, where)


def _iterate_fields(value: Mapping[str, Any], schema: JsonObject, where: str) -> Iterator[str]:
    known = schema.get("properties", {})
    more = schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{where} has no {name!r}"
    for name, item in value.items():
        if name in known:
            yield from _list_mistakes(item, known[name], f"{where}.{name}")
        elif more is False:
            yield f"{where} has {str(name)[:80]!r}, which it should not"
        elif more is not True:
            yield from _list_mistakes(item, more, f"{where}.{name}")


def _count(size: int, what: str, word: str, schema: JsonObject, where: str) -> Iterator[str]:
    if size < schema.get(f"min{what}", size):
        yield f"{where} has {size} {word}, fewer than {schema[f'min{what}']}"
    if size > schema.get(f"max{what}", size):
        yield f"{where} has {size} {word}, more than {schema[f'max{what}']}"


def is_of(value: object, kind: str) -> bool:
    """Say whether a value has a JSON type; true is no number, and 2.0 is an integer."""
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, TYPES[kind])


def _is_same(one: object, other: object) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and (
        one == other or encode_canonical_json(one) == encode_canonical_json(other)
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


__all__ = ["TYPES", "check_schema", "is_of", "list_mistakes"]
