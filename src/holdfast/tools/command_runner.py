"""A command runner without confinement, for those who say that they want it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from holdfast.errors import FileUnsuitable
from holdfast.sandbox import ProcessLimits, ProcessResult, Workspace, run_process
from holdfast.tools.services import Command, CommandResult, Program

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class UnconfinedRunner:
    """Runs commands with all rights of this process; only time and output are bounded.

    Nothing constructs it by default: without it (or the sandbox), commands are refused.
    Commands see a clean environment, not ours: pass what they need.
    """

    def __init__(
        self, workspace: Workspace, *, environment: Mapping[str, str] | None = None
    ) -> None:
        """Run in the workspace, with these variables on top of a minimal environment."""
        self._workspace = workspace
        self._environment = {
            "PATH": _PATH,
            "HOME": workspace.root,
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            **(environment or {}),
        }

    async def run(self, command: Command) -> CommandResult:
        """Run a command in a shell, as `CommandRunner.run` promises."""
        info = self._workspace.stat(command.directory)
        if info.kind != "directory":
            raise FileUnsuitable(path=command.directory, found="a file", wanted="a directory")
        result = await run_process(
            ["/bin/sh", "-c", command.text],
            directory=os.path.join(self._workspace.root, info.path),
            environment=self._environment,
            limits=ProcessLimits(
                timeout_s=command.timeout_s, max_output_bytes=command.max_output_bytes
            ),
        )
        return _describe(result)

    async def run_program(self, program: Program) -> CommandResult:
        """Run a program with all rights of this process; what it asked for is not looked at."""
        limits = ProcessLimits(
            timeout_s=program.timeout_s,
            max_output_bytes=program.max_output_bytes,
            flood_factor=1,
        )
        result = await run_process(
            program.argv,
            directory=self._workspace.root,
            environment={**self._environment, **program.environment},
            limits=limits,
            given=program.given,
        )
        return _describe(result)


def _describe(result: ProcessResult) -> CommandResult:
    return CommandResult(
        exit_code=result.exit_code,
        stdout=result.stdout,
        stderr=result.stderr,
        stopped=result.stopped,
        is_truncated=result.is_truncated,
        sandbox="none",
    )
