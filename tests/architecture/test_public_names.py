"""Public names change on purpose only."""

from __future__ import annotations

import difflib
import importlib.util
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location(
    "public_names", Path(__file__).with_name("public_names.py")
)
assert _spec and _spec.loader
public_names = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(public_names)


def test_public_names_are_those_of_the_snapshot() -> None:
    before = public_names.SNAPSHOT.read_text(encoding="utf-8").splitlines()
    now = public_names.render().splitlines()
    changes = [line for line in difflib.unified_diff(before, now, lineterm="", n=0)][2:]
    if changes:
        pytest.fail(
            "Public names changed. If that is meant, run ./scripts/check --update-names\n"
            + "\n".join(line for line in changes if not line.startswith("@@")),
            pytrace=False,
        )


@pytest.mark.parametrize("room", public_names.rooms(), ids=lambda room: room.__name__)
def test_every_name_in_all_exists_and_is_listed_once(room) -> None:
    listed = getattr(room, "__all__", [])
    assert len(listed) == len(set(listed))
    assert [name for name in listed if not hasattr(room, name)] == []


def test_the_front_door_has_at_most_forty_names() -> None:
    assert len(public_names.rooms()[0].__all__) <= 40
