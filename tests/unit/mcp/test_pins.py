"""What was accepted of a server is written down, and whatever differs is noticed."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from holdfast.errors import StorageDamaged, StorageError
from holdfast.mcp.definitions import RemoteTool
from holdfast.mcp.pins import FILE, PinBook


def remote(name: str, digest: str = "1") -> RemoteTool:
    return RemoteTool(
        endpoint="far",
        remote=name,
        name=f"mcp__far__{name}",
        description="",
        schema={},
        effect="unsafe",
        digest=digest,
    )


def test_first_offer_is_accepted_and_later_changes_are_not(tmp_path: Path) -> None:
    book = PinBook(tmp_path / "state")
    assert book.judge("far", [remote("a")]) == {"a": "accepted"}
    later = [remote("a", "2"), remote("b")]
    assert PinBook(tmp_path / "state").judge("far", later) == {"a": "changed", "b": "new"}
    assert book.judge("far", [remote("a")]) == {"a": "accepted"}
    assert book.judge("near", [remote("b")]) == {"b": "accepted"}


def test_empty_first_offer_accepts_nothing_later(tmp_path: Path) -> None:
    book = PinBook(tmp_path)
    assert book.judge("far", []) == {}
    assert book.judge("far", [remote("a")]) == {"a": "new"}


def test_accepting_one_tool_says_nothing_about_others(tmp_path: Path) -> None:
    book = PinBook(tmp_path)
    book.judge("far", [remote("a")])
    book.accept("far", [remote("b")])
    assert book.judge("far", [remote("a", "2"), remote("b"), remote("c")]) == {
        "a": "changed",
        "b": "accepted",
        "c": "new",
    }
    book.accept("far", [remote("c")], is_whole=True)
    assert book.judge("far", [remote("a"), remote("c")]) == {"a": "new", "c": "accepted"}


def test_forgotten_server_starts_anew(tmp_path: Path) -> None:
    book = PinBook(tmp_path)
    book.judge("far", [remote("a")])
    book.forget("far")
    book.forget("far")
    assert book.judge("far", [remote("a", "2")]) == {"a": "accepted"}


def test_file_is_private_and_a_broken_one_accepts_nothing(tmp_path: Path) -> None:
    book = PinBook(tmp_path)
    book.judge("far", [remote("a")])
    file = tmp_path / FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text("[]")
    with pytest.raises(StorageDamaged):
        book.judge("far", [remote("a")])
    file.unlink()
    file.mkdir()
    with pytest.raises(StorageError):
        book.judge("far", [remote("a")])
