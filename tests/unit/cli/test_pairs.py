"""KEY=VALUE becomes what the schema of an argument wants, or is refused."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.pairs import read_pairs
from holdfast.errors import UsageError
from holdfast.tools import tool


class Colour(Enum):
    RED = "red"


@dataclass
class Place:
    x: int


@tool(effect="read")
async def draw(  # noqa: PLR0913 - one of each
    text: str,
    size: int = 1,
    scale: float | None = None,
    bold: bool = False,
    colour: Colour = Colour.RED,
    level: Literal[1, 2] = 1,
    names: list[str] | None = None,
    sizes: tuple[int, ...] = (),
    places: list[Place] | None = None,
    either: str | list[str] = "",
) -> str:
    """Draw."""
    return text


@pytest.mark.parametrize(
    ("pairs", "wanted"),
    [
        (["text=hello world"], {"text": "hello world"}),
        (["text=a=b"], {"text": "a=b"}),
        (["text="], {"text": ""}),
        (["text=3"], {"text": "3"}),
        (["size=3"], {"size": 3}),
        (["size=-3"], {"size": -3}),
        (["scale=0.5"], {"scale": 0.5}),
        (["scale=null"], {"scale": None}),
        (["bold=true"], {"bold": True}),
        (["colour=red"], {"colour": "red"}),
        (["level=2"], {"level": 2}),
        (["names=a"], {"names": ["a"]}),
        (["names=a", "names=3"], {"names": ["a", "3"]}),
        (['names=["a", "b"]'], {"names": ["a", "b"]}),
        (["sizes=1", "size=2", "sizes=3"], {"sizes": [1, 3], "size": 2}),
        (['places={"x": 1}'], {"places": [{"x": 1}]}),
        (["either=[a]"], {"either": "[a]"}),
        (["either=a", "either=b"], {"either": ["a", "b"]}),
    ],
)
def test_each_value_is_read_as_its_argument_wants_it(
    pairs: list[str], wanted: dict[str, object]
) -> None:
    assert read_pairs(pairs, draw.parameters) == wanted


@pytest.mark.parametrize(
    "pairs",
    [["text"], ["=x"], ["txt=x"], ["size=three"], ["size=NaN"], ["text=a", "text=b"], ["sizes=x"]],
)
def test_what_cannot_be_read_is_refused(pairs: list[str]) -> None:
    with pytest.raises(UsageError):
        read_pairs(pairs, draw.parameters)


def test_an_argument_without_a_type_takes_json_or_else_text() -> None:
    free = {"type": "object", "properties": {"a": {}, "b": {"$ref": "#/$defs/gone"}}}
    assert read_pairs(["a=1", "b=x"], free) == {"a": 1, "b": "x"}
    assert read_pairs(["new=[1]"], {"type": "object"}) == {"new": [1]}
    assert read_pairs(["new=1"], {**free, "additionalProperties": True}) == {"new": 1}
    with pytest.raises(UsageError):
        read_pairs(["new=1"], free)
    with pytest.raises(UsageError):
        read_pairs(["new=1"], {"type": "object", "additionalProperties": False})


def test_a_reference_that_leads_to_itself_ends() -> None:
    turning = {"properties": {"a": {"$ref": "#/properties/a"}}}
    assert read_pairs(["a=1"], turning) == {"a": 1}


@given(st.lists(st.text(max_size=20), max_size=5))
def test_no_words_make_it_fail_otherwise(words: list[str]) -> None:
    try:
        read = read_pairs(words, draw.parameters)
    except UsageError:
        return
    assert read.keys() <= draw.parameters["properties"].keys()
