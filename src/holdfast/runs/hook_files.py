"""Hooks that are programs: found in files, trusted by a person, executed in the sandbox.

`<project>/.holdfast/hooks/NAME.yaml` and `<user_dir>/hooks/NAME.yaml` each describe one hook;
the programs stand beside them. A project's hooks run only after a person has trusted the
folder, and only as long as no file in it changes.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from holdfast.canonical import JsonObject, hash_sha256
from holdfast.errors import HoldfastError, NotFound, PermissionDenied
from holdfast.hooks import Hook, HookLimits, Hooks, ScriptOutcome, match_points
from holdfast.policy import CallRequest, PolicyBundle, PolicyStore, decide, parse_yaml
from holdfast.settings import HOOKS_FOLDER as FOLDER
from holdfast.skills import TrustStore, list_levels
from holdfast.tools import OpensReader, Program, SandboxedCommands, SandboxRunner, Workspace

_TRUST_NAME: Final = "hooks"
_MOST_FILES: Final = 100
_MOST_BYTES: Final = 1024 * 1024
_ANSWER_BYTES: Final = 1024 * 1024

HookSource: TypeAlias = Literal["project", "user"]


class _Description(BaseModel):
    """What a file says about its hook."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    point: str = Field(min_length=1)
    command: tuple[str, ...] = Field(min_length=1, max_length=50)
    priority: int = 0
    agent: str = ""
    guard: bool = False
    timeout_s: float = Field(default=10.0, gt=0, le=300)


class HookFile(msgspec.Struct, frozen=True, kw_only=True):
    """A hook that was found in a file; one with a problem is never used."""

    name: str
    path: str
    source: HookSource
    is_trusted: bool
    was_trusted: bool = False
    """Whether a person had trusted the folder, which has changed since."""
    point: str = ""
    command: tuple[str, ...] = ()
    priority: int = 0
    agent: str = ""
    is_guard: bool = False
    timeout_s: float = 10.0
    problem: str = ""


class HookFiles:
    """Finds hooks in files; every call blocks for a moment."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        user_folder: str | os.PathLike[str],
        trust: TrustStore,
    ) -> None:
        """Look from this directory upwards, and into the user's folder."""
        self._directory = Path(directory)
        self.user_folder = Path(user_folder)
        self._trust = trust
        self._of_project: set[tuple[str, ...]] = set()

    def has_any(self) -> bool:
        """Say whether there is a folder to look into; nothing is read."""
        return self.user_folder.is_dir() or self._project()[0] is not None

    def find(self) -> list[HookFile]:
        """Return all hooks: the user's, then those of the nearest folder of the project."""
        found = []
        if self.user_folder.is_dir():
            found += _read_folder(self.user_folder, self.user_folder, "user", is_trusted=True)
        folder, root = self._project()
        if folder is not None:
            is_trusted = self.is_trusted()
            own = _read_folder(folder, root, "project", is_trusted=is_trusted)
            if not is_trusted and self._trust.is_known(root, _TRUST_NAME):
                own = [msgspec.structs.replace(one, was_trusted=True) for one in own]
            self._of_project.update([one.command for one in own])
            found += own
        return found

    def list_folders(self) -> tuple[str, ...]:
        """Return the folders of programs that are there: the user's, and the project's."""
        found = [str(self.user_folder)] if self.user_folder.is_dir() else []
        folder, root = self._project()
        if folder is not None:
            real = os.path.realpath(folder)
            # A link out of the project brings nothing into reach.
            found += [real] if real.startswith(f"{os.path.realpath(root)}/") else []
        return tuple(found)

    def vouches_for(self, argv: Sequence[str]) -> bool:
        """Say whether a command is none of the project's, or trusted as its folder is now.

        A command is the project's if a description in its folder gave it, or if it names a
        file in such a folder, of the directory or of one above it.
        """
        places = [os.path.realpath(level / FOLDER) for level in list_levels(self._directory)]
        named = [place for place in places if any(word.startswith(f"{place}/") for word in argv)]
        if not named and tuple(argv) not in self._of_project:
            return True
        folder, _ = self._project()
        # Only the nearest folder can be trusted; the caller that names another one is not.
        is_nearest = folder is not None and set(named) <= {os.path.realpath(folder)}
        return is_nearest and self.is_trusted()

    def is_trusted(self) -> bool:
        """Say whether the project's folder is exactly what a person has trusted."""
        folder, root = self._project()
        return folder is not None and self._trust.is_trusted(
            root, _TRUST_NAME, _digest(folder, root)
        )

    def trust(self, *, revoke: bool = False) -> list[HookFile]:
        """Vouch for the project's folder as it is now, or take that back; raises NotFound."""
        folder, root = self._project()
        if folder is None:
            raise NotFound(kind="folder of hooks", value=f"{self._directory}/{FOLDER}")
        if revoke:
            self._trust.revoke(root, _TRUST_NAME)
        else:
            self._trust.trust(root, _TRUST_NAME, _digest(folder, root))
        return [one for one in self.find() if one.source == "project"]

    def _project(self) -> tuple[Path | None, Path]:
        places = list_levels(self._directory)
        for level in places:
            if (level / FOLDER).is_dir():
                return level / FOLDER, places[-1]
        return None, places[-1]


class ConfinedScripts:
    """Runs the programs of hooks: allowed by the policies, in the sandbox, without writing.

    They read the workspace and the folders of hooks, and have no network. A project's
    folder that changed since it was trusted runs nothing more.
    """

    def __init__(
        self,
        policies: Callable[[], Awaitable[PolicyStore]],
        open_reader: OpensReader,
        directory: str | os.PathLike[str],
        files: HookFiles,
        *,
        report: Callable[[JsonObject], None],
    ) -> None:
        """Run in this directory; the sandbox starts with the first program.

        `report` is told of every program that ran, and of the sandbox that confined it.
        """
        self._report = report
        self._policies = policies
        self._open_reader = open_reader
        self._directory = os.fspath(directory)
        self._files = files
        self._runner: SandboxRunner | None = None

    async def run(self, argv: Sequence[str], stdin: bytes, *, timeout_s: float) -> ScriptOutcome:
        """Execute a command and return how it ended.

        Raises:
            PermissionDenied: a policy does not allow it, or no caller trusts it as it is.
            SandboxFailed: it cannot be confined here, so it was not started.
            TimeoutError: it took too long.
            ValueError: it wrote too much.
        """
        self._check((await self._policies()).bundle, argv)
        if self._runner is None:
            self._runner = self._open_reader(self._directory)
        result = await SandboxedCommands(self._runner).run_program(
            Program(
                argv=tuple(argv),
                given=stdin,
                workspace="read",
                readable=self._files.list_folders(),
                timeout_s=timeout_s,
                max_output_bytes=_ANSWER_BYTES,
            )
        )
        self._report(
            {
                "command": list(argv),
                "exit_code": result.exit_code,
                "stopped": result.stopped,
                "sandbox": result.sandbox,
            }
        )
        if result.stopped == "timeout":
            raise TimeoutError
        if result.stopped:
            raise ValueError("it wrote too much and was stopped")
        return ScriptOutcome(
            exit_code=result.exit_code,
            stdout=result.stdout.encode(),
            stderr=result.stderr.encode(),
        )

    async def aclose(self) -> None:
        """End the sandbox."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.aclose()

    def _check(self, bundle: PolicyBundle, argv: Sequence[str]) -> None:
        text = shlex.join(argv)
        request = CallRequest(
            permission="hook", targets=(text,), target_kind="command", default="allow"
        )
        decision = decide(request, bundle.find_ceiling(""))
        if decision.action != "allow":
            raise PermissionDenied(permission="hook", target=text, because=decision.explain())
        if not self._files.vouches_for(argv):
            because = "the folder of hooks changed since a person trusted it"
            raise PermissionDenied(permission="hook", target=text, because=because)


def register_files(hooks: Hooks, files: Sequence[HookFile]) -> tuple[Hook, ...]:
    """Let trusted hooks of files take part; others, and broken ones, are left out.

    A guard of a folder that has changed since it was trusted takes part too. It is not
    executed as it is now, so it refuses: no caller gets rid of a guard by touching a file.
    """
    return tuple(
        hooks.on_script(
            one.point,
            one.command,
            name=f"script:{one.name}",
            priority=one.priority,
            agent=one.agent,
            is_guard=one.is_guard,
            limits=HookLimits(timeout_s=one.timeout_s),
        )
        for one in files
        if (one.is_trusted or (one.was_trusted and one.is_guard)) and not one.problem
    )


def _read_folder(
    folder: Path, root: Path, source: HookSource, *, is_trusted: bool
) -> list[HookFile]:
    try:
        workspace = Workspace(root)
        names = [name for name in _list_names(workspace, folder, root) if name.endswith(".yaml")]
    except HoldfastError as error:
        broken = HookFile(
            name=folder.name, path=str(folder), source=source, is_trusted=False, problem=str(error)
        )
        return [broken]
    return [_read(workspace, folder / name, root, source, is_trusted) for name in names]


def _read(
    workspace: Workspace, path: Path, root: Path, source: HookSource, is_trusted: bool
) -> HookFile:
    bare = HookFile(name=path.stem, path=str(path), source=source, is_trusted=is_trusted)
    try:
        data = workspace.read(os.path.relpath(path, root), max_bytes=_MOST_BYTES)
        told = parse_yaml(data.decode("utf-8", "replace"))
        if told.mistakes:
            line, text = told.mistakes[0]
            return _mark_broken(bare, f"{path}:{line}: {text}")
        said = _Description.model_validate(told.content)
        match_points(said.point)
    except ValidationError as error:
        first = error.errors()[0]
        line = told.find_line(tuple(first["loc"]))
        where = ".".join(str(step) for step in first["loc"])
        return _mark_broken(bare, f"{path}:{line}: {where}: {first['msg']}")
    except HoldfastError as error:
        return _mark_broken(bare, f"{path}: {error}")
    if said.guard and any("cancel" not in point.accepts for point in match_points(said.point)):
        return _mark_broken(bare, f"{path}: {said.point} takes no cancel, so a guard cannot guard")
    real = os.path.realpath(path.parent)
    return HookFile(
        name=path.stem,
        path=str(path),
        source=source,
        is_trusted=is_trusted,
        point=said.point,
        # `./check` means the file beside the description, wherever the program runs.
        command=tuple(
            os.path.join(real, word[2:]) if word.startswith("./") else word for word in said.command
        ),
        priority=said.priority,
        agent=said.agent,
        is_guard=said.guard,
        timeout_s=said.timeout_s,
    )


def _mark_broken(bare: HookFile, problem: str) -> HookFile:
    return msgspec.structs.replace(bare, problem=problem)


def _list_names(workspace: Workspace, folder: Path, root: Path) -> list[str]:
    entries = workspace.scandir(os.path.relpath(folder, root))
    return sorted(entry.name for entry in entries)[:_MOST_FILES]


def _digest(folder: Path, root: Path) -> str:
    """Return what the folder is: names and contents of all its files; nothing if unreadable."""
    try:
        workspace = Workspace(root)
        parts = []
        for name in _list_names(workspace, folder, root):
            data = workspace.read(os.path.relpath(folder / name, root), max_bytes=_MOST_BYTES)
            parts.append(f"{hash_sha256(name.encode())} {hash_sha256(data)}")
    except HoldfastError:
        return ""
    return hash_sha256("\n".join(parts).encode())


__all__ = ["ConfinedScripts", "HookFile", "HookFiles", "register_files"]
