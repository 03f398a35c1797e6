"""Typed values: checked when written, migrated when read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from holdfast.errors import StateUnreadable, UsageError
from holdfast.hooks import HookPayload
from holdfast.state import StateSchema
from holdfast.testing import check_migrations, memory_state


class Person(BaseModel):
    first: str
    last: str = ""


class Point(msgspec.Struct):
    x: int
    y: int = 0


@dataclass
class Plain:
    n: int


def people() -> StateSchema[Person]:
    schema = StateSchema("person", Person, version=3)

    @schema.migration(from_version=1)
    def split(old: Any) -> Any:
        first, _, last = old["name"].partition(" ")
        return {"given": first, "last": last}

    @schema.migration(from_version=2)
    def rename(old: Any) -> Any:
        return {"first": old["given"], "last": old["last"]}

    return schema


async def test_a_model_a_struct_and_a_dataclass_come_back_as_they_are() -> None:
    state = memory_state()
    for key, value in (("p", Person(first="Ada")), ("q", Point(x=1)), ("d", Plain(n=2))):
        await state.set(key, value, schema=type(value))
        assert await state.get(key, schema=type(value)) == value
    entry = await state.entry("p")
    assert entry is not None
    assert (entry.value, entry.schema, entry.schema_number) == (
        {"first": "Ada", "last": ""},
        "Person",
        1,
    )


@pytest.mark.parametrize(
    ("schema", "value"), [(Person, {"last": "x"}), (Point, {"x": "1"}), (Point, Point(x="a"))]
)
async def test_a_value_that_does_not_fit_is_not_written(schema: type, value: object) -> None:
    state = memory_state()
    with pytest.raises(UsageError):
        await state.set("k", value, schema=schema)
    assert await state.entry("k") is None


async def test_old_values_are_migrated_on_read_and_stay_as_they_are() -> None:
    state = memory_state()
    seen: list[HookPayload] = []
    state.environment.hooks.observe("state.migration", seen.append)
    old = StateSchema("person", dict)
    await state.set("k", {"name": "Ada Lovelace"}, schema=old)
    assert await state.get("k", schema=people()) == Person(first="Ada", last="Lovelace")
    assert [(one.from_version, one.to_version) for one in seen] == [(1, 3)]  # type: ignore[attr-defined]
    entry = await state.entry("k")
    assert entry is not None and entry.version == 1 and entry.schema_number == 1
    await state.update("k", lambda one: one.model_copy(update={"last": "King"}), schema=people())
    entry = await state.entry("k")
    assert entry is not None
    assert (entry.value, entry.schema_number) == ({"first": "Ada", "last": "King"}, 3)


async def test_what_cannot_be_read_says_so_and_is_left_alone() -> None:
    state = memory_state()
    await state.set("new", Point(x=1), schema=StateSchema("point", Point, version=2))
    with pytest.raises(StateUnreadable, match="newer"):
        await state.get("new", schema=StateSchema("point", Point))
    await state.set("old", {"x": 1}, schema=StateSchema("point", dict))
    with pytest.raises(StateUnreadable, match="no migration from version 1"):
        await state.get("old", schema=StateSchema("point", Point, version=2))
    with pytest.raises(StateUnreadable, match="was written as point"):
        await state.get("old", schema=Person)
    broken = StateSchema("point", Point, version=2, migrations={1: lambda old: old["nothing"]})
    with pytest.raises(StateUnreadable, match="KeyError"):
        await state.get("old", schema=broken)
    await state.set("plain", {"x": "text"})
    with pytest.raises(StateUnreadable):
        await state.get("plain", schema=Point)
    assert await state.get("plain") == {"x": "text"}


def test_a_schema_that_cannot_be_meant_is_refused() -> None:
    with pytest.raises(UsageError):
        StateSchema("", Point)
    with pytest.raises(UsageError):
        StateSchema("p", Point, version=0)
    with pytest.raises(UsageError):
        StateSchema("p", "Point")  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        StateSchema("p", Point, version=2, migrations={2: dict})
    schema = StateSchema("p", Point, version=2, migrations={1: dict})
    with pytest.raises(UsageError):
        schema.migration(from_version=1)


def test_migrations_are_proved_by_samples_of_every_version() -> None:
    samples = {
        1: {"name": "Ada Lovelace"},
        2: {"given": "Ada", "last": "Lovelace"},
        3: {"first": "Ada", "last": "Lovelace"},
    }
    made = check_migrations(people(), samples)
    assert set(made) == {1, 2, 3}
    assert made[1] == made[2] == made[3]
    with pytest.raises(UsageError, match="sample"):
        check_migrations(people(), {3: samples[3]})
    with pytest.raises(UsageError, match="no migration"):
        check_migrations(StateSchema("p", Point, version=3, migrations={1: dict}), {})
    with pytest.raises(StateUnreadable):
        check_migrations(people(), {**samples, 1: {"nom": "Ada"}})
