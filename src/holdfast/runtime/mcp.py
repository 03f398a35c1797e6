"""MCP servers: connected when first needed, confined by the operator's policies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.agents import AgentRegistry
from holdfast.canonical import JsonObject
from holdfast.journal import SYSTEM_SESSION, Journal, Origin, Payload
from holdfast.policy import PolicyStore
from holdfast.redaction import Redactor
from holdfast.runtime.egress import EgressService
from holdfast.runtime.processes import ProcessEnvironment
from holdfast.settings import McpEndpoint, Settings, load_settings
from holdfast.skills import TrustStore, project_root
from holdfast.tools import ToolContext, ToolRegistry

if TYPE_CHECKING:
    from holdfast.mcp import McpManager

_PAGE = 1_000


class McpService:
    """The MCP servers of one runtime; the room behind it is loaded with the first use."""

    def __init__(
        self,
        settings: Settings,
        base_dir: Path,
        journal: Journal,
        redactor: Redactor,
        policies: Callable[[], Awaitable[PolicyStore]],
        processes: ProcessEnvironment,
        egress: EgressService,
        agents: AgentRegistry,
    ) -> None:
        """Connect to the servers of these settings."""
        self._agents = agents
        self._settings = settings
        self._base_dir = base_dir
        self._journal = journal
        self._redactor = redactor
        self._policies = policies
        self._processes = processes
        self._egress = egress
        self._manager: McpManager | None = None
        self.layer: ToolRegistry | None = None
        """Where the servers' tools are offered; `None` where no server is configured."""

    async def manager(self) -> McpManager:
        """Return what connects to MCP servers.

        Raises:
            PolicyInvalid: a policy file is wrong.
        """
        store = await self._policies()
        if self._manager is None:
            from holdfast.mcp import (  # noqa: PLC0415 - a room of its own, often unused
                GrantBook,
                Keeping,
                LoginBook,
                McpManager,
                Opening,
                PinBook,
            )
            from holdfast.tools import HostGrant, read_grant  # noqa: PLC0415 - as above

            workspace = str(self._settings.workspace)
            book = GrantBook(self._base_dir)

            def grants_of(name: str, endpoint: McpEndpoint) -> Callable[[], list[HostGrant]]:
                return lambda: [
                    read_grant(host) for host in book.list_granted_hosts(name, endpoint)
                ]

            logins = LoginBook(self._base_dir)
            openings = [
                Opening(
                    name=name,
                    endpoint=endpoint,
                    workspace=workspace,
                    token=self._read_token,
                    policies=lambda: store.bundle,
                    open_process=self._processes.open_process,
                    open_egress=self._egress.open_for_server,
                    grants=grants_of(name, endpoint),
                    logins=logins,
                )
                for name, endpoint in self._settings.mcp_endpoints.items()
            ]
            pins = PinBook(self._base_dir)
            keeping = Keeping(
                note=self._note,
                pins=pins,
                grants=book,
                clock=self._journal.clock,
                logins=logins,
                lend=partial(self._lend, store),
            )
            self._manager = McpManager(
                openings,
                keeping,
                trust=TrustStore(self._base_dir),
                project=str(project_root(workspace)),
            )
        return self._manager

    async def prepare(self, *, has_network: bool) -> None:
        """Let the tools of MCP servers be there; costs nothing where none is configured."""
        if self.layer is not None:
            await (await self.manager()).prepare(self.layer, has_network=has_network)

    async def count_invocations(self) -> Counter[str]:
        """Return how often each server was asked, by its name."""
        from holdfast.mcp import McpInvoked  # noqa: PLC0415 - a room of its own, often unused

        found: Counter[str] = Counter()
        after, kinds = 0, frozenset({McpInvoked.kind})
        while page := await self._journal.read(
            SYSTEM_SESSION, after=after, limit=_PAGE, kinds=kinds
        ):
            found.update(event.expect(McpInvoked).endpoint for event in page)
            after = page[-1].session_seq
        return found

    async def close(self) -> None:
        """End connections to MCP servers, and their programs."""
        if self._manager is not None:
            await self._manager.aclose()

    async def _lend(
        self,
        store: PolicyStore,
        endpoint: str,
        context: ToolContext,
        asked: JsonObject,
        number: int,
    ) -> JsonObject:
        from holdfast.runtime.sampling import lend_model  # noqa: PLC0415 - rarely used

        return await lend_model(
            endpoint, context, asked, number, policies=store.bundle, agents=self._agents
        )

    def _read_token(self, variable: str) -> str:
        """The token in a variable, which is kept out of sight from now on."""
        # Tokens come from the environment and the secrets files, all else from our settings.
        secret = replace(load_settings(), settings=self._settings).secret(variable)
        if secret is None:
            return ""
        self._redactor.register(variable, secret.get_secret_value())
        return secret.get_secret_value()

    async def _note(self, fact: Payload, origin: Origin) -> None:
        await self._journal.append(SYSTEM_SESSION, [fact], origin=origin)
