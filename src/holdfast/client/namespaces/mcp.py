"""`client.mcp`."""

from __future__ import annotations

from holdfast.operations import Mode, Surface, mcp


class McpNamespace(Surface[Mode]):
    """MCP servers."""

    manager = mcp.manager
    endpoints = mcp.endpoints
    trust = mcp.trust
    forget = mcp.forget
    grant = mcp.grant
    log_in = mcp.log_in
    log_out = mcp.log_out
    tools = mcp.tools
    list_resources = mcp.list_resources
    list_prompts = mcp.list_prompts
    accept = mcp.accept
    health = mcp.health
    invoke = mcp.invoke
