"""What runs with the rights of its owner loses that right when the commands have ended."""

from __future__ import annotations

import logging
import os

from holdfast.sandbox import SandboxOptions, SandboxRunner, Workspace
from holdfast.sandbox.privileged_files import clear_privileged


def made(path, mode: int):
    path.write_text("x")
    path.chmod(mode)
    return path


def test_only_files_that_changed_since_lose_the_bits(tmp_path):
    old = made(tmp_path / "old", 0o4755)
    since = old.stat().st_ctime_ns + 1
    (tmp_path / "below").mkdir()
    new = [
        made(tmp_path / "both", 0o6755),
        made(tmp_path / "below" / "group", 0o2711),
        made(tmp_path / "below" / "unreadable", 0o4111),
    ]
    plain = made(tmp_path / "plain", 0o1755)
    assert sorted(clear_privileged([str(tmp_path)], since_ns=since)) == sorted(map(str, new))
    modes = [one.stat().st_mode & 0o7777 for one in [old, *new, plain]]
    assert modes == [0o4755, 0o755, 0o711, 0o111, 0o1755]


def test_links_and_directories_are_left_alone(tmp_path):
    outside = made(tmp_path / "outside", 0o4755)
    root = tmp_path / "root"
    (root / "shared").mkdir(parents=True)
    (root / "shared").chmod(0o2775)
    (root / "link").symlink_to(outside)
    (root / "away").symlink_to(tmp_path)
    os.mkfifo(root / "pipe")
    assert clear_privileged([str(root)], since_ns=0) == []
    assert outside.stat().st_mode & 0o4000
    assert (root / "shared").stat().st_mode & 0o2000


def wait_for_a_later_stamp(file):
    """Return when a file that is made now is stamped later: the clock of files moves in ticks."""
    later = file.with_name("later")
    while not later.exists() or later.stat().st_ctime_ns <= file.stat().st_ctime_ns:
        later.write_text("")


async def test_closing_a_runner_clears_what_came_up_and_says_so(tmp_path, caplog):
    before = made(tmp_path / "before", 0o4755)
    wait_for_a_later_stamp(before)
    runner = SandboxRunner(Workspace(tmp_path), SandboxOptions(level="landlock"))
    await runner.run_argv(["true"])
    # As a file system would that gives modes of its own: no command can.
    came = made(tmp_path / "came", 0o4755)
    with caplog.at_level(logging.WARNING, "holdfast.sandbox"):
        await runner.aclose()
    assert came.stat().st_mode & 0o7777 == 0o755
    assert before.stat().st_mode & 0o4000
    assert str(came) in caplog.text


async def test_a_reading_runner_changes_nothing(tmp_path):
    runner = SandboxRunner(
        Workspace(tmp_path), SandboxOptions(level="landlock", profile="read-only")
    )
    await runner.run_argv(["true"])
    came = made(tmp_path / "came", 0o4755)
    await runner.aclose()
    assert came.stat().st_mode & 0o4000
