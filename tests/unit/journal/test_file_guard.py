"""Whether a database has to be examined is known before it is opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import StorageDamaged
from holdfast.journal.stores._sqlite_guard import FileGuard


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
