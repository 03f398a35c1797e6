"""Foreign schemas are made sound, and checking against them cannot take for ever."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.mcp.schema import UnusableSchema, clean_schema, make_checkable
from holdfast.providers.json_schema import list_problems


@pytest.mark.parametrize(
    "schema",
    [None, [], "object", {"type": "string"}, {"type": "object", "x": "y" * 70_000}],
)
def test_what_is_no_schema_of_an_object_is_unusable(schema: Any) -> None:
    with pytest.raises(UnusableSchema):
        clean_schema(schema)


def test_deep_schemas_are_unusable() -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(100):
        schema = {"type": "object", "properties": {"a": schema}}
    with pytest.raises(UnusableSchema):
        clean_schema(schema)


def test_malformed_parts_are_dropped_and_the_rest_is_kept() -> None:
    found = clean_schema(
        {
            "properties": {
                "a": {"type": "string", "description": "A\u202e."},
                "b": True,
                "c": {"type": "strong", "enum": [], "anyOf": "x", "items": 3},
                "d": ["no", "schema"],
            },
            "required": ["a", 3, None],
            "additionalProperties": False,
        }
    )
    assert found == {
        "type": "object",
        "properties": {"a": {"type": "string", "description": "A."}, "b": {}, "c": {}, "d": {}},
        "required": ["a"],
        "additionalProperties": False,
    }


def test_plain_rules_are_checked() -> None:
    schema = make_checkable(
        clean_schema(
            {
                "properties": {
                    "n": {"type": "integer", "minimum": 1},
                    "l": {"items": {"enum": [1]}},
                },
                "required": ["n"],
                "additionalProperties": False,
            }
        )
    )
    assert list_problems({"n": 1, "l": [1]}, schema) == []
    for wrong in ({}, {"n": 0}, {"n": "1"}, {"n": 1, "l": [2]}, {"n": 1, "x": 1}):
        assert list_problems(wrong, schema)


def test_what_could_take_for_ever_is_left_to_the_server() -> None:
    endless = {"anyOf": [{"$ref": "#"}, {"$ref": "#"}], "not": {"$ref": "#"}}
    schema = make_checkable(
        clean_schema(
            {
                **endless,
                "properties": {
                    "a": {"type": "string", "pattern": "(a+)+$"},
                    "b": {"multipleOf": 1e-320},
                    "c": endless,
                },
            }
        )
    )
    assert list_problems({"a": "a" * 900 + "!", "b": 1.5, "c": {"c": 1}}, schema) == []


def test_closed_object_stays_open_where_other_keywords_add_fields() -> None:
    schema = {"patternProperties": {"^x": {}}, "additionalProperties": False}
    assert list_problems({"x1": 1}, make_checkable(clean_schema(schema))) == []
