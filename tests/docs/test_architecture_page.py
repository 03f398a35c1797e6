"""What the page on the architecture says is there: rooms, files, functions."""

from __future__ import annotations

import ast
import configparser
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/holdfast"
PAGE = (ROOT / "docs/concepts/architecture.md").read_text(encoding="utf-8")
ROOMS, WAY = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[:2]
STATION = re.compile(r"^ *(?P<file>[\w/]+\.py) +(?P<name>[\w.]+)", re.MULTILINE)
STATIONS = [(found["file"], found["name"]) for found in STATION.finditer(WAY)]


def defined(file: str) -> set[str]:
    """Return the functions of a file, and the methods of its classes as `Class.method`."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    names: set[str] = set()
    for node in ast.parse((SOURCE / file).read_text(encoding="utf-8")).body:
        if isinstance(node, kinds):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, kinds)}
    return names


def test_the_picture_has_every_room_in_the_order_of_the_contract() -> None:
    contract = configparser.ConfigParser()
    contract.read(ROOT / "importlinter.ini")
    layers = contract["importlinter:contract:storeys"]["layers"].strip().splitlines()
    is_there = {path.stem for path in SOURCE.iterdir()}
    wanted = [
        room for layer in layers for room in sorted(re.findall(r"\w+", layer)) if room in is_there
    ]
    drawn = [
        room
        for line in ROOMS.splitlines()
        for room in sorted(re.match(r"\S* +((?:\w+ )+)", line)[1].split())  # type: ignore[index]
    ]
    assert drawn == wanted


@pytest.mark.parametrize(("file", "name"), STATIONS, ids=[f"{f}:{n}" for f, n in STATIONS])
def test_a_station_on_the_way_of_a_turn_is_where_the_picture_says(file: str, name: str) -> None:
    assert name in defined(file)


def test_the_way_of_a_turn_leads_from_the_client_to_the_journal() -> None:
    assert len(STATIONS) >= 20
    assert STATIONS[0][0].startswith("client/")
    assert any(file.startswith("journal/") for file, _ in STATIONS)


def test_files_that_the_page_names_are_there() -> None:
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", PAGE))
    base = {name: ROOT if name.startswith("benchmarks/") else SOURCE for name in named}
    assert [name for name in sorted(named) if not (base[name] / name).is_file()] == []
