"""The crash kit finds what it should, says how to repeat it, and costs nothing when unused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import kit_scenarios
import pytest

from holdfast.errors import UsageError
from holdfast.testing import crash


def nothing(directory: Path) -> None:
    """Check nothing."""


def test_a_scenario_that_moves_whole_files_passes(crash_matrix) -> None:
    def check(directory: Path) -> None:
        assert (directory / "result").read_text() == "done"

    report = crash_matrix(kit_scenarios.write_whole, check, random_kills=2)
    assert report.boundaries == ("open new for writing", "replace new")
    assert report.kills >= 4
    assert "0 failures" in str(report)


def test_a_lost_half_is_found_and_can_be_repeated(crash_matrix, tmp_path: Path) -> None:
    def check(directory: Path) -> None:
        assert (directory / "second").read_text() == "2", "the second half is missing"

    with pytest.raises(crash.CrashFailed) as caught:
        crash_matrix(kit_scenarios.write_in_two_steps, check, random_kills=0)
    [failure] = caught.value.report.failures
    assert failure.kill.key == "2:before"
    assert Path(failure.directory, "first").exists()
    text = str(caught.value)
    assert "killed before boundary 2 (open second for writing)" in text
    assert "--crash-only=2:before" in text
    assert "both written" not in text
    with pytest.raises(crash.CrashFailed) as again:
        crash_matrix(kit_scenarios.write_in_two_steps, check, only="2:before")
    assert again.value.report.kills == 1
    crash_matrix(kit_scenarios.write_in_two_steps, check, only="1:before")
    with pytest.raises(UsageError):
        crash_matrix(kit_scenarios.write_in_two_steps, check, only="9:after")


def test_a_kill_at_given_times_can_be_repeated(crash_matrix) -> None:
    def check(directory: Path) -> None:
        assert not (directory / "result").exists() or directory.name == "undisturbed"

    with pytest.raises(crash.CrashFailed) as caught:
        crash_matrix(kit_scenarios.write_whole, check, only="@0.0,0.0010")
    [failure] = caught.value.report.failures
    assert failure.kill.key == "@0.0000,0.0010"
    assert "killed after 0 ms, 1 ms" in str(caught.value)


def test_every_commit_of_sqlite_is_a_boundary(crash_matrix) -> None:
    report = crash_matrix(kit_scenarios.use_sqlite_in_every_way, nothing, random_kills=0)
    names = [name for name in report.boundaries if "data.db" in name]
    assert names == ["CREATE data.db", "COMMIT data.db", "script data.db", "INSERT data.db"]


def test_a_scenario_marks_boundaries_of_its_own(crash_matrix, tmp_path: Path) -> None:
    report = crash_matrix(kit_scenarios.mark_its_own, nothing, random_kills=0)
    assert (report.boundaries, report.kills) == (("send",), 2)
    kit_scenarios.mark_its_own(str(tmp_path))


def test_a_scenario_that_fails_by_itself_is_refused(crash_matrix) -> None:
    with pytest.raises(UsageError, match="ValueError"):
        crash_matrix(kit_scenarios.fail, nothing)
    with pytest.raises(UsageError, match="in time"):
        crash_matrix(kit_scenarios.hang, nothing, timeout_s=0.1)
    with pytest.raises(UsageError, match="no_such_module"):
        crash_matrix("no_such_module:work", nothing)
    with pytest.raises(UsageError, match="top of a module"):
        crash_matrix(lambda directory: None, nothing)
    with pytest.raises(UsageError, match="ended"):
        crash_matrix(kit_scenarios.end_the_nursery, nothing)


def test_the_plugin_alone_imports_no_kit() -> None:
    code = (
        "import sys, pytest, holdfast.testing.crash_plugin; "
        "sys.exit('holdfast.testing.crash' in sys.modules or 'msgspec' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
