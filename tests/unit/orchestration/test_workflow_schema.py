"""The part of JSON Schema that is checked is checked; the rest is refused."""

from __future__ import annotations

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.orchestration.workflows.schema import check_schema, list_mistakes


@pytest.mark.parametrize(
    "schema",
    [
        3,
        {"type": "int"},
        {"type": ["string", 3]},
        {"pattern": "x"},
        {"properties": []},
        {"properties": {"a": {"type": "x"}}},
        {"items": 3},
        {"required": "a"},
        {"enum": 3},
        {"minimum": "3"},
        {"maxItems": -1},
    ],
)
def test_what_would_not_be_checked_is_refused(schema: object) -> None:
    assert check_schema(schema)


def test_a_schema_that_is_too_deep_is_refused() -> None:
    schema: dict[str, object] = {}
    for _ in range(50):
        schema = {"items": schema}
    assert check_schema(schema)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "a", "abc", "abcdef"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)
KINDS = st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "null"])
SMALL = st.integers(0, 3)
SCHEMAS = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "type": KINDS | st.lists(KINDS, min_size=1, max_size=2, unique=True),
            "minimum": st.integers(-3, 3),
            "maximum": st.integers(-3, 3),
            "minLength": SMALL,
            "maxLength": SMALL,
            "minItems": SMALL,
            "maxItems": SMALL,
            "required": st.lists(st.sampled_from("abc"), max_size=2, unique=True),
        },
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "items": inner,
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
            "additionalProperties": st.booleans() | inner,
            "enum": st.lists(VALUES, min_size=1, max_size=3),
        },
    ),
    max_leaves=4,
)


@given(SCHEMAS, VALUES)
def test_the_check_agrees_with_the_standard(schema: dict[str, object], value: object) -> None:
    assert check_schema(schema) == []
    validator = jsonschema.Draft202012Validator(schema)
    assert (list_mistakes(value, schema) == []) == validator.is_valid(value)
