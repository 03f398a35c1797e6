"""Launchers of one runner: the strongest level that works here, and those that wait."""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import shutil
import sys
import tempfile
import weakref

from msgspec.structs import asdict

from holdfast.errors import SandboxFailed
from holdfast.sandbox.bubblewrap import View, build_bubblewrap_arguments
from holdfast.sandbox.jobs import encode_job, make_stage
from holdfast.sandbox.launch import Launcher, LauncherConfig
from holdfast.sandbox.options import SandboxOptions
from holdfast.sandbox.profiles import (
    FILTERED,
    NETWORK_PATHS,
    PATH,
    SYSTEM_PATHS,
    Level,
    can_write_workspace,
    clean_environment,
    has_network,
)
from holdfast.sandbox.reach import Reach, compute_reach
from holdfast.sandbox.workspace import Workspace
from holdfast.turns import is_exhaustion

_MOST_IDLE = 2
_MOST_RUNS = 500
_FIRST_UID, _UIDS = 61_500, 3_000
_counter = itertools.count()
_closing: set[asyncio.Task[None]] = set()


class LauncherPool:
    """Starts launchers, keeps a few that are idle, and never takes a weaker level than it found.

    `level_name` is level and profile as the journal names them, empty before the first launcher;
    `objections` says of each stronger level why it does not work. `scratch` is the directory that
    commands have as their home, and `first_ns` when it was made, by the clock that stamps files.
    """

    def __init__(self, workspace: Workspace, options: SandboxOptions) -> None:
        """Prepare; nothing starts before the first `acquire`."""
        self._workspace = workspace
        self._options = options
        self._uid = _FIRST_UID + (os.getpid() * 13 + next(_counter)) % _UIDS
        self._idle: list[Launcher] = []
        self._choosing: asyncio.Lock | None = None
        self.level: Level | None = None
        self.level_name = ""
        self.scratch = ""
        self.first_ns = 0
        self.objections: dict[str, str] = {}

    async def acquire(self) -> Launcher:
        """Return an idle launcher that reaches what may be reached now, or start one.

        Raises:
            SandboxFailed: no sandbox works here; says why for each.
        """
        if self.level is None:
            if self._choosing is None:
                self._choosing = asyncio.Lock()
            async with self._choosing:
                if self.level is None:
                    return await self._choose()
        reach = await self._reach()
        while self._idle:
            launcher = self._idle.pop()
            if launcher.reach == reach and launcher.runs < _MOST_RUNS:
                return launcher
            await launcher.close()
        return await Launcher.start(self._make_config(self.level, reach), self._options.egress)

    def release(self, launcher: Launcher) -> None:
        """Take a launcher back; one too many is closed."""
        if len(self._idle) < _MOST_IDLE and self.scratch:
            self._idle.append(launcher)
            return
        task = asyncio.get_running_loop().create_task(launcher.close())
        _closing.add(task)
        task.add_done_callback(_closing.discard)

    def find_home(self, launcher: Launcher) -> str:
        """Return the scratch directory as commands of this launcher see it."""
        is_moved = self.level == "bubblewrap" or launcher.facts.has_view
        return self._scratch_target if is_moved else self.scratch

    async def close(self) -> bool:
        """End the idle launchers and remove the scratch directory; return whether there was one."""
        idle, self._idle = self._idle, []
        for launcher in idle:
            await launcher.close()
        scratch, self.scratch = self.scratch, ""
        if scratch:
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
        return bool(scratch)

    @property
    def is_idle(self) -> bool:
        """Whether nothing was started that `close` would have to end."""
        return not (self._idle or self.scratch)

    async def _choose(self) -> Launcher:
        """Start a launcher on the strongest level that really works here."""
        if not self.scratch:
            await asyncio.to_thread(self._make_scratch)
            weakref.finalize(self, shutil.rmtree, self.scratch, ignore_errors=True)
        for level in self._list_levels():
            try:
                launcher = await self._try(level)
            except SandboxFailed as error:
                if is_exhaustion(error):
                    # That says nothing about the level; a weaker one must not take its place.
                    raise
                self.objections[level] = str(error.context.get("detail", error))
                continue
            self.level = level
            extra = "+namespaces" if level == "landlock" and launcher.facts.namespaces else ""
            self.level_name = f"{level}{extra}/{self._options.profile}"
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
        environment = clean_environment({}, home="/tmp")
        job = encode_job([make_stage(("true",))], self._workspace.root, environment)
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
            compute_reach,
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
            scratch=(self.scratch, self._scratch_target),
            system=system,
            uid=self._uid,
            limits={name: int(value) for name, value in limits.items()},
            wrapper=wrapper,
        )

    def _make_scratch(self) -> None:
        self.scratch = tempfile.mkdtemp(prefix="holdfast-sandbox-")
        # By the clock that stamps files, so that both can be compared.
        self.first_ns = os.stat(self.scratch).st_ctime_ns

    @property
    def _scratch_target(self) -> str:
        return self.scratch if self._workspace.root == "/tmp" else "/tmp"
