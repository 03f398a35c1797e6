"""The surroundings of every process, put together in one place.

Commands of calls, scripts of hooks, MCP servers on stdio and language servers all get their
sandbox here: the same hidden places, the same read-only places, the same environment without
secrets. Where each made a sandbox of its own, one forgot what the others hid.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.clock import Clock
from holdfast.errors import PermissionDenied
from holdfast.policy import PolicyStore
from holdfast.runs import Confinement
from holdfast.tools import (
    Command,
    CommandResult,
    CommandRunner,
    Profile,
    Program,
    SandboxLimits,
    SandboxOptions,
    SandboxRunner,
    ServesEgress,
    Workspace,
)

_DEFAULT_LIMITS = SandboxLimits()
_NO_VARIABLES: Mapping[str, str] = {}


class ProcessEnvironment:
    """Opens what runs processes; the only constructor of a `SandboxRunner` for them.

    What no tool may see or change, no process may either, whatever it is started for. The
    environment of a process is the sandbox's own and the variables that are given by name:
    nothing is inherited from the application.
    """

    def __init__(self, confinement: Confinement, clock: Clock) -> None:
        """Confine every process as the operator wants."""
        self._confinement = confinement
        self._clock = clock
        self._plain: dict[Profile, SandboxOptions] = {}

    def open_process(
        self,
        workspace: Workspace | str,
        *,
        profile: Profile,
        limits: SandboxLimits = _DEFAULT_LIMITS,
        environment: Mapping[str, str] = _NO_VARIABLES,
        readable: tuple[str, ...] = (),
        writable: tuple[str, ...] = (),
        egress: ServesEgress | None = None,
    ) -> SandboxRunner:
        """Return what runs processes in a workspace, or in a directory under the path rules.

        The caller closes it. Nothing is started before the first command. `egress` is the
        proxy of a filtered profile.

        Raises:
            UsageError: the directory cannot be a workspace, a variable makes programs load
                something, or a filtered profile has no proxy.
        """
        confinement = self._confinement
        if isinstance(workspace, str):
            workspace = confinement.workspace(workspace)
        is_plain = not (environment or readable or writable or egress) and limits is _DEFAULT_LIMITS
        options = self._plain.get(profile) if is_plain else None
        if options is None:
            options = SandboxOptions(
                profile=profile,
                limits=limits,
                environment=environment,
                readable=readable,
                writable=writable,
                # The one place that decides what is hidden from every process.
                hidden=confinement.hidden,
                read_only=confinement.read_only,
                unvouched=confinement.unvouched,
                egress=egress,
            )
            if is_plain:
                self._plain[profile] = options
        return SandboxRunner(workspace, options, clock=self._clock)

    def open_reader(
        self,
        workspace: Workspace | str,
        *,
        limits: SandboxLimits = _DEFAULT_LIMITS,
        environment: Mapping[str, str] = _NO_VARIABLES,
        readable: tuple[str, ...] = (),
    ) -> SandboxRunner:
        """Return what runs processes that only read and have no network.

        This is what hooks' scripts and tools get: they cannot ask for more.
        """
        return self.open_process(
            workspace,
            profile="read-only",
            limits=limits,
            environment=environment,
            readable=readable,
        )


class RawNetworkCommands:
    """Runs commands with the machine's network as long as the policies grant that."""

    def __init__(self, inner: CommandRunner, policies: PolicyStore) -> None:
        """Ask the policies before each command, then let `inner` run it."""
        self._inner = inner
        self._policies = policies

    async def run(self, command: Command) -> CommandResult:
        """Run a command, as `CommandRunner.run` promises.

        Raises:
            PermissionDenied: the policies do not let processes reach the network.
        """
        self._check(command.text[:200])
        return await self._inner.run(command)

    async def run_program(self, program: Program) -> CommandResult:
        """Run a program, as `CommandRunner.run_program` promises.

        Raises:
            PermissionDenied: it wants the network, and the policies do not grant it.
        """
        if program.has_network:
            self._check("*")
        return await self._inner.run_program(program)

    def _check(self, target: str) -> None:
        bundle = self._policies.bundle
        because = ""
        if not bundle.network_rules.allow_net:
            because = "the network is closed (ALLOW_NET, network.yaml)"
        elif not bundle.network.raw_processes:
            because = (
                "the sandbox `network` is the machine's own network, for which no list of hosts "
                "holds; `raw_processes: true` in network.yaml grants it"
            )
        if because:
            raise PermissionDenied(permission="network", target=target, because=because)


__all__ = ["ProcessEnvironment", "RawNetworkCommands"]
