"""Merging: both sides' changes stay."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.state.conflicts import is_same, merge

objects = st.recursive(
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 2) | st.booleans(), max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner | st.integers(0, 2), max_size=3),
    max_leaves=6,
)


def test_changes_of_different_fields_are_joined() -> None:
    base = {"a": 1, "b": 2, "gone": 3, "deep": {"x": 1, "y": 1}}
    theirs = {"a": 9, "b": 2, "gone": 3, "deep": {"x": 2, "y": 1}}
    mine = {"a": 1, "b": 2, "new": 4, "deep": {"x": 1, "y": 2}}
    assert merge(base, theirs, mine) == {"a": 9, "b": 2, "new": 4, "deep": {"x": 2, "y": 2}}


def test_where_both_changed_the_same_the_later_one_holds() -> None:
    assert merge({"a": 1}, {"a": 2}, {"a": 3}) == {"a": 3}
    assert merge({"a": 1}, {"a": 2}, {}) == {}
    assert merge({"a": 1}, {}, {"a": 3}) == {"a": 3}


def test_without_a_base_nothing_is_lost() -> None:
    assert merge(None, {"a": 1, "d": {"x": 1}}, {"b": 2, "d": {"y": 1}}) == {
        "a": 1,
        "b": 2,
        "d": {"x": 1, "y": 1},
    }


def test_true_is_not_one() -> None:
    assert not is_same(True, 1)
    assert merge({"a": 1}, {"a": True}, {"a": 1}) == {"a": True}


@given(objects, objects, objects)
def test_who_changed_nothing_does_not_matter(
    base: dict[str, Any], other: dict[str, Any], mine: dict[str, Any]
) -> None:
    assert is_same(merge(base, base, mine), mine)
    assert is_same(merge(base, other, base), other)
    assert is_same(merge(base, mine, mine), mine)
