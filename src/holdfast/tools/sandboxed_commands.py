"""The command runner that reads a command, and runs what it read in the sandbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import PermissionDenied, UsageError
from holdfast.sandbox import (
    FILTERED,
    Profile,
    SandboxResult,
    SandboxRunner,
    Workspace,
    can_write_workspace,
    has_network,
)
from holdfast.tools.services import Command, CommandResult, Program

if TYPE_CHECKING:
    from holdfast.policy import ParsedCommand
    from holdfast.sandbox import PipelineLike


def _is_closed() -> bool:
    return False


class SandboxedCommands(msgspec.Struct, frozen=True, eq=False):
    """Runs commands inside a sandbox profile: as they were parsed, or as the script that they are.

    A line that rules let pass runs as it was parsed, without a shell. One that passed because the
    sandbox is the boundary, or that a person approved, is run by bash where it says more than
    that. A line that is not what it looks like never runs. git that no person approved runs no
    program that a repository names.
    """

    runner: SandboxRunner
    """The caller that made it closes it."""
    passes_unread: bool = False
    """Whether the gate has asked about every line that cannot be read, before it came here."""
    is_net_open: Callable[[], bool] = _is_closed
    """Says whether a process may reach every host there is: no caller can hold the traffic of one
    that speaks for itself to a list."""

    async def run(self, command: Command) -> CommandResult:
        """Run a command, as `CommandRunner.run` promises."""
        from holdfast.policy import parse_command  # noqa: PLC0415 - first use
        from holdfast.tools import git_commands as git  # noqa: PLC0415 - first use

        parsed, passed_by = parse_command(command.text), command.passed_by
        is_bounded = passed_by == "sandbox" and await self.runner.is_boundary()
        can_be_script = is_bounded or passed_by == "person" or self.passes_unread
        if parsed.is_refused or not (parsed.is_parsed or can_be_script):
            raise PermissionDenied(
                permission="command", target=command.text[:200], because=parsed.problem
            )
        is_script = not parsed.is_parsed or (is_bounded and not git.is_git_looking(parsed))
        if is_script:
            result = await self.runner.run_text(
                command.text,
                directory=command.directory,
                environment=await self._find_script_environment(command),
                timeout_s=command.timeout_s,
                output_bytes=command.max_output_bytes,
            )
        else:
            runner, pipelines = await self._drop_git_programs(command, parsed)
            result = await runner.run(
                pipelines,
                directory=command.directory,
                timeout_s=command.timeout_s,
                output_bytes=command.max_output_bytes,
            )
        return _describe(result)

    async def _find_script_environment(self, command: Command) -> Mapping[str, str]:
        """Return the variables that keep git in a script from running what repositories name."""
        from holdfast.tools import git_commands as git  # noqa: PLC0415 - first use

        if command.passed_by == "person" or not git.mentions_git(command.text):
            return {}
        names: set[str] = set()
        for place in git.list_script_places(command.text, command.directory):
            names.update(await self._make_git_settings(place))
        return git.make_git_environment(sorted(names), is_looking=False)

    async def _drop_git_programs(
        self, command: Command, parsed: ParsedCommand
    ) -> tuple[SandboxRunner, Sequence[PipelineLike]]:
        """Keep git from running what repositories name, unless a person approved the line.

        Also where another program may start it: `make`, a script, a build tool.
        """
        from holdfast.tools import git_commands as git  # noqa: PLC0415 - first use

        if command.passed_by == "person" or (
            not git.has_git(parsed) and git.is_starting_nothing(parsed)
        ):
            return self.runner, parsed.pipelines
        places = git.find_git_places(parsed, command.directory)
        if places is None:
            because = "it changes directories too often to say which repositories git would meet"
            raise PermissionDenied(permission="command", target=command.text[:200], because=because)
        is_looking = git.is_git_looking(parsed)
        runner = self._open_looking_runner() if is_looking else self.runner
        names: set[str] = set()
        for place in places:
            names.update(await self._make_git_settings(place))
        return runner, git.harden_git(parsed, sorted(names), is_looking=is_looking)

    def _open_looking_runner(self) -> SandboxRunner:
        is_writing = can_write_workspace(self.runner.profile) and self.runner.profile != "full"
        return self.runner.open_beside("read-only") if is_writing else self.runner

    async def _make_git_settings(self, place: str) -> list[str]:
        from holdfast.tools.git_commands import LIST_SETTINGS, make_git_environment  # noqa: PLC0415

        # A directory that the line makes has no settings yet: env says so, and lists nothing.
        listed = await self._open_looking_runner().run_program(
            ("env", "-C", place, *LIST_SETTINGS), b"", environment=make_git_environment()
        )
        return [name for name in listed.stdout.split("\0") if name]

    async def run_program(self, program: Program) -> CommandResult:
        """Run a program in a sandbox of its own, as `CommandRunner.run_program` promises.

        Its rights are those that it names and this run has, in both directions: a read-only
        run has no program that writes.
        """
        can_write = can_write_workspace(self.runner.profile)
        is_kept_in = self.runner.profile in FILTERED
        is_online = has_network(self.runner.profile) or is_kept_in or self.is_net_open()
        if program.has_network and not is_online:
            because = (
                "its program talks to the network by itself, and the network is not open to "
                "every host (ALLOW_NET, network.yaml)"
            )
            raise PermissionDenied(permission="network", target="*", because=because)
        runner = self.runner.open_beside(
            _choose_profile(
                can_write and program.workspace == "write",
                program.has_network,
                is_kept_in=is_kept_in,
            ),
            workspace=_open_elsewhere(program),
            readable=program.readable if can_write else program.readable + program.writable,
            writable=program.writable if can_write else (),
        )
        return _describe(
            await runner.run_program(
                program.argv,
                program.given,
                environment=program.environment,
                timeout_s=program.timeout_s,
                output_bytes=program.max_output_bytes,
            )
        )


def _choose_profile(can_write: bool, is_networked: bool, *, is_kept_in: bool) -> Profile:
    if is_networked and is_kept_in:
        return "filtered" if can_write else "read-only-filtered"
    if is_networked:
        return "network" if can_write else "read-only-network"
    return "workspace-write" if can_write else "read-only"


def _open_elsewhere(program: Program) -> Workspace | None:
    """Where a program runs that has no business in the workspace."""
    if program.workspace != "none":
        return None
    if not program.readable:
        raise UsageError(detail="A program that sees no workspace needs a directory to run in.")
    return Workspace(program.readable[0])


def _describe(result: SandboxResult) -> CommandResult:
    return CommandResult(
        exit_code=result.exit_code,
        stdout=result.stdout,
        stderr=result.stderr,
        stopped=result.stopped,
        is_truncated=result.is_truncated,
        sandbox=result.sandbox,
    )


__all__ = ["SandboxedCommands"]
