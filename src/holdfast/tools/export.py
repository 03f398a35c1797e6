"""Write tools down for other programs: JSON Schema and OpenAPI 3.1."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.canonical import JsonObject
from holdfast.tools.definition import Tool

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def describe(tool: Tool) -> JsonObject:
    """Everything that can be said about a tool, JSON-ready."""
    return {
        "name": tool.name,
        "version": tool.version,
        "description": tool.description,
        "effect": tool.effect,
        "permission": tool.permission,
        "target": tool.target_kind,
        "tags": list(tool.tags),
        "deprecated": tool.deprecated,
        "timeout_s": tool.timeout_s,
        "cacheable": tool.cacheable,
        "labels": list(tool.labels),
        "egress": tool.egress,
        "source_hash": tool.source_hash,
        "parameters": tool.parameters,
        "output": tool.output_schema,
    }


def to_json_schema(tools: Iterable[Tool]) -> JsonObject:
    """A schema document whose `$defs` hold the arguments of each tool."""
    return {
        "$schema": _DIALECT,
        "$defs": {
            tool.name: _rebase(
                {"description": tool.description, **tool.parameters}, f"#/$defs/{tool.name}/$defs/"
            )
            for tool in tools
        },
    }


def to_openapi(tools: Iterable[Tool], *, title: str, version: str) -> JsonObject:
    """An OpenAPI 3.1 document: `POST /tools/{name}` for every tool."""
    schemas: JsonObject = {
        "ToolFailure": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "hint": {"type": "string"},
            },
        }
    }
    paths = {f"/tools/{tool.name}": {"post": _describe_operation(tool, schemas)} for tool in tools}
    return {
        "openapi": "3.1.0",
        "jsonSchemaDialect": _DIALECT,
        "info": {"title": title, "version": version},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _describe_operation(tool: Tool, schemas: JsonObject) -> JsonObject:
    arguments = _lift(tool.parameters, f"{tool.name}.arguments", schemas)
    output = _lift(tool.output_schema, f"{tool.name}.output", schemas)
    summary = tool.description.partition("\n")[0]
    return {
        "operationId": tool.name,
        "summary": summary,
        "description": tool.description,
        "tags": list(tool.tags) or ["tools"],
        "deprecated": bool(tool.deprecated),
        "x-holdfast-version": tool.version,
        "x-holdfast-effect": tool.effect,
        "requestBody": {
            "required": bool(tool.parameters.get("required")),
            "content": {"application/json": {"schema": arguments}},
        },
        "responses": {
            "200": {
                "description": "What the tool returned.",
                "content": {"application/json": {"schema": output}},
            },
            "default": {
                "description": "Why it failed.",
                "content": {
                    "application/json": {"schema": {"$ref": "#/components/schemas/ToolFailure"}}
                },
            },
        },
    }


def _lift(schema: JsonObject, prefix: str, schemas: JsonObject) -> JsonObject:
    """Move a schema and its definitions to the components, and return a reference."""
    place = f"#/components/schemas/{prefix}."
    body = _rebase(schema, place)
    for name, definition in body.pop("$defs", {}).items():
        schemas[f"{prefix}.{name}"] = definition
    schemas[prefix] = body
    return {"$ref": f"#/components/schemas/{prefix}"}


def _rebase(schema: JsonObject, place: str) -> JsonObject:
    """Copy a schema with its inner references pointing to another place."""
    return {key: _move(item, place, key) for key, item in schema.items()}


def _move(value: object, place: str, key: str = "") -> object:
    if isinstance(value, dict):
        # The mapping of a discriminator names schemas as references do.
        is_mapping = key == "mapping"
        return {
            name: _move(item, place, "$ref" if is_mapping else name) for name, item in value.items()
        }
    if isinstance(value, list):
        return [_move(item, place) for item in value]
    if key == "$ref" and isinstance(value, str):
        return value.replace("#/$defs/", place)
    return value
