"""The expression language: what it is meant to do, and that nothing breaks it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ExpressionInvalid
from holdfast.orchestration.workflows.expressions import (
    evaluate,
    is_true,
    list_expressions,
    list_references,
    parse,
    render,
)

NAMES = {
    "inputs": {"n": 3, "text": "abc", "list": [1, "two", None], "flag": True, "empty": []},
    "steps": {"a": {"output": {"items": [{"id": 7}]}, "status": "completed", "error": ""}},
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("steps.a.output.items[0].id", 7),
        ("steps['a'].output.items[-1]['id']", 7),
        ("inputs.n + 1 - 5", -1),
        ("-inputs.n", -3),
        ("1 == 1.0", True),
        ("1 == true", False),
        ("'b' in inputs.text and not ('z' in inputs.text)", True),
        ("2 not in inputs.list", True),
        ("null in inputs.list", True),
        ("inputs.n >= 3 or inputs.gone", True),
        ("false and inputs.gone", False),
        ("default(inputs.gone.deeper, 'x')", "x"),
        ("len(inputs.list)", 3),
        ("join(inputs.list, '-')", "1-two-null"),
        ("upper(trim(' a '))", "A"),
        ("number('2.5') < 3", True),
        ("lines('a\\nb')", ["a", "b"]),
        ("[1, 'x', [true]]", [1, "x", [True]]),
        ('"it\\"s"', 'it"s'),
    ],
)
def test_an_expression_has_its_value(text: str, expected: object) -> None:
    assert evaluate(text, NAMES) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "1 +", "a b", "inputs.", "(1", "[1", "1 < 2 < 3", "f(1)", "__import__('os')",
        "inputs.__class__", "inputs.text.upper()", "inputs.n.real", "'a' + 'b'", "1 < 'a'",
        "inputs.list[99]", "inputs.list['x']", "len(3)", "len()", "1 if 2 else 3", "lambda: 1",
        "1 ** 9", "9999999999999999", "inputs[0]", "a = 1", "`x`", "'open", "not", "and",
    ],
)  # fmt: skip
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(ExpressionInvalid):
        evaluate(text, NAMES)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000 + "1",
        "not " * 800 + "1",
        "-" * 1500 + "1",
        "1" + "+1" * 900,
        "[" * 100,
        "x" * 9999,
    ],
)
def test_hostile_expressions_are_refused_cheaply(text: str) -> None:
    with pytest.raises(ExpressionInvalid):
        parse(text)


@given(st.text(max_size=200))
def test_any_text_is_a_value_or_refused(text: str) -> None:
    try:
        json.dumps(evaluate(text, NAMES))
    except ExpressionInvalid:
        return


@given(st.text(alphabet="()[]'\"\\$ {}.,+-<>=!&01a_not in or and len inputs", max_size=120))
def test_what_looks_like_an_expression_is_a_value_or_refused(text: str) -> None:
    for read in (lambda: evaluate(text, NAMES), lambda: render(text, NAMES)):
        try:
            read()
        except ExpressionInvalid:
            continue


@given(JSON)
def test_a_value_goes_through_a_template_as_it_is(value: object) -> None:
    assert render("${inputs.x}", {"inputs": {"x": value}}) == value
    assert render({"a": ["${inputs.x}"]}, {"inputs": {"x": value}}) == {"a": [value]}


@given(st.text(max_size=50), st.text(max_size=50))
def test_what_is_filled_in_is_never_read_again(value: str, around: str) -> None:
    plain = around.replace("$", "")
    hostile = "${inputs.secret}" + value
    names = {"inputs": {"x": hostile, "secret": "hidden"}}
    assert render(f"{plain}<${{inputs.x}}>", names) == f"{plain}<{hostile}>"


@given(st.text(max_size=60))
def test_text_without_expressions_stays_and_escapes_are_undone(text: str) -> None:
    plain = text.replace("$", "")
    assert render(plain, {}) == plain
    assert render(plain + "$${x}", {}) == plain + "${x}"
    assert list_expressions(plain) == []


@given(JSON, JSON)
def test_equality_is_that_of_json(one: object, other: object) -> None:
    names = {"a": one, "b": other}
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert evaluate("a == a", names)
    if same:
        assert evaluate("a == b", names)
    assert evaluate("a == b", names) != evaluate("a != b", names)


@given(st.booleans(), st.booleans(), st.booleans())
def test_and_binds_closer_than_or(a: bool, b: bool, c: bool) -> None:
    names = {"a": a, "b": b, "c": c}
    assert is_true("a or b and not c", names) == (a or (b and not c))
    assert is_true("${(a or b) and c}", names) == ((a or b) and c)


def test_references_name_what_is_read() -> None:
    found = list_references(
        parse("steps.a.output[inputs.n].x + len(loop.item) + [steps.b.status][0]")
    )
    assert (
        found
        == [
            ("steps", "a", "output"),
            ("inputs", "n"),
            ("loop", "item"),
            ("steps", "b", "status"),
        ]
        or ("steps", "b", "status") in found
    )
