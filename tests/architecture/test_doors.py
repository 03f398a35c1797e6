"""Who needs something of a room takes it at the room's door; what people read names only that."""

from __future__ import annotations

import doors
import pytest

KNOWN_BETWEEN_ROOMS, KNOWN_IN_DOCS = doors.known()
HINT = "python tests/architecture/doors.py --update takes them off the list"


def test_no_room_goes_around_the_door_of_another_in_a_new_place() -> None:
    new = doors.around_doors() - KNOWN_BETWEEN_ROOMS
    assert sorted(new) == [], "import from the room, and list the name in its __all__"


def test_docs_and_examples_import_no_more_names_that_are_not_public() -> None:
    new = doors.not_public() - KNOWN_IN_DOCS
    assert sorted(new) == [], "import from a room's __all__, or make the name public"


def test_the_lists_of_exceptions_hold_nothing_that_is_mended() -> None:
    mended = KNOWN_BETWEEN_ROOMS - doors.around_doors(), KNOWN_IN_DOCS - doors.not_public()
    assert mended == (set(), set()), HINT


@pytest.mark.parametrize(
    ("module", "is_door"),
    [
        ("holdfast", True),
        ("holdfast.errors", True),
        ("holdfast.tools", True),
        ("holdfast.tools.gate", False),
        ("holdfast.tools.builtin", False),
        ("holdfast.orchestration.workflows", True),
        ("holdfast.orchestration.workflows.engine", False),
        ("holdfast.operations.sessions", True),
    ],
)
def test_a_door_is_a_room_or_a_room_within_a_room(module: str, is_door: bool) -> None:
    assert doors.is_door(module) is is_door


@pytest.mark.parametrize(
    ("line", "is_public"),
    [
        (("holdfast", "Agent"), True),
        (("holdfast", "errors"), True),
        (("holdfast", "Session"), False),
        (("holdfast.errors", "NotFound"), True),
        (("holdfast.tools", "ToolContext"), True),
        (("holdfast.tools", "invoke"), False),
        (("holdfast.tools.gate", "AutoConfirm"), False),
        (("holdfast.orchestration.loop", "LoopOptions"), True),
    ],
)
def test_a_name_is_public_where_a_room_lists_it(line: tuple[str, str], is_public: bool) -> None:
    assert doors.is_public(*line) is is_public


def test_imports_are_found_wherever_they_stand() -> None:
    text = "if x:\n from holdfast.a.b import C, d\ndef f():\n import holdfast.e.g\nimport other"
    found = [("holdfast.a.b", "C"), ("holdfast.a.b", "d"), ("holdfast.e.g", "")]
    assert sorted(doors.imports(text)) == sorted(found)
