"""The command runner that reads a command, and runs what it read in the sandbox."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.errors import PermissionDenied
from holdfast.policy.commands import parse_command
from holdfast.sandbox import SandboxResult, SandboxRunner
from holdfast.tools.services import Command, CommandResult


def _nobody_approved(_text: str) -> bool:
    return False


class SandboxedCommands:
    """Runs commands as they were parsed, without a shell, inside a sandbox profile.

    A line that cannot be read completely runs in a shell, in the same sandbox, only if
    `is_approved` says that a person approved exactly this text. A line that is not what
    it looks like never runs.
    """

    def __init__(
        self, runner: SandboxRunner, *, is_approved: Callable[[str], bool] = _nobody_approved
    ) -> None:
        """Run with this runner; whoever made it closes it."""
        self._runner = runner
        self._is_approved = is_approved

    async def run(self, command: Command) -> CommandResult:
        """Run a command, as `CommandRunner.run` promises."""
        parsed = parse_command(command.text)
        if parsed.is_refused or not (parsed.is_parsed or self._is_approved(command.text)):
            raise PermissionDenied(
                permission="command", target=command.text[:200], because=parsed.problem
            )
        if parsed.is_parsed:
            result = await self._runner.run(
                parsed.pipelines,
                directory=command.directory,
                timeout_s=command.timeout_s,
                output_bytes=command.max_output_bytes,
            )
        else:
            result = await self._runner.run_approved_text(
                command.text,
                directory=command.directory,
                timeout_s=command.timeout_s,
                output_bytes=command.max_output_bytes,
            )
        return _told(result)


def _told(result: SandboxResult) -> CommandResult:
    return CommandResult(
        exit_code=result.exit_code,
        stdout=result.stdout,
        stderr=result.stderr,
        stopped=result.stopped,
        is_truncated=result.is_truncated,
        sandbox=result.sandbox,
    )


__all__ = ["SandboxedCommands"]
