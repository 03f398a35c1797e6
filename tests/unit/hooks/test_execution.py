"""What an execution context holds, and what its relatives see of it."""

from __future__ import annotations

from typing import Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import NotFound, UsageError
from holdfast.hooks import ExecutionContext

pytestmark = pytest.mark.filterwarnings("ignore:The tool .* has no docstring")


class Clock(Protocol):
    def tick(self) -> int: ...


class Wall:
    def tick(self) -> int:
        return 7


def test_services_are_found_by_the_type_they_were_provided_under() -> None:
    context = ExecutionContext()
    context.provide(Clock, Wall())  # type: ignore[type-abstract]
    assert context.get(Clock).tick() == 7  # type: ignore[type-abstract]
    assert context.has(Clock)
    with pytest.raises(NotFound):
        context.get(Wall)


def test_values_are_typed_and_copied() -> None:
    data = ExecutionContext().data
    tags = ["a"]
    data.set("tags", tags)
    tags.append("b")
    data.get("tags", list[str]).append("c")
    assert data.get("tags", list[str]) == ["a"]
    with pytest.raises(UsageError):
        data.get("tags", int)
    with pytest.raises(NotFound):
        data.get("missing", int)
    assert data.get("missing", int, 3) == 3
    with pytest.raises(UsageError):
        data.set("thing", object())


def test_unknown_id_is_refused() -> None:
    with pytest.raises(UsageError):
        ExecutionContext().inherit(tenant="x")


# A model of four relatives: what each sees is computed twice, by hand and by the context.
KEYS = st.sampled_from("abc")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["parent", "child"]),
        st.sampled_from(["set", "delete"]),
        KEYS,
        st.integers(0, 9),
    ),
    max_size=12,
)


def apply(context: ExecutionContext, step: str, key: str, value: int) -> None:
    if step == "set":
        context.data.set(key, value)
    else:
        context.data.delete(key)


def fold(start: dict[str, int], steps) -> dict[str, int]:
    seen = dict(start)
    for step, key, value in steps:
        if step == "set":
            seen[key] = value
        else:
            seen.pop(key, None)
    return seen


@given(st.sampled_from(["inherit", "isolate", "copy", "share"]), STEPS, STEPS)
def test_relatives_see_exactly_what_their_relation_says(way: str, before, after) -> None:
    parent = ExecutionContext(user_id="u", session_id="s")
    mine = [step[1:] for step in before]
    for step in mine:
        apply(parent, *step)
    child = getattr(parent, way)(run_id="r")
    parents = [step[1:] for step in after if step[0] == "parent"]
    childs = [step[1:] for step in after if step[0] == "child"]
    for who, *step in after:
        apply(parent if who == "parent" else child, *step)

    at_birth = fold({}, mine)
    alone = fold(at_birth, parents)
    own_keys = {key for _, key, _ in childs}
    expected = {
        "isolate": (alone, fold({}, childs)),
        "copy": (alone, fold(at_birth, childs)),
        "share": (fold(at_birth, [s[1:] for s in after]),) * 2,
        "inherit": (
            alone,
            {k: v for k, v in alone.items() if k not in own_keys} | fold({}, childs),
        ),
    }[way]
    assert (parent.data.to_dict(), child.data.to_dict()) == expected
    assert list(child.data) == sorted(expected[1])
    assert len(child.data) == len(expected[1])
    assert child.ids == {"conversation_id": "", "user_id": "u", "session_id": "s", "run_id": "r"}
    assert parent.run_id == ""


@pytest.mark.parametrize(
    ("way", "sees_old", "sees_later", "is_seen"),
    [
        ("inherit", True, True, False),
        ("isolate", False, False, False),
        ("copy", True, False, False),
        ("share", True, True, True),
    ],
)
def test_services_follow_the_same_relations(
    way: str, sees_old: bool, sees_later: bool, is_seen: bool
) -> None:
    parent = ExecutionContext()
    parent.provide(int, 1)
    grandchild = getattr(getattr(parent, way)(), way)()
    parent.provide(str, "later")
    grandchild.provide(bytes, b"mine")
    assert grandchild.has(int) is sees_old
    assert grandchild.has(str) is sees_later
    assert parent.has(bytes) is is_seen
