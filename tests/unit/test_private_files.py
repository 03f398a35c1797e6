"""Small private files: whole or not at all, whoever writes, fails or is killed when."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import private_files
from holdfast.errors import StorageDamaged, StorageError, StorageFull, StorageReadOnly
from holdfast.private_files import PrivateJsonFile, open_whole_file
from holdfast.settings.environment import process_environment

SOURCE = Path(__file__).resolve().parents[2] / "src"
OPEN = """
import os, sys
from pathlib import Path
from holdfast.private_files import PrivateJsonFile
file = PrivateJsonFile(Path(sys.argv[1]), dict[str, int], empty=dict)
"""


def counts(path: Path, *, is_expendable: bool = False) -> PrivateJsonFile[dict[str, int]]:
    return PrivateJsonFile(path, dict[str, int], empty=dict, is_expendable=is_expendable)


def count(name: str, number: int = 1) -> Callable[[dict[str, int]], None]:
    def change(value: dict[str, int]) -> None:
        value[name] = number

    return change


def child(script: str, *words: str) -> subprocess.Popen[bytes]:
    environment = {**process_environment(), "PYTHONPATH": str(SOURCE)}
    return subprocess.Popen([sys.executable, "-c", OPEN + script, *words], env=environment)


def test_a_value_is_there_for_the_next_process_and_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "state" / "counts.json"
    assert counts(path).read() == {}
    assert not path.parent.exists()
    assert counts(path).change(count("a")) == {"a": 1}
    assert counts(path).read() == {"a": 1}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert sorted(os.listdir(path.parent)) == ["counts.json", "counts.json.lock"]


def test_a_file_that_others_could_read_becomes_private_with_the_next_change(tmp_path: Path) -> None:
    path = tmp_path / "counts.json"
    path.write_text('{"a": 1}')
    path.chmod(0o644)
    counts(path).change(count("b"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert counts(path).read() == {"a": 1, "b": 1}


def test_a_change_may_put_another_value_in_its_place(tmp_path: Path) -> None:
    file = counts(tmp_path / "counts.json")
    assert file.change(lambda old: {"new": len(old)}) == {"new": 0}
    assert file.read() == {"new": 0}


def test_nothing_is_written_when_the_change_raises(tmp_path: Path) -> None:
    file = counts(tmp_path / "counts.json")
    file.change(count("a"))

    def broken(value: dict[str, int]) -> None:
        value["b"] = 2
        raise KeyError("b")

    with pytest.raises(KeyError):
        file.change(broken)
    assert file.read() == {"a": 1}


DAMAGE = [b"", b"{", b"\xff\xfe", b"[]", b'{"a": "x"}', b"[" * 100_000, b'"' + b"x" * 17_000_000]


@pytest.mark.parametrize("damage", DAMAGE, ids=range(len(DAMAGE)))
def test_a_damaged_file_is_told_and_left_unless_it_is_expendable(
    tmp_path: Path, damage: bytes
) -> None:
    path = tmp_path / "counts.json"
    path.write_bytes(damage)
    for use in (counts(path).read, lambda: counts(path).change(count("a"))):
        with pytest.raises(StorageDamaged) as caught:
            use()
        assert caught.value.code == "storage.damaged"
    assert path.read_bytes() == damage
    expendable = counts(path, is_expendable=True)
    assert expendable.read() == {}
    expendable.change(count("a"))
    assert counts(path).read() == {"a": 1}


def test_two_processes_lose_nothing_of_each_other(tmp_path: Path) -> None:
    script = """
for number in range(20):
    file.change(lambda value: value.__setitem__(f"{sys.argv[2]}{number}", number))
"""
    path = tmp_path / "counts.json"
    children = [child(script, str(path), name) for name in "ab"]
    assert [running.wait(60) for running in children] == [0, 0]
    assert len(counts(path).read()) == 40


def test_a_writer_killed_before_the_rename_leaves_the_old_value(tmp_path: Path) -> None:
    path = tmp_path / "counts.json"
    counts(path).change(count("a"))
    script = """
os.replace = lambda *paths: os._exit(9)
file.change(lambda value: value.clear())
"""
    assert child(script, str(path)).wait(60) == 9
    left = [name for name in os.listdir(tmp_path) if name.endswith(".part")]
    assert len(left) == 1
    assert counts(path).read() == {"a": 1}
    # The lock went with its holder, and what it left goes with the next change.
    counts(path).change(count("b"))
    assert counts(path).read() == {"a": 1, "b": 1}
    assert sorted(os.listdir(tmp_path)) == ["counts.json", "counts.json.lock"]


def test_a_link_is_read_through_but_never_written_through(tmp_path: Path) -> None:
    target, path = tmp_path / "elsewhere.json", tmp_path / "counts.json"
    target.write_text('{"a": 1}')
    path.symlink_to(target)
    assert counts(path).change(count("b")) == {"a": 1, "b": 1}
    assert target.read_text() == '{"a": 1}'
    assert not path.is_symlink()


def test_a_link_in_the_place_of_the_lock_is_refused(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    (tmp_path / "counts.json.lock").symlink_to(victim)
    with pytest.raises(StorageError):
        counts(tmp_path / "counts.json").change(count("a"))
    assert not victim.exists()


def test_a_place_that_cannot_be_used_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        counts(tmp_path / "file" / "counts.json").change(count("a"))
    (tmp_path / "counts.json").mkdir()
    for use in (counts(tmp_path / "counts.json").read,):
        with pytest.raises(StorageError):
            use()


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (errno.ENOSPC, StorageFull),
        (errno.EDQUOT, StorageFull),
        (errno.EROFS, StorageReadOnly),
        (errno.EACCES, StorageReadOnly),
        (errno.EIO, StorageError),
    ],
)
def test_a_failed_write_is_told_apart_and_leaves_the_old_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[StorageError]
) -> None:
    file = counts(tmp_path / "counts.json")
    file.change(count("a"))

    def fails(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(private_files.os, "replace", fails)
    with pytest.raises(error) as caught:
        file.change(count("b"))
    assert type(caught.value) is error
    assert file.read() == {"a": 1}
    assert sorted(os.listdir(tmp_path)) == ["counts.json", "counts.json.lock"]


def test_a_whole_file_takes_the_place_of_a_link_and_leaves_nothing_when_it_fails(
    tmp_path: Path,
) -> None:
    path, target = tmp_path / "deep" / "file", tmp_path / "target"
    target.write_text("theirs")
    with open_whole_file(path, is_durable=False) as file:
        file.write(b"one")
    path.unlink()
    path.symlink_to(target)
    with open_whole_file(path) as file:
        file.write(b"two")
    assert (path.read_bytes(), target.read_text()) == (b"two", "theirs")
    with pytest.raises(ZeroDivisionError), open_whole_file(path) as file:
        file.write(b"three")
        raise ZeroDivisionError
    assert path.read_bytes() == b"two"
    assert os.listdir(path.parent) == ["file"]
