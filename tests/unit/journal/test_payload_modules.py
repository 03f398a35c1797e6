"""Payloads of rooms that are loaded when an event of theirs is met."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import SchemaTooNew
from holdfast.journal import declare_payload_modules, decode_payload, list_known_kinds

MODULE = """
from holdfast.journal import Payload, payload


@payload("{kind}")
class {name}(Payload, frozen=True, kw_only=True):
    text: str = ""
"""


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"room_{abs(hash(str(tmp_path)))}"
    kind = f"{name}.told"
    (tmp_path / f"{name}.py").write_text(MODULE.format(kind=kind, name=name.title()))
    monkeypatch.syspath_prepend(tmp_path)
    declare_payload_modules(name)
    return kind


def test_an_event_of_a_room_that_is_not_loaded_is_read(room: str) -> None:
    found = decode_payload(room, 1, b'{"text": "hello"}')
    assert getattr(found, "text", "") == "hello"


def test_the_kinds_of_declared_modules_are_known(room: str) -> None:
    assert room in list_known_kinds()


def test_a_kind_that_no_module_declares_is_refused(room: str) -> None:
    with pytest.raises(SchemaTooNew):
        decode_payload("nobody.said", 1, b"{}")


def test_a_module_whose_import_failed_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"late_{abs(hash(str(tmp_path)))}"
    body = MODULE.format(kind=f"{name}.told", name=name.title())
    asks = f"import pathlib\npathlib.Path({str(tmp_path / 'ready')!r}).read_text()\n"
    (tmp_path / f"{name}.py").write_text(asks + body)
    monkeypatch.syspath_prepend(tmp_path)
    declare_payload_modules(name)
    with pytest.raises(FileNotFoundError):
        list_known_kinds()
    (tmp_path / "ready").write_text("")
    assert decode_payload(f"{name}.told", 1, b"{}").kind == f"{name}.told"
