"""MCP servers: whose tools agents may use, what they offer, how they are."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from holdfast.client.policies import PolicyMethods
from holdfast.journal import SYSTEM_SESSION, Origin, Payload
from holdfast.mcp import (
    EndpointHealth,
    EndpointInfo,
    LeftOut,
    McpInvoked,
    McpManager,
    OfferedTool,
)
from holdfast.mcp.opening import Opening
from holdfast.mcp.pins import PinBook
from holdfast.mcp.server import Keeping
from holdfast.settings import load_settings
from holdfast.skills import TrustStore, project_root
from holdfast.tools import ToolRegistry

_PAGE = 1_000


class McpMethods(PolicyMethods):
    """What the client can do with MCP servers."""

    _mcp: McpManager | None = None
    _mcp_layer: ToolRegistry | None = None

    async def mcp_manager(self) -> McpManager:
        """Return what connects to MCP servers, for what the client does not cover.

        Raises:
            PolicyInvalid: a policy file is wrong.
        """
        store = await self.policies()
        if self._mcp is None:
            workspace = str(self.settings.workspace)
            openings = [
                Opening(
                    name=name,
                    endpoint=endpoint,
                    workspace=workspace,
                    token=self._mcp_token,
                    policies=lambda: store.bundle,
                    hidden=self._hidden,
                    read_only=self._read_only,
                    gaps=self._gaps,
                )
                for name, endpoint in self.settings.mcp_endpoints.items()
            ]
            self._mcp = McpManager(
                openings,
                Keeping(
                    note=self._note_mcp, pins=PinBook(self.base_dir), clock=self._journal.clock
                ),
                trust=TrustStore(self.base_dir),
                project=str(project_root(workspace)),
            )
        return self._mcp

    async def list_mcp_endpoints(self) -> list[EndpointInfo]:
        """Return how the MCP servers are configured; none is asked."""
        return (await self.mcp_manager()).infos()

    async def trust_mcp_endpoint(self, name: str, *, revoke: bool = False) -> EndpointInfo:
        """Vouch for an MCP server of the project as it is configured now, or take that back.

        Raises:
            NotFound: there is no such server.
        """
        manager = await self.mcp_manager()
        return await asyncio.to_thread(manager.trust, name, revoke=revoke)

    async def forget_mcp_endpoint(self, name: str) -> None:
        """Forget what was accepted of an MCP server, and that anybody vouched for it."""
        manager = await self.mcp_manager()
        await asyncio.to_thread(manager.forget, name)

    async def list_mcp_tools(self, endpoint: str) -> tuple[list[OfferedTool], tuple[LeftOut, ...]]:
        """Return what an MCP server offers now, and what of it cannot be taken.

        Raises:
            NotFound: there is no such server.
            McpUntrusted: it is a project's, and nobody vouched for it.
            McpFailed: it cannot be asked.
        """
        return await (await self.mcp_manager()).tools_of(endpoint)

    async def accept_mcp_tools(self, endpoint: str, tools: Sequence[str] = ()) -> list[OfferedTool]:
        """Accept what an MCP server offers now, or the named tools of it.

        Raises:
            NotFound, McpToolMissing: there is no such server, or no such tool.
            McpUntrusted: it is a project's, and nobody vouched for it.
            McpFailed: it cannot be asked.
        """
        return await (await self.mcp_manager()).accept(endpoint, tools)

    async def mcp_health(self) -> list[EndpointHealth]:
        """Ask every MCP server that may be used, and return how each one is."""
        manager = await self.mcp_manager()
        return await manager.health(await self._count_invocations())

    async def close(self) -> None:
        """Close the rest, then end connections to MCP servers and their programs."""
        await super().close()
        if self._mcp is not None:
            await self._mcp.aclose()

    # --- inside -----------------------------------------------------------------------

    async def _prepare_mcp(self, *, has_network: bool) -> None:
        """Let the tools of MCP servers be there; costs nothing where none is configured."""
        if self.settings.mcp_endpoints and self._mcp_layer is not None:
            manager = await self.mcp_manager()
            await manager.prepare(self._mcp_layer, has_network=has_network)

    def _mcp_token(self, variable: str) -> str:
        """The token in a variable, which is kept out of sight from now on."""
        # Tokens come from the environment and the secrets files, all else from our settings.
        secret = replace(load_settings(), settings=self.settings).secret(variable)
        if secret is None:
            return ""
        self.redactor.register(variable, secret.get_secret_value())
        return secret.get_secret_value()

    async def _note_mcp(self, fact: Payload, origin: Origin) -> None:
        await self._journal.append(SYSTEM_SESSION, [fact], origin=origin)

    async def _count_invocations(self) -> Counter[str]:
        found: Counter[str] = Counter()
        after, kinds = 0, frozenset({McpInvoked.kind})
        while page := await self._journal.read(
            SYSTEM_SESSION, after=after, limit=_PAGE, kinds=kinds
        ):
            found.update(event.expect(McpInvoked).endpoint for event in page)
            after = page[-1].session_seq
        return found
