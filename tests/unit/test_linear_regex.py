"""Expressions of strangers: the same matches as Python's where both know them, and bounded."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.linear_regex import MAX_SIZE, compile_linear

ATOMS = st.sampled_from(["a", "b", ".", r"\w", r"\d", "[ab]", "[^a]", r"\.", "(ab)", "(?:a|b)"])
COUNTS = st.sampled_from(["", "*", "+", "?", "{2}", "{1,3}", "{2,}", "*?"])


@given(
    st.lists(st.tuples(ATOMS, COUNTS), min_size=1, max_size=6),
    st.text(alphabet="ab1. ü", max_size=12),
)
def test_same_matches_as_the_standard_library(parts: list[tuple[str, str]], text: str) -> None:
    source = "".join(atom + count for atom, count in parts)
    assert compile_linear(source).matches(text) == bool(re.search(source, text))


@pytest.mark.parametrize(
    ("source", "size"),
    [
        (r"\d{4}-\d{2}", 7),
        ("(a{100}){100}", 10_000),
        ("((a{10}){10}){10}", 1_000),
        (r"[]a{5}]{3}", 3),
        ("[[a]foo]{7}", 7),
        (r"\p{L}{5}", 5),
        (r"\x{61}{9}", 9),
        ("(a|b){3}", 6),
        ("x{2,}", 3),
        ("a{10}{10}", 100),
        (r"\{3\}", 3),
    ],
)
def test_size_follows_counted_repetitions(source: str, size: int) -> None:
    assert compile_linear(source).size == size


@pytest.mark.parametrize(
    "source",
    ["(?=a)", r"(a)\1", "(", "a{", "[", "(?x)a b", "(?ix:a)", "a" * 2_001, "\\"]
    + [f"a{{{MAX_SIZE + 1}}}", "(a{200}){200}", r"(\w{50}){300}", "((((a{99}){99}){99}){99})"],
)
def test_what_cannot_be_matched_safely_is_refused(source: str) -> None:
    with pytest.raises(UsageError) as caught:
        compile_linear(source)
    assert caught.value.code == "usage.invalid" and str(caught.value)


@given(st.text(alphabet="ab(){}[]|*+?\\^$.,01x:-<>pwé", max_size=40))
def test_any_text_is_a_pattern_or_refused(source: str) -> None:
    try:
        compile_linear(source).matches("abab01")
    except UsageError:
        return


def test_case_is_ignored_where_asked() -> None:
    assert compile_linear("straße", is_case_ignored=True).matches("STRAßE")
    assert not compile_linear("straße").matches("STRAßE")
