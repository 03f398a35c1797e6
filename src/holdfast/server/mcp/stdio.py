"""Serve an MCP client on standard input and output, as the owner of the state directory."""

from __future__ import annotations

from collections.abc import Sequence

from mcp.server.stdio import stdio_server

from holdfast.agents import Agent
from holdfast.operations import OWNER, Caller
from holdfast.runtime import Runtime
from holdfast.server.factory import create_app
from holdfast.server.mcp.offer import McpOffer
from holdfast.server.mcp.requests import Context
from holdfast.settings import Settings


async def serve_stdio(
    settings: Settings, *, agents: Sequence[Agent] = (), tool_patterns: tuple[str, ...] = ()
) -> None:
    """Answer one client until it closes its end; what it began is cancelled then."""
    app = create_app(settings, agents=agents)
    await app.open()
    try:
        runtime = await app.runtimes.runtime_for(OWNER)

        async def find(_: Context) -> tuple[Runtime, Caller]:
            return runtime, OWNER

        server = McpOffer(find, tool_patterns=tool_patterns).server
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
    finally:
        await app.close()


__all__ = ["serve_stdio"]
