"""Whether a database has to be examined is known before it is opened."""

from __future__ import annotations

import fcntl
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.errors import StorageDamaged
from holdfast.journal.stores import _sqlite_guard
from holdfast.journal.stores._sqlite_guard import FileGuard

WAIT_S = 10


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    path.write_bytes(b"content")
    return path


def is_examined(path: Path) -> bool:
    """Open and close the file; say whether it was examined."""
    guard, examined = FileGuard(path), []
    guard.enter(lambda: examined.append(path))
    guard.leave()
    return bool(examined)


def test_what_was_closed_and_not_changed_is_not_examined_again(path: Path) -> None:
    assert is_examined(path)
    assert not is_examined(path)
    path.write_bytes(b"something else")
    assert is_examined(path)
    assert not is_examined(path)


def test_what_was_left_without_a_word_is_examined(path: Path) -> None:
    assert is_examined(path)
    guard = FileGuard(path)
    guard.enter(lambda: pytest.fail("it was closed"))
    guard.abandon()
    guard.abandon()
    assert is_examined(path)


def test_a_log_that_was_left_behind_is_examined_with_its_file(path: Path) -> None:
    assert is_examined(path)
    guard = FileGuard(path)
    guard.enter(lambda: pytest.fail("it was closed"))
    log = path.with_name("journal.db-wal")
    log.write_bytes(b"not in the file yet")
    guard.leave()
    assert is_examined(path)
    log.write_bytes(b"")
    assert is_examined(path)
    assert not is_examined(path)


def test_an_unsound_file_is_examined_until_it_is_sound(path: Path) -> None:
    def find_damage() -> None:
        raise StorageDamaged(path=str(path), detail="a page is gone")

    guard = FileGuard(path)
    for _ in range(2):
        with pytest.raises(StorageDamaged):
            guard.enter(find_damage)
    guard.leave()  # it never came in, and has nothing to say
    assert is_examined(path)


def test_who_comes_second_relies_on_the_first_and_the_last_notes_how_it_looks(path: Path) -> None:
    first, second = FileGuard(path), FileGuard(path)
    first.enter(lambda: None)
    second.enter(lambda: pytest.fail("others have it open"))
    path.write_bytes(b"written while it was open")
    first.leave()
    assert not is_examined(path)  # the second still has it open
    second.leave()
    assert not is_examined(path)


def test_a_file_is_replaced_only_while_it_is_closed_and_examined_after(path: Path) -> None:
    guard = FileGuard(path)
    guard.enter(lambda: None)
    with FileGuard(path).alone() as is_alone:
        assert not is_alone
    guard.leave()
    with FileGuard(path).alone() as is_alone:
        assert is_alone
    assert is_examined(path)


def test_who_waits_beside_a_process_that_finds_damage_looks_for_itself(path: Path) -> None:
    """A conversion of a lock gives the old one up first: what was known before it may be over."""
    is_looking, may_end = threading.Event(), threading.Event()

    def find_damage() -> None:
        is_looking.set()
        assert may_end.wait(WAIT_S)
        raise StorageDamaged(path=str(path), detail="a page is gone")

    first, second = FileGuard(path), FileGuard(path)
    found: list[str] = []
    with ThreadPoolExecutor(2) as threads:
        of_first = threads.submit(first.enter, find_damage)
        assert is_looking.wait(WAIT_S)
        of_second = threads.submit(second.enter, lambda: found.append("examined"))
        may_end.set()
        with pytest.raises(StorageDamaged):
            of_first.result(WAIT_S)
        of_second.result(WAIT_S)
    assert found == ["examined"]
    second.leave()


@pytest.mark.parametrize("last_words", ["checking\n", "clean 1 2 3 4\n"])
def test_what_changed_between_two_locks_is_looked_at_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, last_words: str
) -> None:
    """In the gap of a conversion another process closes the file, or finds that it is damaged."""
    state = path.with_name(f"{path.name}-state")
    lock, examined, gaps = fcntl.flock, [], []

    def lock_late(handle: int, kind: int) -> None:
        if kind == fcntl.LOCK_SH and not gaps:
            gaps.append(handle)
            lock(handle, fcntl.LOCK_UN)
            state.write_text(last_words)
        lock(handle, kind)

    monkeypatch.setattr(_sqlite_guard.fcntl, "flock", lock_late)
    guard = FileGuard(path)
    guard.enter(lambda: examined.append("examined"))
    assert gaps and examined == ["examined", "examined"]
    assert state.read_text() == "open\n"
    guard.leave()
    assert not is_examined(path)


def test_a_forked_child_does_not_hold_the_file_for_its_parent(path: Path) -> None:
    guard = FileGuard(path)
    guard.enter(lambda: None)
    come, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        os.read(come, 1)  # lives on until it is told
        os._exit(0)
    try:
        guard.leave()
        # Would wait for the child, or examine the file because nothing was vouched for.
        assert not is_examined(path)
        guard.enter(lambda: pytest.fail("it was closed"))
        guard.leave_to_parent()  # as in a child: it says nothing and unlocks nothing
        guard.leave()
    finally:
        os.close(come)
        os.close(go)
        os.waitpid(child, 0)
