"""Faults of the machine interrupt a run; only facts about the work end it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from machine import program

SCENARIOS = Path(__file__).with_name("fault_scenarios.py")


def play(*words: str, before: tuple[str, ...] = (), notes: Path | None = None) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NOTES": str(notes)}
    ended = subprocess.run(
        [*before, sys.executable, str(SCENARIOS), *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ended.returncode == 0, ended.stderr
    news: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return {**news, "stderr": ended.stderr, "stdout": ended.stdout}


def test_more_runs_than_files_may_be_open_all_end_well(tmp_path: Path) -> None:
    """Those that do not fit wait for their place, and the log says so once."""
    told = play("many_runs", str(tmp_path), "200", "128")
    assert told["ended"] == {"completed": 200}
    lines = told["stderr"] + told["stdout"]
    assert lines.count("turns_wait_for_their_place") == 1


@pytest.mark.parametrize("first", (30, 60, 90, 120))
def test_a_disk_with_passing_errors_only_interrupts(tmp_path: Path, first: int) -> None:
    """EIO from the log's file for some writes: the run goes on, and no call is misreported.

    strace counts per thread, so each thread that writes anew meets the fault anew: on a slow
    machine for ever. The scenario lets the tracer go after a number of interruptions.
    """
    strace, notes = program("strace", "strace"), tmp_path / "notes"
    log = tmp_path / "state" / "journal.db-wal"
    before = (
        strace, "-D", "-I", "2", "-f", "-qq", "-o", os.devnull, "-P", str(log),
        "-e", "trace=pwrite64", "-e", f"inject=pwrite64:error=EIO:when={first}..{first + 12}",
    )  # fmt: skip
    told = play("run_again_until_done", str(tmp_path / "state"), before=before, notes=notes)
    assert told["interruptions"], "the fault was not met"
    assert (told["status"], told["errors"], told["problems"]) == ("completed", [], [])
    # Each call really ran, each with a key of its own.
    assert len(set(notes.read_text().splitlines())) == 12


def test_a_full_disk_only_interrupts(tmp_path: Path) -> None:
    """A file system without space: when there is some again, the run goes on."""
    place, notes = tmp_path / "small", tmp_path / "notes"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(place)], capture_output=True
    )
    assert not mounted.returncode, f"these tests need the right to mount: {mounted.stderr!r}"
    try:
        state = place / "state"
        state.mkdir()
        (state / "ballast").write_bytes(bytes(400_000))
        told = play("run_again_until_done", str(state), notes=notes)
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
    assert told["interruptions"], "there was space for all of it"
    assert (told["status"], told["errors"], told["problems"]) == ("completed", [], [])
    assert len(set(notes.read_text().splitlines())) == 12
