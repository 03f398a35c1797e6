"""What an agent did is merged only where the checks passed on exactly that."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from holdfast.errors import UsageError
from holdfast.orchestration.promotion import CheckEvidence, PromotionGuard, PromotionReport
from holdfast.settings import PromotionSettings
from holdfast.testing import FakeServer, Recorded, Reply, ScriptedCall
from tests.behaviour.cli.terminal import SOURCE


def git(place: Path, *words: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    done = subprocess.run(
        ["git", *identity, *words], cwd=place, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def commit(place: Path, **files: str) -> str:
    for name, text in files.items():
        (place / name.replace("_", ".")).write_text(text)
    git(place, "add", "-A")
    git(place, "commit", "-qm", "by hand")
    return git(place, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    git(place, "init", "-q", "-b", "main", ".")
    commit(place, notes_txt="one\n", _gitignore="*.log\n")
    return place


def open_guard(place: Path, *checks: str) -> PromotionGuard:
    return PromotionGuard(place, "r1", PromotionSettings(checks=checks))


async def run_check(command: str, directory: Path) -> CheckEvidence:
    process = await asyncio.create_subprocess_shell(command, cwd=directory)
    code = await process.wait()
    return CheckEvidence(command=command, is_passed=code == 0, exit_code=code)


def promote(guard: PromotionGuard) -> PromotionReport:
    return asyncio.run(guard.promote(run_check, goal="Do it"))


def test_work_that_passes_is_merged_with_its_evidence_and_leaves_nothing(
    repository: Path,
) -> None:
    guard = open_guard(repository, "grep -q two notes.txt", "test -f new.txt")
    (guard.workspace / "notes.txt").write_text("two\n")
    (guard.workspace / "new.txt").write_text("new\n")
    assert (repository / "notes.txt").read_text() == "one\n"
    report = promote(guard)
    assert (report.outcome, report.files) == ("promoted", ("new.txt", "notes.txt"))
    assert [check.exit_code for check in report.checks] == [0, 0]
    assert (repository / "notes.txt").read_text() == "two\n"
    assert git(repository, "rev-parse", "main") == report.commit
    assert git(repository, "rev-parse", "main^{tree}") == report.tree
    told = git(repository, "log", "-1", "--format=%B")
    assert "Holdfast-Run: r1" in told and "Holdfast-Check: test -f new.txt (exit code 0)" in told
    assert git(repository, "branch", "--list") == "* main"
    assert git(repository, "worktree", "list").count("\n") == 0
    assert not guard.workspace.exists()


def test_what_fails_stays_apart_and_can_be_tried_again_once_corrected(
    repository: Path,
) -> None:
    before = git(repository, "rev-parse", "main")
    guard = open_guard(repository, "grep -q two notes.txt", "true")
    (guard.workspace / "notes.txt").write_text("three\n")
    report = promote(guard)
    assert (report.outcome, len(report.checks)) == ("checks_failed", 1)
    assert git(repository, "rev-parse", "main") == before
    assert (repository / "notes.txt").read_text() == "one\n"
    again = open_guard(repository, "grep -q two notes.txt")
    assert again.workspace == guard.workspace
    (again.workspace / "notes.txt").write_text("two\n")
    assert (promote(again)).outcome == "promoted"


def test_files_that_git_ignores_do_not_help_a_check_to_pass(repository: Path) -> None:
    guard = open_guard(repository, "test -f made.log")
    (guard.workspace / "made.log").write_text("green\n")
    (guard.workspace / "notes.txt").write_text("two\n")
    assert (promote(guard)).outcome == "checks_failed"


def test_check_that_changes_what_it_checks_does_not_count(repository: Path) -> None:
    guard = open_guard(repository, "echo two > notes.txt")
    (guard.workspace / "notes.txt").write_text("bad\n")
    report = promote(guard)
    assert (report.outcome, report.checks[0].is_passed) == ("checks_failed", False)
    assert "notes.txt" in report.checks[0].output


def test_nothing_that_the_agent_left_is_executed_by_the_merge(
    repository: Path, tmp_path: Path
) -> None:
    git(repository, "config", "core.hooksPath", ".hooks")
    guard = open_guard(repository, "true")
    work = guard.workspace
    trap = f"#!/bin/sh\ntouch {tmp_path}/executed\n"
    (work / ".hooks").mkdir()
    for name in ("pre-commit", "post-commit", "post-checkout", "post-merge", "pre-merge-commit"):
        (work / ".hooks" / name).write_text(trap)
        (work / ".hooks" / name).chmod(0o755)
    # A git directory of its own, which names a program as its monitor.
    own = tmp_path / "own"
    git(tmp_path, "init", "-q", str(own))
    (own / "monitor").write_text(trap)
    (own / "monitor").chmod(0o755)
    git(own, "config", "core.fsmonitor", str(own / "monitor"))
    (work / ".git").write_text(f"gitdir: {own / '.git'}\n")
    assert (promote(guard)).outcome == "promoted"
    assert (repository / ".hooks" / "pre-commit").exists()
    assert not (tmp_path / "executed").exists()


def test_repository_within_the_work_and_protected_files_need_a_person(
    repository: Path,
) -> None:
    guard = open_guard(repository, "true")
    (guard.workspace / "inner").mkdir()
    git(guard.workspace / "inner", "init", "-q", ".")
    with pytest.raises(UsageError, match="repository of its own"):
        promote(guard)
    git(guard.workspace / "inner", "init", "-q", ".")
    subprocess.run(["rm", "-rf", str(guard.workspace / "inner")], check=True)
    (guard.workspace / ".github" / "workflows").mkdir(parents=True)
    (guard.workspace / ".github" / "workflows" / "ci.yml").write_text("on: push\n")
    report = promote(guard)
    assert report.outcome == "protected" and ".github/workflows/ci.yml" in report.reason
    assert report.checks == ()


def test_what_came_meanwhile_is_checked_together_with_the_work(repository: Path) -> None:
    guard = open_guard(repository, "test -f a.txt && test -f b.txt && ! test -f c.txt")
    (guard.workspace / "a.txt").write_text("a\n")
    commit(repository, b_txt="b\n")
    runs = 0

    async def check(command: str, directory: Path) -> CheckEvidence:
        nonlocal runs
        runs += 1
        if runs == 1:  # while the first check runs, another commit comes
            await asyncio.to_thread(commit, repository, d_txt="d\n")
        assert (directory / "d.txt").exists() == (runs > 1)
        return await run_check(command, directory)

    report = asyncio.run(guard.promote(check, goal="Add a"))
    assert (report.outcome, runs) == ("promoted", 2)
    assert all((repository / f"{name}.txt").exists() for name in "abd")


def test_conflicts_and_changes_in_the_way_merge_nothing(repository: Path) -> None:
    guard = open_guard(repository, "true")
    (guard.workspace / "notes.txt").write_text("two\n")
    (repository / "notes.txt").write_text("mine, not committed\n")
    assert (promote(guard)).outcome == "in_the_way"
    assert (repository / "notes.txt").read_text() == "mine, not committed\n"
    commit(repository, notes_txt="three\n")
    report = promote(guard)
    assert report.outcome == "conflict" and "notes.txt" in report.reason
    assert (repository / "notes.txt").read_text() == "three\n"


def test_what_is_not_fit_is_refused_before_anything_is_made(
    repository: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="at least one check"):
        open_guard(repository)
    (repository / "notes.txt").write_text("changed\n")
    with pytest.raises(UsageError, match="not committed"):
        open_guard(repository, "true")
    git(repository, "checkout", "-q", "--", ".")
    for name in ("../../x", "a..b", "a.lock", "-b"):
        with pytest.raises(UsageError, match="cannot name a branch"):
            PromotionGuard(repository, name, PromotionSettings(checks=("true",)))
    git(repository, "checkout", "-q", "--detach")
    with pytest.raises(UsageError, match="No branch"):
        open_guard(repository, "true")
    with pytest.raises(UsageError, match="in none"):
        open_guard(tmp_path, "true")
    assert not (tmp_path / "project.worktrees").exists()


def script(recorded: Recorded) -> Reply:
    """Write a file into the workspace, then be done."""
    asked = msgspec.json.encode(recorded.json).decode()
    if "function_call_output" in asked or '"role":"tool"' in asked:
        return Reply(text="It is written.")
    arguments = json.dumps({"file_path": "made.txt", "content": "made\n"})
    return Reply(calls=(ScriptedCall(name="write", arguments=arguments),))


async def call(repository: Path, base_url: str, *words: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast", "--json", "run", "--auto-confirm", "--promote"),
        *words,
        cwd=repository,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(repository.parent),
            "PYTHONPATH": str(SOURCE),
            "AGENT_STATE_DIR": str(repository.parent / "state"),
            "OPENAI_BASE_URL": base_url,
            "AGENT_MODEL": "openai:fake-model",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(120):
        out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def test_run_of_the_command_line_is_promoted_or_says_what_to_do(repository: Path) -> None:
    async with FakeServer(script=script) as server:
        name = ("--run-id", "r7")
        failed = await call(repository, server.base_url, *name, "--check", "false", "Write it")
        assert failed[0] == 1 and "promotion.refused" in failed[2], failed
        assert json.loads(failed[1])["promotion"]["outcome"] == "checks_failed"
        assert not (repository / "made.txt").exists()
        # The same run again: it has ended, so only the checks are made.
        asked = len(server.requests)
        checks = ("--check", "grep -q made made.txt")
        code, out, err = await call(repository, server.base_url, *name, *checks)
        assert code == 0, err
        assert len(server.requests) == asked
    promotion = json.loads(out)["promotion"]
    assert (promotion["outcome"], promotion["checks"][0]["is_passed"]) == ("promoted", True)
    assert (repository / "made.txt").read_text() == "made\n"
