"""Workflows in YAML files: every mistake with its line, and where files are looked for.

`<workspace>/.holdfast/workflows/NAME.yaml` and `<user_dir>/workflows/NAME.yaml`; the project's
wins. A file gives no rights: its calls are judged like those of a person at the command line.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from pydantic import ValidationError

from holdfast.canonical import JsonObject
from holdfast.errors import FileError, NotFound
from holdfast.orchestration.workflows.checks import check, check_calls
from holdfast.orchestration.workflows.definition import Definition, is_name
from holdfast.orchestration.workflows.workflow import describe_mistakes, refuse
from holdfast.policy import parse_yaml

FOLDER: Final = ".holdfast/workflows"
SUFFIXES: Final = (".yaml", ".yml")
MAX_BYTES: Final = 1024 * 1024
_MOST_FILES = 200
_MOST_CALLED = 50


class WorkflowInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow that is known by name or in a file; `problem` says if it cannot be used.

    It travels as the `data` that YAML would say; `definition` is the same as checked models.
    """

    name: str
    path: str = ""
    data: JsonObject | None = None
    problem: str = ""

    @classmethod
    def of(cls, definition: Definition, *, path: str = "") -> WorkflowInfo:
        """Describe a workflow that was checked."""
        return cls(name=definition.name, path=path, data=definition.to_json())

    @property
    def definition(self) -> Definition:
        """The workflow itself.

        Raises:
            WorkflowInvalid: it cannot be used.
        """
        if self.data is None:
            refuse([self.problem])
        return read_definition(self.data)


def parse_workflow(text: str, *, source: str = "workflow") -> Definition:
    """Return the workflow that a YAML text describes.

    Raises:
        WorkflowInvalid: something is wrong; all of it is named, each with its line.
    """
    data = parse_yaml(text)
    if data.mistakes:
        refuse([f"{source}:{line}: {wrong}" for line, wrong in data.mistakes])
    if not isinstance(data.content, dict):
        refuse([f"{source}:1: a workflow is an object with `name` and `steps`"])
    try:
        definition = Definition.model_validate(data.content)
    except ValidationError as error:
        refuse(
            [
                f"{source}:{data.find_line(place)}: {_format_place(place)}{t}"
                for place, t in describe_mistakes(error)
            ]
        )
    except RecursionError:
        refuse([f"{source}:1: the workflow is too deep"])
    found = [f"{source}:{data.find_line(one.place)}: {one.text}" for one in check(definition)]
    if found:
        refuse(found)
    return definition


def read_definition(data: JsonObject) -> Definition:
    """Return the workflow that data describes, as YAML would.

    Raises:
        WorkflowInvalid: something is wrong; all of it is named.
    """
    try:
        definition = Definition.model_validate(data)
    except ValidationError as error:
        refuse([f"{_format_place(place)}{text}" for place, text in describe_mistakes(error)])
    except RecursionError:
        refuse(["the workflow is too deep"])
    found = [one.text for one in check(definition)]
    if found:
        refuse(found)
    return definition


def _format_place(place: tuple[str | int, ...]) -> str:
    words = [part for part in place if isinstance(part, str)]
    return f"{words[-1]}: " if words else ""


def read_workflow(path: str | os.PathLike[str]) -> Definition:
    """Return the workflow of a file.

    Raises:
        FileError: it is no plain file that can be read.
        WorkflowInvalid: something is wrong in it.
    """
    try:
        # Without waiting: a pipe in its place would never end.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise FileError(path=str(path), detail="it is no plain file")
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise FileError(path=str(path), detail=error.strerror or "unreadable") from error
    if len(data) > MAX_BYTES:
        raise FileError(path=str(path), detail=f"it is larger than {MAX_BYTES} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise FileError(path=str(path), detail="it is no UTF-8 text") from error
    return parse_workflow(text, source=str(path))


class WorkflowFiles:
    """The workflows of some folders; the first folder that has a name wins."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """Look into these folders."""
        self._folders = tuple(folders)

    def find(self, name: str) -> Definition:
        """Return a workflow by name.

        Raises:
            NotFound: no folder has it.
            WorkflowInvalid: its file is wrong.
        """
        path = self.find_path(name)
        if path is None:
            raise NotFound(kind="workflow", value=name)
        definition = read_workflow(path)
        if definition.name != name:
            refuse([f"{path}:1: the file is called {name!r}, its workflow {definition.name!r}"])
        return definition

    def find_path(self, name: str) -> Path | None:
        """Return the file of a workflow, `None` if there is none."""
        if not is_name(name):
            return None
        for folder in self._folders:
            for suffix in SUFFIXES:
                path = folder / f"{name}{suffix}"
                if path.is_file():
                    return path
        return None

    def all(self) -> list[WorkflowInfo]:
        """Return every workflow, those that cannot be used with what is wrong."""
        found: dict[str, WorkflowInfo] = {}
        for folder in self._folders:
            if not folder.is_dir():
                continue
            files = sorted(p for p in folder.iterdir() if p.suffix in SUFFIXES)
            for path in files[:_MOST_FILES]:
                if path.stem not in found:
                    found[path.stem] = _read(path)
        return sorted(found.values(), key=lambda one: one.name)

    def open_beside(self, folder: Path) -> WorkflowFiles:
        """Return the same with another folder that is looked into first."""
        return WorkflowFiles((folder, *self._folders))


def _read(path: Path) -> WorkflowInfo:
    try:
        definition = read_workflow(path)
        return WorkflowInfo(name=path.stem, path=str(path), data=definition.to_json())
    except Exception as error:  # noqa: BLE001 - one broken file does not hide the others
        return WorkflowInfo(name=path.stem, path=str(path), problem=str(error))


def resolve(
    root: Definition, known: Mapping[str, Definition], files: WorkflowFiles
) -> dict[str, Definition]:
    """Return every workflow that a workflow starts, directly or not.

    Raises:
        WorkflowInvalid: one is missing, or they start one another in a circle.
    """
    found: dict[str, Definition] = {}
    waiting = list(root.calls)
    while waiting:
        name = waiting.pop()
        if name in found or name == root.name:
            continue
        called = known.get(name)
        if called is None and files.find_path(name) is not None:
            called = files.find(name)
        if called is None:
            continue
        found[name] = called
        waiting += called.calls
        if len(found) > _MOST_CALLED:
            refuse([f"it starts more than {_MOST_CALLED} workflows"])
    wrong = check_calls(root, found)
    if wrong:
        refuse([one.text for one in wrong])
    return found


__all__ = [
    "FOLDER",
    "WorkflowFiles",
    "WorkflowInfo",
    "parse_workflow",
    "read_workflow",
    "resolve",
]
