"""Changes of a workspace are found without git, once each, and within bounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.orchestration.loop import changes
from holdfast.orchestration.loop.changes import Snapshot, list_deltas, merge_deltas, take_snapshot
from holdfast.tools import Workspace


@pytest.fixture
def place(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    root.mkdir()
    (root / "kept.txt").write_text("kept\n")
    (root / "changed.txt").write_text("old\n")
    (root / "removed.txt").write_text("gone soon\n")
    return root


def change(place: Path) -> None:
    (place / "changed.txt").write_text("new\nlines\n")
    (place / "removed.txt").unlink()
    (place / "added.bin").write_bytes(b"\0\1")


def test_added_changed_and_removed_files_are_found_with_their_lines(place: Path) -> None:
    workspace = Workspace(place)
    before = take_snapshot(workspace)
    change(place)
    after = take_snapshot(workspace, before=before)
    found = list_deltas(before, after, {})
    assert [(f.path, f.change, f.added, f.removed) for f in found] == [
        ("added.bin", "added", 0, 0),
        ("changed.txt", "changed", 2, 1),
        ("removed.txt", "removed", 0, 1),
    ]
    assert found[1].before == "old\n"
    assert "-gone soon" in found[2].diff


def test_a_change_that_was_told_is_not_told_again(place: Path) -> None:
    workspace = Workspace(place)
    before = take_snapshot(workspace)
    change(place)
    after = take_snapshot(workspace)
    known = {found.path: found for found in list_deltas(before, after, {})}
    assert list_deltas(before, after, known) == []


def test_what_was_changed_and_changed_back_is_no_change_in_the_end(place: Path) -> None:
    workspace = Workspace(place)
    first = take_snapshot(workspace)
    (place / "kept.txt").write_text("other\n")
    second = take_snapshot(workspace)
    there = list_deltas(first, second, {})
    (place / "kept.txt").write_text("kept\n")
    third = take_snapshot(workspace)
    back = list_deltas(second, third, {found.path: found for found in there})
    assert merge_deltas([*there, *back], third.files) == []


def test_hidden_directories_and_git_are_left_out(place: Path) -> None:
    for name in (".git/config", "state/journal.db"):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text("x")
    found = take_snapshot(Workspace(place), hidden=["state"]).files
    assert sorted(found) == ["changed.txt", "kept.txt", "removed.txt"]


def test_bounds_hold(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MOST_FILES", 2)
    monkeypatch.setattr(changes, "MOST_BYTES", 4)
    found = take_snapshot(Workspace(place))
    assert (len(found.files), found.is_complete) == (2, False)
    assert all(mark.text is None for mark in found.files.values() if mark.size > 4)


def test_marks_are_kept_whole_or_not_at_all(place: Path, tmp_path: Path) -> None:
    taken = take_snapshot(Workspace(place))
    taken.save(tmp_path / "runs" / "x.marks")
    assert Snapshot.load(tmp_path / "runs" / "x.marks") == taken
    (tmp_path / "runs" / "x.marks").write_bytes(b"cut")
    assert Snapshot.load(tmp_path / "runs" / "x.marks") is None
    assert Snapshot.load(tmp_path / "nothing") is None
