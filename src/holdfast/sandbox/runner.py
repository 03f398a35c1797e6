"""Run commands inside a profile, and say which sandbox held them."""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import os
import shlex
import shutil
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec.structs import asdict, replace

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import FileUnsuitable, SandboxFailed, UsageError
from holdfast.sandbox.bubblewrap import View, build_bubblewrap_arguments
from holdfast.sandbox.git_code import list_pointers, remove_pointers
from holdfast.sandbox.launch import (
    FileAnswer,
    FileQuestion,
    Launcher,
    LauncherConfig,
    ProcessEnd,
    ServesEgress,
)
from holdfast.sandbox.privileged_files import clear_privileged
from holdfast.sandbox.profiles import (
    FILTERED,
    NETWORK_PATHS,
    PATH,
    SYSTEM_PATHS,
    Level,
    Profile,
    SandboxLimits,
    can_write_workspace,
    clean_environment,
    has_network,
    proxy_environment,
)
from holdfast.sandbox.reach import Reach, reach_of
from holdfast.sandbox.stream import SandboxStream
from holdfast.sandbox.workspace import Workspace
from holdfast.settings import Gap, UnvouchedSettings, WriteWindow
from holdfast.turns import is_exhaustion

LevelChoice: TypeAlias = Literal["auto", "bubblewrap", "landlock"]
_Rights: TypeAlias = tuple[str, Profile, tuple[str, ...], tuple[str, ...]]

_MOST_IDLE = 2
_MOST_RUNS = 500
_FIRST_UID, _UIDS = 61_500, 3_000
_counter = itertools.count()
_log = logging.getLogger("holdfast.sandbox")


class RedirectionLike(Protocol):
    """One descriptor of a program, connected to a file or to another descriptor."""

    @property
    def fd(self) -> int:
        """The descriptor."""
        ...

    @property
    def mode(self) -> str:
        """`read`, `write`, `append` or `duplicate`."""
        ...

    @property
    def path(self) -> str:
        """The file, relative to where the program runs."""
        ...

    @property
    def source_fd(self) -> int:
        """For `duplicate`: the other descriptor."""
        ...


class CommandLike(Protocol):
    """One program with exactly the arguments that it gets."""

    @property
    def argv(self) -> tuple[str, ...]:
        """The program and its arguments."""
        ...

    @property
    def assignments(self) -> tuple[tuple[str, str], ...]:
        """Variables for this program only."""
        ...

    @property
    def redirections(self) -> Sequence[RedirectionLike]:
        """Where its descriptors go."""
        ...


class PipelineLike(Protocol):
    """Programs that feed each other."""

    @property
    def commands(self) -> Sequence[CommandLike]:
        """The programs, in order."""
        ...

    @property
    def connector(self) -> str:
        """`;`, `&&` or `||`: when to start."""
        ...


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


class _Redirection(msgspec.Struct, frozen=True):
    fd: int
    mode: str
    path: str
    source_fd: int


class _Program(msgspec.Struct, frozen=True):
    argv: tuple[str, ...]
    environment: dict[str, str]
    redirections: list[_Redirection]


class _Stage(msgspec.Struct, frozen=True):
    connector: str
    commands: list[_Program]


class _Job(msgspec.Struct, frozen=True):
    directory: str
    pipelines: list[_Stage]
    has_input: bool = False


class _Before(NamedTuple):
    """What was missing when a command started."""

    gap: Gap | None
    window: WriteWindow | None
    pointers: frozenset[str]


class SandboxOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How commands are confined.

    `readable` and `writable` are further paths that they may read, or also write, whatever
    the profile says of the workspace. `hidden` are paths that they must not see although they
    may be within reach (the state directory, for example); what the rules of the workspace keep
    from being read is hidden as well. `read_only` are paths within reach that they must not
    write; `unvouched` keeps those that are missing from being obeyed once a command has made them.
    `egress` is the proxy of the filtered profiles, and the only thing that they reach.
    `level` is for tests and for those who must insist: `auto` takes the strongest that works.
    """

    profile: Profile = "workspace-write"
    limits: SandboxLimits = msgspec.field(default_factory=SandboxLimits)
    level: LevelChoice = "auto"
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    unvouched: UnvouchedSettings | None = None
    egress: ServesEgress | None = None
    with_namespaces: bool = True


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
        self._uid = _FIRST_UID + (os.getpid() * 13 + next(_counter)) % _UIDS
        self._scratch = ""
        self._level: Level | None = None
        self._idle: list[Launcher] = []
        self._choosing: asyncio.Lock | None = None
        self._level_name = ""
        self._beside: dict[_Rights, SandboxRunner] = {}
        self._first_ns = 0
        self._written = 0
        self._counted: weakref.WeakKeyDictionary[Launcher, int] = weakref.WeakKeyDictionary()
        self.objections: dict[str, str] = {}

    @property
    def profile(self) -> Profile:
        """What commands may do."""
        return self._options.profile

    @property
    def level_name(self) -> str:
        """Level and profile as the journal names them; empty before the first command."""
        return self._level_name

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
        launcher = await self._acquire()
        self._release(launcher)
        return self._level_name

    async def is_boundary(self) -> bool:
        """Say whether the sandbox holds any script, whatever it says: namespaces and all.

        Landlock alone is none: its processes see those of the machine, and some of its sockets.
        """
        if self._level is None:
            try:
                await self.start()
            except SandboxFailed as error:
                if is_exhaustion(error):
                    raise
                return False
        return self._level_name.startswith(("bubblewrap/", "landlock+namespaces/"))

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
        stages = [
            _Stage(pipeline.connector, [self._make_program(one) for one in pipeline.commands])
            for pipeline in pipelines
        ]
        return await self._run(stages, directory, self._compute_bounds(timeout_s, output_bytes))

    async def run_argv(
        self, argv: Sequence[str], *, directory: str = ".", timeout_s: float | None = None
    ) -> SandboxResult:
        """Run one program with these arguments; otherwise as `run`."""
        stages = [_Stage(";", [_Program(tuple(argv), {}, [])])]
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
        stages = [_Stage(";", [_Program(tuple(argv), dict(environment), [])])]
        return await self._run(stages, ".", limits, given)

    async def open_program(
        self, argv: Sequence[str], *, line_bytes: int, environment: Mapping[str, str] | None = None
    ) -> SandboxStream:
        """Start one program that stays, and return the stream to it; the caller closes
        it.

        It starts at the top of the workspace, inside the profile, with its limits but that of
        time. `line_bytes` is the longest line of it that can be read. `environment` holds values
        of our own making, which are not checked as those of the options are.

        Raises:
            SandboxFailed: it cannot be confined here, so it was not started.
        """
        stages = [_Stage(";", [_Program(tuple(argv), dict(environment or {}), [])])]
        before = await asyncio.to_thread(self._look_before)
        on_end = functools.partial(self._look_after, before)
        try:
            launcher = await self._acquire()
        except BaseException:
            await asyncio.to_thread(on_end)
            raise
        job = self._encode_job(stages, self._workspace.root, launcher, has_input=True)
        return await SandboxStream.start(
            launcher, job, level_name=self._level_name, line_bytes=line_bytes, on_end=on_end
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
        stages = [_Stage(";", [_Program(argv, dict(environment or {}), [])])]
        return await self._run(stages, directory, self._compute_bounds(timeout_s, output_bytes))

    @property
    def is_idle(self) -> bool:
        """Whether nothing was started that `aclose` would have to end."""
        return not (self._beside or self._idle or self._scratch)

    async def aclose(self) -> None:
        """End the launchers, remove the scratch directory, and take what gives rights.

        Files that became set-uid or set-gid since the first command lose these bits, and the
        log says which; the filter of system calls lets no command make one.
        """
        beside, self._beside = list(self._beside.values()), {}
        for runner in beside:
            await runner.aclose()
        idle, self._idle = self._idle, []
        for launcher in idle:
            await launcher.close()
        if self._scratch:
            scratch, self._scratch = self._scratch, ""
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
            await asyncio.to_thread(self._clear_privileged)

    # --- within ---------------------------------------------------------------------

    def _make_program(self, command: CommandLike) -> _Program:
        redirections = [
            _Redirection(one.fd, one.mode, one.path, one.source_fd) for one in command.redirections
        ]
        return _Program(command.argv, dict(command.assignments), redirections)

    def _compute_bounds(self, timeout_s: float | None, output_bytes: int | None) -> SandboxLimits:
        limits = self._options.limits
        if timeout_s is not None:
            limits = replace(limits, timeout_s=timeout_s)
        return limits if output_bytes is None else replace(limits, output_bytes=output_bytes)

    async def _run(
        self,
        stages: list[_Stage],
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
            sandbox=self._level_name,
            duration_s=self._clock.monotonic() - started,
        )

    async def _execute(
        self, stages: list[_Stage], where: str, limits: SandboxLimits, given: bytes | None
    ) -> ProcessEnd:
        launcher = await self._acquire()
        try:
            return await launcher.run(
                self._encode_job(stages, where, launcher, has_input=given is not None),
                self._compute_left(launcher, limits),
                opener=self._open if _needs_files(stages) else None,
                timeout_s=limits.timeout_s,
                given=given,
            )
        finally:
            if launcher.is_usable:
                written = (await launcher.measure()).written_bytes
                self._written += max(0, written - self._counted.get(launcher, 0))
                self._counted[launcher] = written
                self._release(launcher)
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

    def _writable(self) -> list[str]:
        """The directories that commands may write."""
        options = self._options
        trees = self._workspace.trees if can_write_workspace(options.profile) else ()
        return [*(path for path, is_writable in trees if is_writable), *options.writable]

    def _make_scratch(self) -> None:
        self._scratch = tempfile.mkdtemp(prefix="holdfast-sandbox-")
        # By the clock that stamps files, so that both can be compared.
        self._first_ns = os.stat(self._scratch).st_ctime_ns

    def _clear_privileged(self) -> None:
        if self._level in (None, "none"):
            return
        for path in clear_privileged(self._writable(), since_ns=self._first_ns):
            _log.warning("took set-uid and set-gid from %s, which came up during commands", path)

    def _look_before(self) -> _Before | None:
        """Note what is missing that a command could make, and nothing could keep it from."""
        options = self._options
        writable = self._writable()
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
        self, stages: list[_Stage], directory: str, launcher: Launcher, *, has_input: bool
    ) -> bytes:
        home = self._scratch_target if self._is_moved(launcher) else self._scratch
        base = clean_environment(self._options.environment, home=home)
        if self._options.profile in FILTERED:
            base |= proxy_environment()
        stages = [
            _Stage(
                stage.connector,
                [
                    _Program(one.argv, {**base, **one.environment}, one.redirections)
                    for one in stage.commands
                ],
            )
            for stage in stages
        ]
        return msgspec.json.encode(_Job(directory, stages, has_input))

    def _is_moved(self, launcher: Launcher) -> bool:
        return self._level == "bubblewrap" or launcher.facts.has_view

    @property
    def _scratch_target(self) -> str:
        return self._scratch if self._workspace.root == "/tmp" else "/tmp"

    async def _acquire(self) -> Launcher:
        if self._level is None:
            if self._choosing is None:
                self._choosing = asyncio.Lock()
            async with self._choosing:
                if self._level is None:
                    return await self._choose()
        reach = await self._reach()
        while self._idle:
            launcher = self._idle.pop()
            if launcher.reach == reach and launcher.runs < _MOST_RUNS:
                return launcher
            await launcher.close()
        return await Launcher.start(self._make_config(self._level, reach), self._options.egress)

    def _release(self, launcher: Launcher) -> None:
        if len(self._idle) < _MOST_IDLE and self._scratch:
            self._idle.append(launcher)
            return
        task = asyncio.get_running_loop().create_task(launcher.close())
        _closing.add(task)
        task.add_done_callback(_closing.discard)

    async def _choose(self) -> Launcher:
        """Start a launcher on the strongest level that really works here."""
        if not self._scratch:
            await asyncio.to_thread(self._make_scratch)
            weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
        for level in self._list_levels():
            try:
                launcher = await self._try(level)
            except SandboxFailed as error:
                if is_exhaustion(error):
                    # That says nothing about the level; a weaker one must not take its place.
                    raise
                self.objections[level] = str(error.context.get("detail", error))
                continue
            self._level = level
            extra = "+namespaces" if level == "landlock" and launcher.facts.namespaces else ""
            self._level_name = f"{level}{extra}/{self._options.profile}"
            return launcher
        told = "; ".join(f"{level}: {because}" for level, because in self.objections.items())
        raise SandboxFailed(detail=f"no sandbox works on this machine ({told})")

    def _list_levels(self) -> list[Level]:
        if self._options.profile == "full":
            return ["none"]
        if self._options.level != "auto":
            return [self._options.level]
        return ["bubblewrap", "landlock"]

    async def _try(self, level: Level) -> Launcher:
        if not sys.platform.startswith("linux"):
            raise SandboxFailed(detail="only Linux has what it takes")
        config = self._make_config(level, await self._reach())
        launcher = await Launcher.start(config, self._options.egress)
        if level != "bubblewrap":
            return launcher
        # Installed is not the same as permitted: let it run something.
        stage = _Stage(";", [_Program(("true",), clean_environment({}, home="/tmp"), [])])
        job = msgspec.json.encode(_Job(self._workspace.root, [stage]))
        try:
            ended = await launcher.run(job, self._options.limits, opener=None, timeout_s=20)
        except BaseException:
            await launcher.close()
            raise
        if ended.exit_code or ended.stopped:
            await launcher.close()
            raise SandboxFailed(detail=f"bwrap does not work: {ended.stderr.text().strip()[:300]}")
        return launcher

    async def _reach(self) -> Reach:
        """Look what commands may reach as things are now."""
        options = self._options
        further = [(path, False) for path in options.readable]
        further += [(path, True) for path in options.writable]
        look = functools.partial(
            reach_of,
            self._workspace,
            further,
            can_write=can_write_workspace(options.profile),
            hidden=options.hidden,
            read_only=options.read_only,
        )
        return await asyncio.to_thread(look) if self._workspace.rules.keeps_from_reading else look()

    def _make_config(self, level: Level, reach: Reach) -> LauncherConfig:
        options = self._options
        is_kept_in = options.profile in FILTERED
        system = [*SYSTEM_PATHS, *(NETWORK_PATHS if has_network(options.profile) else ())]
        limits = asdict(options.limits)
        wrapper: list[str] = []
        if level == "bubblewrap":
            program = shutil.which("bwrap", path=PATH)
            if program is None:
                raise SandboxFailed(detail="bwrap is not installed")
            view = View(
                system=system,
                reach=reach,
                scratch_target=self._scratch_target,
                # The filtered network is the launcher's own, made before bubblewrap starts.
                has_network=has_network(options.profile) or is_kept_in,
            )
            wrapper = build_bubblewrap_arguments(program, view)
        return LauncherConfig(
            level=level,
            network=has_network(options.profile) or is_kept_in,
            is_filtered=is_kept_in,
            namespaces=options.with_namespaces,
            workspace=self._workspace.root,
            reach=reach,
            scratch=(self._scratch, self._scratch_target),
            system=system,
            uid=self._uid,
            limits={name: int(value) for name, value in limits.items()},
            wrapper=wrapper,
        )

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


_closing: set[asyncio.Task[None]] = set()


def _needs_files(stages: list[_Stage]) -> bool:
    return any(
        one.argv[0] == "cd" or any(target.mode != "duplicate" for target in one.redirections)
        for stage in stages
        for one in stage.commands
    )


__all__ = [
    "CommandLike",
    "PipelineLike",
    "RedirectionLike",
    "SandboxOptions",
    "SandboxResult",
    "SandboxRunner",
]
