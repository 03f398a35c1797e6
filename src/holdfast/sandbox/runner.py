"""Run commands inside a profile, and say which sandbox held them."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import shlex
import weakref
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import FileUnsuitable, SandboxFailed, UsageError
from holdfast.sandbox.git_code import list_pointers, remove_pointers
from holdfast.sandbox.jobs import (
    JobStage,
    PipelineLike,
    encode_job,
    make_stage,
    make_stages,
    needs_files,
)
from holdfast.sandbox.launch import (
    FileAnswer,
    FileQuestion,
    Launcher,
    ProcessEnd,
)
from holdfast.sandbox.launcher_pool import LauncherPool
from holdfast.sandbox.options import SandboxOptions
from holdfast.sandbox.privileged_files import clear_privileged
from holdfast.sandbox.profiles import (
    FILTERED,
    Profile,
    SandboxLimits,
    can_write_workspace,
    clean_environment,
    make_proxy_environment,
)
from holdfast.sandbox.stream import SandboxStream
from holdfast.sandbox.workspace import Workspace
from holdfast.settings import Gap, WriteWindow
from holdfast.turns import is_exhaustion

_Rights: TypeAlias = tuple[str, Profile, tuple[str, ...], tuple[str, ...]]

_log = logging.getLogger("holdfast.sandbox")


class SandboxResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended; head and tail of long output are kept, the middle is not.

    `exit_code` is negative when a signal ended it. `stopped` says why we ended it:
    `timeout`, `output`, `memory`, `disk`, or empty. `sandbox` is level and profile, for the
    journal.
    """

    exit_code: int
    stdout: str
    stderr: str
    stopped: str = ""
    is_truncated: bool = False
    sandbox: str = ""
    duration_s: float = 0.0


class _Before(NamedTuple):
    """What was missing when a command started."""

    gap: Gap | None
    window: WriteWindow | None
    pointers: frozenset[str]


class SandboxRunner:
    """Runs commands in a workspace, always inside its profile or not at all.

    Nothing is weaker than what `level_name` says: where no sandbox works, every command
    is refused. Close it when done; what it started ends with it in any case.
    """

    def __init__(
        self, workspace: Workspace, options: SandboxOptions | None = None, *, clock: Clock = SYSTEM
    ) -> None:
        """Prepare; processes start with the first command.

        Raises:
            UsageError: the workspace is the root of the file system, a variable given for
                commands makes programs load something, or a filtered profile has no proxy.
        """
        self._workspace = workspace
        self._options = options or SandboxOptions()
        self._clock = clock
        if workspace.root == "/":
            raise UsageError(detail="The root of the file system cannot be a sandbox's workspace.")
        if self._options.egress is None and self._options.profile in FILTERED:
            raise UsageError(detail="A filtered network needs a proxy (SandboxOptions.egress).")
        if self._options.environment:
            clean_environment(self._options.environment, home="/")
        self._beside: dict[_Rights, SandboxRunner] = {}
        self._written = 0
        self._counted: weakref.WeakKeyDictionary[Launcher, int] = weakref.WeakKeyDictionary()

    @functools.cached_property
    def _pool(self) -> LauncherPool:
        """Made with the first command; most turns have none."""
        return LauncherPool(self._workspace, self._options)

    @property
    def objections(self) -> dict[str, str]:
        """Why each stronger level does not work here; empty before the first command."""
        return self._pool.objections

    @property
    def profile(self) -> Profile:
        """What commands may do."""
        return self._options.profile

    @property
    def level_name(self) -> str:
        """Level and profile as the journal names them; empty before the first command."""
        return self._pool.level_name

    def open_beside(
        self,
        profile: Profile,
        *,
        workspace: Workspace | None = None,
        readable: tuple[str, ...] = (),
        writable: tuple[str, ...] = (),
    ) -> SandboxRunner:
        """Return a runner with rights of its own, otherwise like this one, which closes it."""
        place = workspace or self._workspace
        options = replace(self._options, profile=profile, readable=readable, writable=writable)
        key = (place.root, profile, readable, writable)
        found = self._beside.get(key)
        if found is None:
            found = self._beside[key] = SandboxRunner(place, options, clock=self._clock)
        return found

    async def start(self) -> str:
        """Find the strongest sandbox that works, and return `level_name`.

        Raises:
            SandboxFailed: none works; says why for each.
        """
        launcher = await self._pool.acquire()
        self._pool.release(launcher)
        return self._pool.level_name

    async def is_boundary(self) -> bool:
        """Say whether the sandbox holds any script, whatever it says: namespaces and all.

        Landlock alone is none: its processes see those of the machine, and some of its sockets.
        """
        if self._pool.level is None:
            try:
                await self.start()
            except SandboxFailed as error:
                if is_exhaustion(error):
                    raise
                return False
        return self._pool.level_name.startswith(("bubblewrap/", "landlock+namespaces/"))

    async def run(
        self,
        pipelines: Sequence[PipelineLike],
        *,
        directory: str = ".",
        timeout_s: float | None = None,
        output_bytes: int | None = None,
    ) -> SandboxResult:
        """Run a parsed command exactly as it was parsed, without a shell.

        Cancelling ends every process that it started.

        Raises:
            SandboxFailed: it cannot be confined here, so it was not started.
            FileMissing, FileUnsuitable, PermissionDenied: the directory cannot be used.
        """
        bounds = self._compute_bounds(timeout_s, output_bytes)
        return await self._run(make_stages(pipelines), directory, bounds)

    async def run_argv(
        self, argv: Sequence[str], *, directory: str = ".", timeout_s: float | None = None
    ) -> SandboxResult:
        """Run one program with these arguments; otherwise as `run`."""
        stages = [make_stage(argv)]
        return await self._run(stages, directory, self._compute_bounds(timeout_s, None))

    async def run_program(
        self,
        argv: Sequence[str],
        given: bytes,
        *,
        environment: Mapping[str, str],
        timeout_s: float | None = None,
        output_bytes: int | None = None,
    ) -> SandboxResult:
        """Run one program that reads `given` and then the end; otherwise as `run`.

        It starts at the top of the workspace. Nothing of its output is left out: one that
        writes more than `output_bytes` is ended.
        """
        limits = replace(self._compute_bounds(timeout_s, output_bytes), flood_factor=1)
        stages = [make_stage(argv, environment)]
        return await self._run(stages, ".", limits, given)

    async def open_program(
        self, argv: Sequence[str], *, line_bytes: int, environment: Mapping[str, str] | None = None
    ) -> SandboxStream:
        """Start one program that stays, and return the stream to it; the caller closes
        it.

        It starts at the top of the workspace, inside the profile, with its limits but that of
        time; one that exceeds a total is ended, and its last complaint says so. `line_bytes` is
        the longest line of it that can be read. `environment` holds values of our own making,
        which are not checked as those of the options are.

        Raises:
            SandboxFailed: it cannot be confined here, so it was not started.
        """
        stages = [make_stage(argv, environment)]
        before = await asyncio.to_thread(self._look_before)
        on_end = functools.partial(self._look_after, before)
        try:
            launcher = await self._pool.acquire()
        except BaseException:
            await asyncio.to_thread(on_end)
            raise
        job = self._encode_job(stages, self._workspace.root, launcher, has_input=True)
        return await SandboxStream.start(
            launcher,
            job,
            level_name=self._pool.level_name,
            line_bytes=line_bytes,
            limits=self._compute_left(launcher, self._options.limits),
            on_end=on_end,
        )

    async def run_text(
        self,
        text: str,
        *,
        directory: str = ".",
        environment: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        output_bytes: int | None = None,
    ) -> SandboxResult:
        """Run a text in bash as it is; otherwise as `run`.

        The only way in which a shell sees a string here. The caller holds an approval that is
        sealed to exactly this text, or knows that no rule looks into commands and that the
        sandbox is the boundary (`is_boundary`). `environment` holds values of our own making.
        """
        argv = ("/bin/bash", "--noprofile", "--norc", "-c", text)
        stages = [make_stage(argv, environment)]
        return await self._run(stages, directory, self._compute_bounds(timeout_s, output_bytes))

    @property
    def is_idle(self) -> bool:
        """Whether nothing was started that `aclose` would have to end."""
        return not self._beside and ("_pool" not in self.__dict__ or self._pool.is_idle)

    async def aclose(self) -> None:
        """End the launchers, remove the scratch directory, and take what gives rights.

        Files that became set-uid or set-gid since the first command lose these bits, and the
        log says which; the filter of system calls lets no command make one.
        """
        beside, self._beside = list(self._beside.values()), {}
        for runner in beside:
            await runner.aclose()
        if await self._pool.close():
            await asyncio.to_thread(self._clear_privileged)

    # --- within ---------------------------------------------------------------------

    def _compute_bounds(self, timeout_s: float | None, output_bytes: int | None) -> SandboxLimits:
        limits = self._options.limits
        if timeout_s is not None:
            limits = replace(limits, timeout_s=timeout_s)
        return limits if output_bytes is None else replace(limits, output_bytes=output_bytes)

    async def _run(
        self,
        stages: list[JobStage],
        directory: str,
        limits: SandboxLimits,
        given: bytes | None = None,
    ) -> SandboxResult:
        where, before = await asyncio.to_thread(self._begin, directory)
        started = self._clock.monotonic()
        try:
            ended = await self._execute(stages, where, limits, given)
        finally:
            said = await asyncio.to_thread(self._look_after, before)
        return SandboxResult(
            exit_code=ended.exit_code,
            stdout=ended.stdout.text(),
            stderr=ended.stderr.text() + said,
            stopped=ended.stopped,
            is_truncated=bool(ended.stdout.left_out or ended.stderr.left_out),
            sandbox=self._pool.level_name,
            duration_s=self._clock.monotonic() - started,
        )

    async def _execute(
        self, stages: list[JobStage], where: str, limits: SandboxLimits, given: bytes | None
    ) -> ProcessEnd:
        launcher = await self._pool.acquire()
        try:
            return await launcher.run(
                self._encode_job(stages, where, launcher, has_input=given is not None),
                self._compute_left(launcher, limits),
                opener=self._open if needs_files(stages) else None,
                timeout_s=limits.timeout_s,
                given=given,
            )
        finally:
            if launcher.is_usable:
                written = (await launcher.measure()).written_bytes
                self._written += max(0, written - self._counted.get(launcher, 0))
                self._counted[launcher] = written
                self._pool.release(launcher)
            else:
                await launcher.close()

    def _compute_left(self, launcher: Launcher, limits: SandboxLimits) -> SandboxLimits:
        """Return the limits with what may still be written, on the launcher's own account."""
        if not limits.total_disk_bytes:
            return limits
        elsewhere = self._written - self._counted.get(launcher, 0)
        return replace(limits, total_disk_bytes=max(1, limits.total_disk_bytes - elsewhere))

    def _begin(self, directory: str) -> tuple[str, _Before | None]:
        return self._enter(directory), self._look_before()

    def _list_writable(self) -> list[str]:
        """The directories that commands may write."""
        options = self._options
        trees = self._workspace.trees if can_write_workspace(options.profile) else ()
        return [*(path for path, is_writable in trees if is_writable), *options.writable]

    def _clear_privileged(self) -> None:
        if self._pool.level in (None, "none"):
            return
        for path in clear_privileged(self._list_writable(), since_ns=self._pool.first_ns):
            _log.warning("took set-uid and set-gid from %s, which came up during commands", path)

    def _look_before(self) -> _Before | None:
        """Note what is missing that a command could make, and nothing could keep it from."""
        options = self._options
        writable = self._list_writable()
        if not writable:
            return None
        gap = window = None
        if options.unvouched is not None:
            gap = options.unvouched.begin(writable)
            window = options.unvouched.writes.begin(writable)
        return _Before(gap, window, list_pointers(self._workspace.root))

    def _look_after(self, before: _Before | None) -> str:
        """Return what is to be said about what came."""
        if before is None:
            return ""
        root = self._workspace.root
        if before.window is not None:
            before.window.end()
        said = [
            f"{path} was removed: it would lead git to other settings."
            for path in remove_pointers(root, before.pointers)
        ]
        for path in before.gap.end() if before.gap is not None else ():
            said.append(
                f"{path} was made or changed meanwhile, which no command may do: a person has to "
                f"look at it and run `holdfast config trust {shlex.quote(path)}`, or undo it."
            )
        return "".join(f"\nholdfast: {one}" for one in said)

    def _encode_job(
        self, stages: list[JobStage], directory: str, launcher: Launcher, *, has_input: bool
    ) -> bytes:
        home = self._pool.find_home(launcher)
        environment = clean_environment(self._options.environment, home=home)
        if self._options.profile in FILTERED:
            environment |= make_proxy_environment()
        return encode_job(stages, directory, environment, has_input=has_input)

    def _enter(self, directory: str) -> str:
        info = self._workspace.stat(directory)
        if info.kind != "directory":
            raise FileUnsuitable(path=directory, found="a file", wanted="a directory")
        return os.path.normpath(os.path.join(self._workspace.root, info.path))

    def _open(self, question: FileQuestion) -> FileAnswer:
        """Open a file of a redirection, or enter a directory, through the workspace."""
        if question.path_enter:
            wanted = os.path.join(question.directory, question.path_enter)
            return FileAnswer(directory=self._enter(wanted))
        path = os.path.join(question.directory, question.path_open)
        if question.mode == "read":
            with self._workspace.open(path) as stream:
                return FileAnswer(fd=os.dup(stream.fileno()))
        if not can_write_workspace(self._options.profile):
            raise UsageError(detail=f"{question.path_open}: the profile is read-only")
        with self._workspace.open_output(path, is_append=question.mode == "append") as stream:
            fd = os.dup(stream.fileno())
        if os.geteuid() == 0 and os.fstat(fd).st_uid == 0:
            owner = os.stat(self._workspace.root)
            os.fchown(fd, owner.st_uid, owner.st_gid)
        return FileAnswer(fd=fd)
