"""Schemas of foreign servers: made sound for models, and harmless to check against.

What goes to the model is the server's schema without what is malformed. What arguments are
checked against is less: only keywords whose check takes no longer than the arguments are long.
Patterns, references and alternatives are left to the server, because a hostile schema could
keep us busy with them for ever.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.canonical import JsonObject
from holdfast.mcp.text import make_readable

MOST_BYTES: Final = 64 * 1024
MOST_DEPTH: Final = 24
_MOST_TEXT: Final = 2_000

_TYPES: Final = frozenset({"object", "array", "string", "boolean", "null", "number", "integer"})
_SCHEMA_MAPS: Final = ("properties", "$defs", "definitions", "patternProperties")
_SCHEMA_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_SCHEMAS: Final = ("items", "additionalProperties", "not", "if", "then", "else", "contains")
_TEXTS: Final = ("description", "title")
_NUMBERS: Final = (
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
)


class UnusableSchema(Exception):
    """The schema cannot be offered; `str()` says why."""


def clean_schema(schema: object) -> JsonObject:
    """Return the schema of a tool's arguments as a model may see it.

    Raises:
        UnusableSchema: it is no schema of an object, too large, too deep, or no JSON.
    """
    if not isinstance(schema, dict):
        raise UnusableSchema("its schema is no object")
    try:
        size = len(msgspec.json.encode(schema))
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UnusableSchema("its schema has no JSON form") from error
    if size > MOST_BYTES:
        raise UnusableSchema(f"its schema has {size} bytes, more than {MOST_BYTES}")
    if schema.get("type", "object") != "object":
        raise UnusableSchema("its arguments are no object")
    cleaned = _clean(schema, 0)
    return {**cleaned, "type": "object", "properties": cleaned.get("properties", {})}


def _clean(schema: JsonObject, depth: int) -> JsonObject:
    if depth > MOST_DEPTH:
        raise UnusableSchema(f"its schema is nested more than {MOST_DEPTH} deep")
    made: JsonObject = {}
    for key, value in schema.items():
        found = _clean_part(key, value, depth + 1)
        if found is not None:
            made[make_readable(key, 200)] = found
    return made


def _clean_part(key: str, value: object, depth: int) -> object:
    """Return a keyword's value in its right form, or None for one in a wrong form."""
    if key in _SCHEMA_MAPS:
        if not isinstance(value, dict):
            return None
        return {make_readable(name, 200): _clean_schema(one, depth) for name, one in value.items()}
    if key in _SCHEMA_LISTS:
        is_list = isinstance(value, list) and bool(value)
        return [_clean_schema(one, depth) for one in value] if is_list else None  # type: ignore[attr-defined]
    if key in _SCHEMAS:
        return _clean_schema(value, depth) if isinstance(value, dict | bool) else None
    if key in _TEXTS:
        return make_readable(value, _MOST_TEXT) if isinstance(value, str) else None
    if key == "required":
        names = value if isinstance(value, list) else []
        return [make_readable(name, 200) for name in names if isinstance(name, str)]
    if key == "type":
        return _simplify_types(value)
    if key == "enum":
        return _simplify(value, depth) if isinstance(value, list) and value else None
    return _simplify(value, depth)


def _clean_schema(value: object, depth: int) -> Any:  # noqa: ANN401 - a schema, true or false
    if isinstance(value, bool):
        return value if not value else {}
    return _clean(value, depth) if isinstance(value, dict) else {}


def _simplify_types(value: object) -> object:
    if isinstance(value, list):
        return [one for one in value if isinstance(one, str) and one in _TYPES] or None
    return value if isinstance(value, str) and value in _TYPES else None


def _simplify(value: object, depth: int) -> object:
    """Any other JSON, with readable texts."""
    if depth > MOST_DEPTH:
        raise UnusableSchema(f"its schema is nested more than {MOST_DEPTH} deep")
    if isinstance(value, str):
        return make_readable(value, _MOST_TEXT)
    if isinstance(value, list):
        return [_simplify(one, depth + 1) for one in value]
    if isinstance(value, dict):
        return {make_readable(key, 200): _simplify(one, depth + 1) for key, one in value.items()}
    return value


def make_checkable(schema: JsonObject) -> JsonObject:
    """Return as much of a clean schema as can be checked in time that the arguments bound."""
    made: JsonObject = {
        key: schema[key]
        for key in _NUMBERS
        if isinstance(schema.get(key), int | float) and not isinstance(schema[key], bool)
    }
    for key in ("type", "enum", "const", "required"):
        if key in schema:
            made[key] = schema[key]
    if isinstance(schema.get("properties"), dict):
        made["properties"] = {
            name: _simplify_inner(one) for name, one in schema["properties"].items()
        }
    for key in ("items", "additionalProperties"):
        # What `patternProperties` means would count as additional without it.
        if key in schema and not (key == "additionalProperties" and _has_others(schema)):
            made[key] = _simplify_inner(schema[key])
    return made


def _simplify_inner(schema: object) -> object:
    return make_checkable(schema) if isinstance(schema, dict) else schema


def _has_others(schema: JsonObject) -> bool:
    return any(key in schema for key in ("patternProperties", *_SCHEMA_LISTS, "$ref", "if"))


__all__ = ["MOST_BYTES", "MOST_DEPTH", "UnusableSchema", "clean_schema", "make_checkable"]
