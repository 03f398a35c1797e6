from __future__ import annotations

from typing import Any

import pytest

from holdfast.providers.json_schema import MAX_PROBLEMS, fits, list_problems

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 5, "pattern": "^[a-z]+$"},
        "age": {"type": "integer", "minimum": 0, "exclusiveMaximum": 150, "multipleOf": 1},
        "pets": {"type": "array", "items": {"$ref": "#/$defs/pet"}, "maxItems": 2, "minItems": 1,
                 "uniqueItems": True},
        "kind": {"enum": ["a", 1, None]},
        "one": {"const": True},
        "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "only": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
        "both": {"allOf": [{"type": "string"}, {"minLength": 2}]},
        "never": False,
        "unlike": {"not": {"type": "string"}},
        "pair": {"prefixItems": [{"type": "string"}, {"type": "integer"}]},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 1},
    },
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"pet": {"type": "string"}, "self": {"$ref": "#/$defs/self"}},
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [{}, {"age": 149}, {"age": 3.0}, {"pets": ["x", "y"]}, {"kind": None}, {"one": True},
     {"either": None}, {"only": 1.5}, {"both": "ab"}, {"unlike": 1}, {"pair": ["a", 1, "z"]},
     {"map": {"x": 1}}],
)  # fmt: skip
def test_what_fits_has_no_problems(change: dict[str, Any]) -> None:
    assert list_problems({"name": "ann", **change}, PERSON) == []


@pytest.mark.parametrize(
    ("change", "place"),
    [({"name": ""}, "name"), ({"name": "toolong"}, "name"), ({"name": "A"}, "name"),
     ({"name": 3}, "name"), ({"age": True}, "age"), ({"age": -1}, "age"), ({"age": 150}, "age"),
     ({"age": 1.5}, "age"), ({"pets": []}, "pets"), ({"pets": ["x", 3]}, "pets[1]"),
     ({"pets": ["x", "x"]}, "pets"), ({"pets": ["x", "y", "z"]}, "pets"), ({"kind": True}, "kind"),
     ({"one": 1}, "one"), ({"either": 3}, "either"), ({"only": 1}, "only"), ({"both": "a"}, "both"),
     ({"never": 1}, "never"), ({"unlike": "x"}, "unlike"), ({"pair": [1]}, "pair[0]"),
     ({"map": {"x": "y"}}, "map.x"), ({"map": {"x": 1, "y": 2}}, "map"), ({"other": 1}, "other")],
)  # fmt: skip
def test_what_does_not_fit_is_told_with_its_place(change: dict[str, Any], place: str) -> None:
    found = list_problems({"name": "ann", **change}, PERSON)
    assert found
    assert found[0].startswith(f"{place}:")


def test_a_missing_field_and_a_wrong_whole_are_told() -> None:
    assert list_problems({}, PERSON) == ["name: is missing"]
    assert list_problems([], PERSON) == ["the value: must be object"]


def test_circles_and_broken_references_end() -> None:
    assert fits(1, {"$ref": "#/$defs/self", "$defs": {"self": {"$ref": "#/$defs/self"}}})
    assert fits(1, {"$ref": "https://example.invalid/schema"})
    deep: Any = []
    for _ in range(100):
        deep = [deep]
    nested = {"$defs": {"n": {"items": {"$ref": "#/$defs/n"}}}, "$ref": "#/$defs/n"}
    assert "nested too deeply" in list_problems(deep, nested)[0]


def test_the_list_of_problems_is_bounded() -> None:
    schema = {"type": "array", "items": {"type": "string"}}
    assert len(list_problems(list(range(1000)), schema)) == MAX_PROBLEMS


def test_a_broken_pattern_checks_nothing() -> None:
    assert fits("x", {"type": "string", "pattern": "("})


def test_no_pattern_takes_longer_than_the_text_is_long() -> None:
    schema = {"type": "string", "pattern": "^(a+)+$"}
    assert fits("a" * 900, schema)
    assert list_problems("a" * 900 + "!", schema) == ["the value: must match ^(a+)+$"]


def test_what_only_a_slow_engine_could_match_is_not_checked() -> None:
    assert fits("x", {"type": "string", "pattern": "^(?!x)"})


AGAIN = {"$ref": "#/$defs/both"}
HOSTILE: dict[str, tuple[Any, Any]] = {
    "alternatives": (1, {"$defs": {"both": {"anyOf": [AGAIN, AGAIN]}}, **AGAIN}),
    "long choices": (
        1,
        {"$defs": {"both": {"enum": [*range(9, 9_000)], "anyOf": [AGAIN, AGAIN]}}, **AGAIN},
    ),
    "long requirements": (
        {},
        {"$defs": {"both": {"required": ["x"] * 9_000, "anyOf": [AGAIN, AGAIN]}}, **AGAIN},
    ),
    "large expressions": (
        "a" * 900,
        {"allOf": [{"pattern": rf"[01]*1[01]{{{9_000 + n}}}|a"} for n in range(300)]},
    ),
    "wide expressions": ("a", {"allOf": [{"pattern": rf"\w{{60}}{n}|a"} for n in range(300)]}),
    "refused expressions": ("a", {"allOf": [{"pattern": rf"\w{{999}}{n}"} for n in range(300)]}),
    "equal items": (
        [[1, 2]] * 3,
        {"$defs": {"both": {"uniqueItems": True, "anyOf": [AGAIN, AGAIN]}}, **AGAIN},
    ),
    "long hops": (
        1,
        {
            "$defs": {"both": {f"k{n}": n for n in range(9_000)} | {"anyOf": [AGAIN, AGAIN]}},
            **AGAIN,
        },
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_no_schema_keeps_us_busy(case: str) -> None:
    value, schema = HOSTILE[case]
    # What it costs is counted in steps; without the count, these took from 4 s up to minutes.
    (problem,) = list_problems(value, schema)
    assert problem.startswith("the value: cannot be checked within")


def test_what_a_value_may_cost_grows_with_it() -> None:
    row = {"type": "object", "properties": {"id": {"type": "integer"}, "tag": {"enum": ["a", "b"]}}}
    rows = [{"id": n, "tag": "ab"[n % 2]} for n in range(30_000)]
    assert fits(rows, {"type": "array", "items": {"anyOf": [{"type": "null"}, row]}})
