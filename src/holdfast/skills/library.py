"""Find the skills that hold for a directory: the project's, then the user's.

In a project, `.agents/skills`, `.holdfast/skills`, `.claude/skills` and `.opencode/skill`
are looked into, from the directory up to the root of the repository; the nearest skill of a
name wins. A folder below them that is no skill may hold skills itself, a few levels deep. Files
are opened as tools open files, so no link leads out of the project. What was read is read again
only when a file of the skill has changed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from holdfast.errors import HoldfastError, NotFound
from holdfast.skills.skill import MAX_SKILL_BYTES, SKILL_FILE, Skill, Source, parse_skill
from holdfast.skills.trust import TrustStore
from holdfast.tools import Workspace

PROJECT_FOLDERS = (".agents/skills", ".holdfast/skills", ".claude/skills", ".opencode/skill")
HOME_FOLDERS = (".agents/skills", ".claude/skills")
SEPARATE_PROJECTS = ".separate-projects"
"""In a directory: what lies in it are projects that have nothing to do with each other."""
MAX_SKILLS = 500
MAX_FILES = 500
MAX_TOTAL_BYTES = 8 * 1024 * 1024
_MAX_DEPTH = 6
_MAX_NESTING = 3
_KEPT = 2_000
_TRUST_PREFIX = "skill:"


class SkillCatalog(msgspec.Struct, frozen=True, kw_only=True):
    """What was found for a directory."""

    skills: tuple[Skill, ...] = ()
    problems: tuple[str, ...] = ()
    root: str = ""

    @property
    def offered(self) -> tuple[Skill, ...]:
        """The skills that may be used: by an agent, or only by a person (`is_for_people`)."""
        return tuple(skill for skill in self.skills if skill.is_trusted)

    def get(self, name: str) -> Skill:
        """Return a skill by name, trusted or not; raises NotFound."""
        for skill in self.skills:
            if skill.name == name:
                return skill
        raise NotFound(kind="skill", value=name)


class _File(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    size: int
    mtime_ns: int


class SkillLibrary:
    """Finds skills; every call blocks for a moment."""

    def __init__(
        self, trust: TrustStore, *, user_folders: Sequence[str | os.PathLike[str]] = ()
    ) -> None:
        """Look into these folders of the user too; their skills need no further trust."""
        self._trust = trust
        self._user_folders = tuple(Path(folder) for folder in user_folders)
        self._user_names = tuple(str(folder) for folder in self._user_folders)
        self._known: dict[tuple[str, str], tuple[tuple[_File, ...], Skill | None, str]] = {}

    def has_any(self, directory: str | os.PathLike[str]) -> bool:
        """Say whether there is anything that may hold skills; a few looks, nothing is read."""
        for own in self._user_names:
            if os.access(own, os.F_OK):
                return True
        for place in list_level_names(directory):
            for folder in _list_folders_in(place):
                if os.access(folder, os.F_OK):
                    return True
        return False

    def find(self, directory: str | os.PathLike[str]) -> SkillCatalog:
        """Return all skills that hold for a directory, by name, and what is wrong with them."""
        places = list_levels(directory)
        root = places[-1]
        found: dict[str, Skill] = {}
        problems: list[str] = []
        for skill, problem in self._iterate_everything(places, root):
            if problem:
                problems.append(problem)
            if skill is None:
                continue
            if skill.name in found:
                other = found[skill.name].directory
                problems.append(f"{skill.directory}: hidden by {other}, which has the same name")
            elif len(found) >= MAX_SKILLS:
                problems.append(f"{skill.directory}: left out, there are {MAX_SKILLS} already")
            else:
                found[skill.name] = self._judge_skill(skill, root)
        ordered = tuple(found[name] for name in sorted(found))
        return SkillCatalog(skills=ordered, problems=tuple(problems), root=str(root))

    def files(self, directory: str | os.PathLike[str]) -> tuple[Path, ...]:
        """Return every SKILL.md that is looked at for a directory, however wrong it is."""
        places = list_levels(directory)
        found: list[Path] = []
        for root, folder, _ in self._list_folders(places, places[-1]):
            with contextlib.suppress(HoldfastError):
                workspace = Workspace(root)
                found += [root / one / SKILL_FILE for one in _find_skill_folders(workspace, folder)]
        return tuple(file for file in found if os.path.lexists(file))

    def trust(self, directory: str | os.PathLike[str], name: str) -> Skill:
        """Vouch for a project's skill as it is now; raises NotFound."""
        catalog = self.find(directory)
        skill = catalog.get(name)
        if skill.source == "project":
            self._trust.trust(catalog.root, _TRUST_PREFIX + name, skill.digest)
        return replace(skill, is_trusted=True)

    def revoke(self, directory: str | os.PathLike[str], name: str) -> Skill:
        """Take the word for a project's skill back; raises NotFound."""
        catalog = self.find(directory)
        skill = catalog.get(name)
        self._trust.revoke(catalog.root, _TRUST_PREFIX + name)
        return replace(skill, is_trusted=skill.source != "project")

    # --- inside -----------------------------------------------------------------------

    def _iterate_everything(
        self, places: tuple[Path, ...], root: Path
    ) -> Iterator[tuple[Skill | None, str]]:
        for above, folder, source in self._list_folders(places, root):
            yield from self._iterate_folder(above, folder, source)

    def _list_folders(
        self, places: tuple[Path, ...], root: Path
    ) -> Iterator[tuple[Path, str, Source]]:
        """Every folder of skills: what it is below of, its path from there, and whose it is."""
        for level in places:
            for folder in PROJECT_FOLDERS:
                if (level / folder).is_dir():
                    yield root, str((level / folder).relative_to(root)), "project"
        for place in self._user_folders:
            if place.is_dir():
                yield place, ".", "user"

    def _iterate_folder(
        self, root: Path, folder: str, source: Source
    ) -> Iterator[tuple[Skill | None, str]]:
        try:
            workspace = Workspace(root)
            places = list(_find_skill_folders(workspace, folder))
        except HoldfastError as error:
            yield None, f"{root / folder}: {error}"
            return
        for place in places:
            yield self._read_one(workspace, place, source)

    def _read_one(
        self, workspace: Workspace, folder: str, source: Source
    ) -> tuple[Skill | None, str]:
        place = Path(workspace.root) / folder
        try:
            if not os.path.lexists(place / SKILL_FILE):
                return None, ""
            files = tuple(_iterate_files(workspace, folder))
            key = (workspace.root, folder)
            known = self._known.get(key)
            if known is not None and known[0] == files:
                return known[1], known[2]
            skill, problem = _load(workspace, folder, files, source)
        except HoldfastError as error:
            return None, f"{place}: {error}"
        if len(self._known) >= _KEPT:
            self._known.clear()
        self._known[key] = (files, skill, problem)
        return skill, problem

    def _judge_skill(self, skill: Skill, root: Path) -> Skill:
        if skill.source != "project":
            return skill
        name = _TRUST_PREFIX + skill.name
        if self._trust.is_trusted(root, name, skill.digest):
            return skill
        changed = self._trust.is_known(root, name)
        why = "changed since it was trusted" if changed else "not trusted yet"
        return replace(skill, is_trusted=False, warnings=(*skill.warnings, why))


def project_root(directory: str | os.PathLike[str]) -> Path:
    """Return the nearest directory upwards that holds `.git`, else the directory itself.

    Outside a repository only the directory counts: a file that a caller left in /tmp or
    in / must not instruct an agent.
    """
    return list_levels(directory)[-1]


def list_levels(directory: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Return the directories from a place up to the root of its project, nearest first."""
    return tuple([Path(place) for place in list_level_names(directory)])


def list_level_names(directory: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the same as texts."""
    place = os.fspath(directory)
    above, marks = _list_upwards(place if place.startswith(os.sep) else os.path.abspath(place))
    for count, mark in enumerate(marks, 1):
        if os.path.lexists(mark):
            return above[:count]
    return above[:1]


@functools.lru_cache(maxsize=1_024)
def _list_upwards(place: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A directory and all above it, and what marks each of them as the root of a repository.

    What lies in a directory of projects that have nothing to do with each other ends there.
    """
    found = [os.path.abspath(place)]
    while (above := os.path.dirname(found[-1])) != found[-1]:
        if os.path.lexists(os.path.join(above, SEPARATE_PROJECTS)):
            break
        found.append(above)
    return tuple(found), tuple([os.path.join(name, ".git") for name in found])


@functools.lru_cache(maxsize=1_024)
def _list_folders_in(place: str) -> tuple[str, ...]:
    return tuple([f"{place}/{folder}" for folder in PROJECT_FOLDERS])


def _find_skill_folders(workspace: Workspace, folder: str, depth: int = 0) -> Iterator[str]:
    """Every folder that may be a skill; one without a SKILL.md is looked into, links are not."""
    for entry in workspace.scandir(folder):
        if not _may_be_skill(entry.kind, entry.name):
            continue
        place = os.path.normpath(f"{folder}/{entry.name}")
        is_group = entry.kind == "directory" and depth < _MAX_NESTING
        if is_group and not os.path.lexists(os.path.join(workspace.root, place, SKILL_FILE)):
            with contextlib.suppress(HoldfastError):
                yield from _find_skill_folders(workspace, place, depth + 1)
        else:
            yield place


def _may_be_skill(kind: str, name: str) -> bool:
    return kind in ("directory", "link") and not name.startswith(".")


def _iterate_files(workspace: Workspace, folder: str, depth: int = 0) -> Iterator[_File]:
    """Every regular file of a skill; links and what lies too deep are no part of it."""
    for entry in workspace.scandir(folder, details=True):
        path = os.path.normpath(f"{folder}/{entry.name}")
        if entry.kind == "directory" and depth < _MAX_DEPTH:
            yield from _iterate_files(workspace, path, depth + 1)
        elif entry.kind == "file":
            yield _File(path=path, size=entry.size, mtime_ns=entry.mtime_ns)


def _load(
    workspace: Workspace, folder: str, files: tuple[_File, ...], source: Source
) -> tuple[Skill | None, str]:
    place = Path(workspace.root) / folder
    if len(files) > MAX_FILES or sum(file.size for file in files) > MAX_TOTAL_BYTES:
        return None, f"{place}: it has more than {MAX_FILES} files or {MAX_TOTAL_BYTES} bytes"
    whole = hashlib.sha256()
    text = b""
    for file in sorted(files, key=lambda one: one.path):
        is_main = os.path.basename(file.path) == SKILL_FILE and os.path.dirname(file.path) == folder
        data = workspace.read(file.path, max_bytes=MAX_SKILL_BYTES if is_main else MAX_TOTAL_BYTES)
        relative = os.path.relpath(file.path, folder)
        whole.update(f"{len(relative)}:{relative}:{len(data)}:".encode() + data)
        if is_main:
            text = data
    skill, faults = parse_skill(text.decode("utf-8", "replace"), os.path.basename(folder))
    problem = "; ".join(str(fault) for fault in faults)
    if skill is None:
        return None, f"{place / SKILL_FILE}: {problem}"
    others = sorted(os.path.relpath(f.path, folder) for f in files)
    skill = replace(
        skill,
        source=source,
        directory=str(place),
        files=tuple(name for name in others if name != SKILL_FILE),
        digest=whole.hexdigest(),
    )
    return skill, f"{place / SKILL_FILE}: {problem}" if problem else ""
