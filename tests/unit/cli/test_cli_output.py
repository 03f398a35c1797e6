from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.frame import Invocation
from holdfast.cli.output import emit, make_printable, say


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int


class Fact(msgspec.Struct):
    kind: str


ROWS: list[Mapping[str, object]] = [
    {"name": "a", "size": 1, "more": "hidden in text"},
    {"name": "bcd", "size": None, "more": ["x", Path("/y")]},
]


def printed(output: str, result: object, columns: tuple[str, ...] = ()) -> str:
    @click.command()
    def show() -> None:
        emit(result, columns=columns)  # type: ignore[arg-type]
        say("a sentence")

    return CliRunner().invoke(show, obj=Invocation(output=output), catch_exceptions=False).output


def test_rows_are_a_plain_aligned_table_when_piped() -> None:
    assert printed("text", ROWS, ("name", "size")).splitlines() == [
        "NAME  SIZE",
        "a     1",
        "bcd   -",
        "a sentence",
    ]


def test_long_cells_are_never_cut_when_piped() -> None:
    assert "x" * 500 in printed("text", [{"name": "x" * 500}])


def test_an_object_is_printed_as_keys_and_values() -> None:
    text = printed("text", {"on": True, "off": False, "colour": Colour.RED, "deep": {"a": 1}})
    assert text.splitlines()[:4] == ["on      yes", "off     no", "colour  red", 'deep    {"a": 1}']


def test_a_cell_of_several_lines_stays_one_line_when_piped() -> None:
    assert "a b c" in printed("text", [{"name": "a\nb\tc"}])


def test_no_rows_are_only_a_header() -> None:
    assert printed("text", [], ("name",)) == "NAME\na sentence\n"
    assert json.loads(printed("json", [])) == []


def test_json_has_all_keys_and_no_sentences() -> None:
    assert json.loads(printed("json", ROWS, ("name",))) == [
        {"name": "a", "size": 1, "more": "hidden in text"},
        {"name": "bcd", "size": None, "more": ["x", "/y"]},
    ]


def test_stream_json_is_one_line_per_row() -> None:
    lines = printed("stream-json", iter(ROWS)).splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["a", "bcd"]
    assert json.loads(printed("stream-json", {"a": 1})) == {"a": 1}


def test_our_own_types_become_json() -> None:
    value = {"p": Point(1), "f": Fact("k"), "c": Colour.RED, "s": {"b", "a"}, "t": (1,)}
    assert json.loads(printed("json", value)) == {
        "p": {"x": 1},
        "f": {"kind": "k"},
        "c": "red",
        "s": ["a", "b"],
        "t": [1],
    }


@pytest.mark.parametrize("text", ["\x1b[2J", "\x9b31m", "\r", "\x00", "\u202e", "\u2066", "\x7f"])
def test_text_cannot_command_the_terminal(text: str) -> None:
    assert text not in make_printable(f"a{text}b")
    assert text not in printed("text", [{"name": f"a{text}b"}])


@given(st.text())
def test_printable_text_has_no_controls_and_keeps_the_rest(text: str) -> None:
    shown = make_printable(text)
    assert all(char in "\t\n" or ord(char) >= 32 for char in shown)
    assert all(make_printable(char) == char for char in text if char.isprintable())
    assert shown == "".join(make_printable(char) for char in text)
    assert make_printable(shown) == shown
