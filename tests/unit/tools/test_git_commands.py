"""A repository that was prepared for it runs nothing when git looks at it unasked."""

from __future__ import annotations

import asyncio
import itertools
import os
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from holdfast.errors import PermissionDenied
from holdfast.policy import parse_command
from holdfast.sandbox import SandboxOptions, SandboxRunner, Workspace
from holdfast.tools.git_commands import (
    LIST_SETTINGS,
    find_git_places,
    harden_git,
    is_git_looking,
    make_git_environment,
)
from holdfast.tools.sandboxed_commands import SandboxedCommands
from holdfast.tools.services import Command

CORPUS = Path(__file__).parents[2] / "corpora" / "git" / "configurations.yaml"
CASES = yaml.safe_load(CORPUS.read_text("utf-8"))
SIGNED = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n"


class Prepared:
    """A repository made from a case, and the mark that its program leaves."""

    def __init__(self, base: Path, case: dict) -> None:
        self.mark = base / "mark"
        self.root = base / "work"
        self.root.mkdir(parents=True)
        self._script = base / "payload"
        self._script.write_text(f"#!/bin/sh\ntouch {self.mark}\ncat 2>/dev/null </dev/null\n")
        self._script.chmod(0o755)
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(base),
            "GIT_AUTHOR_NAME": "a",
            "GIT_AUTHOR_EMAIL": "a@example.org",
            "GIT_COMMITTER_NAME": "a",
            "GIT_COMMITTER_EMAIL": "a@example.org",
        }
        self._fill(case)

    def _fill(self, case: dict) -> None:
        self.git("init", "-q")
        (self.root / "file").write_text("one\n")
        self.git("add", "file")
        self.git("commit", "-qm", "first")
        if case.get("submodule"):
            self._add_submodule(case["submodule"])
        if case.get("signed"):
            text = self.git("cat-file", "commit", "HEAD").replace("\n\n", f"\n{SIGNED}\n", 1)
            made = self.git("hash-object", "-t", "commit", "-w", "--stdin", given=text)
            self.git("update-ref", "HEAD", made.strip())
        (self.root / "file").write_text("two\n")
        if case.get("stash"):
            self.git("stash", "-q")
        if case.get("bare"):
            for one in (self.root / ".git").iterdir():
                one.rename(self.root / one.name)
            (self.root / ".git").rmdir()
        for path, text in case.get("files", {}).items():
            self._write(self.root / path, text)
        config = self.root / ("config" if case.get("bare") else ".git/config")
        for name, value in case.get("config", {}).items():
            self.git("config", "-f", str(config), name, self._told(value))

    def _add_submodule(self, settings: dict) -> None:
        sub = self.root / "sub"
        sub.mkdir()
        self.git("init", "-q", at=sub)
        (sub / "inner").write_text("one\n")
        (sub / ".gitattributes").write_text("* filter=x\n")
        self.git("add", ".", at=sub)
        self.git("commit", "-qm", "inner", at=sub)
        self._write(self.root / ".gitmodules", '[submodule "sub"]\n\tpath = sub\n\turl = ./sub\n')
        self.git("add", ".gitmodules", "sub")
        self.git("commit", "-qm", "with submodule")
        (sub / "inner").write_text("two\n")
        for name, value in settings.items():
            self.git("config", name, self._told(value), at=sub)

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._told(text))
        if text == "PAYLOAD-SCRIPT":
            path.chmod(0o755)

    def _told(self, text: str) -> str:
        if text == "PAYLOAD-SCRIPT":
            return self._script.read_text()
        return text.replace("PAYLOAD", str(self._script))

    def git(self, *arguments: str, at: Path | None = None, given: str | None = None) -> str:
        ended = subprocess.run(
            ["git", *arguments],
            cwd=at or self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            input=given or "",
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def run(self, argv: tuple[str, ...], variables: dict[str, str]) -> str:
        """Run a command here, outside of every sandbox."""
        ended = subprocess.run(
            argv,
            cwd=self.root,
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        return ended.stdout


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_no_configuration_runs_a_program(case, tmp_path):
    plain = Prepared(tmp_path / "plain", case)
    plain.run(tuple(shlex.split(case["command"])), {})
    assert plain.mark.exists() is not case.get("is_quiet", False)

    held = Prepared(tmp_path / "held", case)
    names = held.run(LIST_SETTINGS, dict(make_git_environment())).split("\0")
    parsed = parse_command(case["command"])
    [line] = harden_git(parsed, names, is_looking=is_git_looking(parsed))
    [command] = line.commands
    held.run(command.argv, dict(command.assignments))
    assert not held.mark.exists()


@pytest.fixture
async def commands(tmp_path):
    runner = SandboxRunner(Workspace(tmp_path), SandboxOptions(level="landlock"))
    yield SandboxedCommands(runner)
    await runner.aclose()


async def test_a_bare_layout_in_the_workspace_is_no_repository_for_the_bash_tool(tmp_path):
    case = next(one for one in CASES if one["id"] == "bare-layout")
    prepared = await asyncio.to_thread(Prepared, tmp_path, case)
    runner = SandboxRunner(Workspace(tmp_path), SandboxOptions(level="landlock"))
    result = await SandboxedCommands(runner).run(Command(text="git status", directory="work"))
    await runner.aclose()
    assert "safe.bareRepository" in result.stderr
    assert not prepared.mark.exists()


async def test_git_that_only_looks_runs_in_the_read_only_profile(tmp_path):
    prepared = await asyncio.to_thread(Prepared, tmp_path, {})
    runner = SandboxRunner(Workspace(prepared.root), SandboxOptions(level="landlock"))
    commands = SandboxedCommands(runner)
    looked = await commands.run(Command(text="git diff && git log --oneline"))
    assert looked.sandbox.endswith("/read-only")
    assert "+two" in looked.stdout
    written = await commands.run(Command(text="git diff > patch"))
    assert written.sandbox.endswith("/workspace-write")
    assert "+two" in (prepared.root / "patch").read_text()
    await runner.aclose()


async def test_the_settings_of_a_directory_that_the_line_enters_are_looked_up(tmp_path):
    case = next(one for one in CASES if one["id"] == "filter-clean")
    prepared = await asyncio.to_thread(Prepared, tmp_path, case)
    runner = SandboxRunner(Workspace(tmp_path), SandboxOptions(level="landlock"))
    result = await SandboxedCommands(runner).run(Command(text="cd work && git status; ls"))
    await runner.aclose()
    assert "modified:   file" in result.stdout
    assert not prepared.mark.exists()


async def test_a_line_that_a_person_approved_runs_as_it_is(tmp_path):
    case = next(one for one in CASES if one["id"] == "hook-commit")
    prepared = await asyncio.to_thread(Prepared, tmp_path, case)
    line = "git -c user.name=a -c user.email=a@example.org commit -am x"
    runner = SandboxRunner(Workspace(tmp_path), SandboxOptions(level="landlock"))
    approved = Command(text=line, directory="work", passed_by="person")
    await SandboxedCommands(runner).run(approved)
    await runner.aclose()
    assert prepared.mark.exists()


async def test_too_many_directories_are_not_guessed(commands):
    line = "; ".join(f"cd d{at}" for at in range(8)) + "; git status"
    assert find_git_places(parse_command(line), ".") is None
    with pytest.raises(PermissionDenied, match="too often"):
        await commands.run(Command(text=line))


def test_git_behind_another_program_gets_the_same_environment():
    parsed = parse_command("timeout 5 git status | cat")
    [line] = harden_git(parsed, ["filter.x.clean", "user.name"], is_looking=False)
    first, second = line.commands
    variables = dict(first.assignments)
    assert first.argv == ("timeout", "5", "git", "status")
    assert "filter.x.clean" in variables.values()
    assert dict(second.assignments) == variables


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_no_configuration_runs_a_program_of_git_in_a_script(case, tmp_path):
    held = Prepared(tmp_path, case)
    names = held.run(LIST_SETTINGS, dict(make_git_environment())).split("\0")
    held.run(("bash", "-c", case["command"]), dict(make_git_environment(names, is_looking=False)))
    assert not held.mark.exists()


HIDDEN_GIT = [
    "git -C work status",
    "git --git-dir=work/.git --work-tree work status",
    "git --git-dir work/.git --work-tree work diff",
    "env git -C work diff",
    "sh -c 'cd work && git status'",
    "for x in 1; do (cd work; git status); done",
    "d=1; GIT_DIR=work/.git GIT_WORK_TREE=work git diff",
    "pushd work; git diff; popd",
    'git -C "work" diff | cat; echo $HOME',
]


KINDS = itertools.cycle(["filter-clean", "external-diff-of-a-driver", "fsmonitor", "external-diff"])


@pytest.mark.parametrize(("line", "kind"), tuple(zip(HIDDEN_GIT, KINDS, strict=False)))
async def test_git_is_found_wherever_a_line_hides_it(line, kind, tmp_path):
    case = next(one for one in CASES if one["id"] == kind)
    prepared = await asyncio.to_thread(Prepared, tmp_path, case)
    runner = SandboxRunner(Workspace(tmp_path), SandboxOptions(level="landlock"))
    commands = SandboxedCommands(runner, passes_unread=True)
    for passed_by in ("rules", "sandbox"):
        await commands.run(Command(text=line, passed_by=passed_by))
    await runner.aclose()
    assert not prepared.mark.exists()


async def test_git_that_a_program_of_the_workspace_starts_runs_nothing_of_the_repository(tmp_path):
    case = next(one for one in CASES if one["id"] == "filter-clean")
    prepared = await asyncio.to_thread(Prepared, tmp_path, case)
    (prepared.root / "check").write_text("#!/bin/sh\ngit status\n")
    (prepared.root / "check").chmod(0o755)
    runner = SandboxRunner(Workspace(tmp_path), SandboxOptions(level="landlock"))
    result = await SandboxedCommands(runner).run(Command(text="./check", directory="work"))
    await runner.aclose()
    assert "modified:   file" in result.stdout
    assert not prepared.mark.exists()
