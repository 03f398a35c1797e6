"""JSON schemas in the form in which providers guarantee output."""

from __future__ import annotations

from holdfast.canonical import JsonObject

_NAMED = ("properties", "$defs", "definitions", "patternProperties")
_LITERAL = ("enum", "const", "default", "examples")


def close_schema(schema: JsonObject) -> JsonObject:
    """Return a schema whose objects take no unknown fields.

    Every API demands that of guaranteed output; an object that says itself what it
    takes beyond its properties is left alone.
    """
    made: JsonObject = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, dict):
            made[key] = {name: _close(item) for name, item in value.items()}
        else:
            made[key] = value if key in _LITERAL else _close(value)
    if _is_object(schema):
        made.setdefault("additionalProperties", False)
    return made


def is_strict(schema: JsonObject) -> bool:
    """Say whether OpenAI's strict mode takes the schema: closed, and all fields required."""
    if _is_object(schema):
        properties = schema.get("properties")
        names = set(properties) if isinstance(properties, dict) else set()
        if schema.get("additionalProperties") is not False:
            return False
        if set(schema.get("required") or ()) != names:
            return False
    for key, value in schema.items():
        if key in _LITERAL:
            continue
        nodes = value.values() if key in _NAMED and isinstance(value, dict) else [value]
        if not all(_is_strict(node) for node in nodes):
            return False
    return True


def _close(node: object) -> object:
    if isinstance(node, list):
        return [_close(item) for item in node]
    return close_schema(node) if isinstance(node, dict) else node


def _is_strict(node: object) -> bool:
    if isinstance(node, list):
        return all(_is_strict(item) for item in node)
    return is_strict(node) if isinstance(node, dict) else True


def _is_object(schema: JsonObject) -> bool:
    return schema.get("type") == "object" or isinstance(schema.get("properties"), dict)
