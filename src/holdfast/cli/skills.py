"""`holdfast skills`: instructions that agents can load."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import click

from holdfast.cli.exits import ExitCode
from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.errors import FileError, UsageError
from holdfast.skills import MAX_SKILL_BYTES as MAX_BYTES
from holdfast.skills import SKILL_FILE as FILE
from holdfast.skills import Fault, Skill, SkillLibrary, TrustStore, check_skill


@click.group("skills", cls=Group)
def command() -> None:
    """List, show, check or trust skills."""


@command.command("list")
@pass_invocation
def list_skills(invocation: Invocation) -> None:
    """List the skills that hold for the workspace.

    A skill of the project is offered to agents only after `holdfast skills trust`.
    """
    catalog = _open_library(invocation).find(invocation.settings.workspace)
    emit(
        [_make_row(skill) for skill in catalog.skills],
        columns=["name", "source", "trusted", "purpose"],
    )
    for problem in catalog.problems:
        say(problem, err=True, color="yellow")


@command.command("show")
@click.argument("name")
@pass_invocation
def show(invocation: Invocation, name: str) -> None:
    """Show everything about the skill NAME, with its instructions."""
    skill = _open_library(invocation).find(invocation.settings.workspace).get(name)
    emit(
        {
            **_make_row(skill),
            "license": skill.license,
            "compatibility": skill.compatibility,
            "metadata": skill.metadata,
            "allowed_tools": list(skill.allowed_tools),
            "files": list(skill.files),
            "digest": skill.digest,
            "content": skill.content,
        }
    )


@command.command("validate")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.pass_context
@pass_invocation
def validate(invocation: Invocation, ctx: click.Context, paths: tuple[Path, ...]) -> None:
    """Check skills strictly: the folders or files PATHS, or all of the workspace.

    Ends with 1 if anything is wrong.
    """
    found = paths or _open_library(invocation).files(invocation.settings.workspace)
    rows: list[dict[str, object]] = []
    for path in found:
        file = path / FILE if path.is_dir() else path
        faults = _list_faults(file)
        rows += [{"file": str(file), "line": one.line, "fault": one.text} for one in faults]
    if invocation.is_text:
        for row in rows:
            say(f"{row['file']}:{row['line']}: {row['fault']}", color="red")
        say(f"{len(found)} skills checked, {len(rows)} faults.")
    else:
        emit(rows)
    if rows:
        ctx.exit(ExitCode.FAILED)


@command.command("trust")
@click.argument("names", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Every skill of the project.")
@click.option("--revoke", is_flag=True, help="Take the word back.")
@pass_invocation
def trust(invocation: Invocation, names: tuple[str, ...], is_all: bool, revoke: bool) -> None:
    """Vouch for skills NAMES of the project, as they are now.

    Their instructions reach agents from now on. A skill that changes has to be trusted
    again. Read them first: `holdfast skills show NAME`.
    """
    library = _open_library(invocation)
    place = invocation.settings.workspace
    if is_all:
        names = tuple(s.name for s in library.find(place).skills if s.source == "project")
    if not names and not is_all:
        raise UsageError(detail="Name the skills, or give --all.")
    changed = [(library.revoke if revoke else library.trust)(place, name) for name in names]
    emit([_make_row(skill) for skill in changed], columns=["name", "source", "trusted", "purpose"])


def _open_library(invocation: Invocation) -> SkillLibrary:
    settings = invocation.settings
    return SkillLibrary(
        TrustStore(settings.storage_path), user_folders=[settings.user_dir / "skills"]
    )


def _make_row(skill: Skill) -> dict[str, object]:
    return {
        "name": skill.name,
        "source": skill.source,
        "trusted": skill.is_trusted,
        "purpose": skill.description,
        "directory": skill.directory,
        "warnings": list(skill.warnings),
    }


def _list_faults(file: Path) -> tuple[Fault, ...]:
    try:
        # A pipe in its place would keep us waiting for a person who writes.
        handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as stream:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return (Fault(text="it is no file"),)
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise FileError(path=str(file), detail=error.strerror or "unreadable") from error
    if len(data) > MAX_BYTES:
        return (Fault(text=f"it is larger than {MAX_BYTES} bytes"),)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return (Fault(text="it is no UTF-8", line=data.count(b"\n", 0, error.start) + 1),)
    return check_skill(text, file.absolute().parent.name)
