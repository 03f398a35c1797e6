"""Facts about MCP servers; all stand in the system's chain, whatever session caused them."""

from __future__ import annotations

from typing import Literal

from holdfast.journal import Payload, payload


@payload("mcp.connected", is_open=True, is_inherited=False, is_of_store=True)
class McpConnected(Payload, frozen=True, kw_only=True):
    """A server answers; `sandbox` is what confines its program, empty for an address."""

    endpoint: str
    transport: str
    protocol: str
    server: str = ""
    sandbox: str = ""
    tools: int = 0
    held_back: tuple[str, ...] = ()


@payload("mcp.lost", is_open=True, is_inherited=False, is_of_store=True)
class McpLost(Payload, frozen=True, kw_only=True):
    """A server does not answer, or no more; it is tried again `retry_in_s` later."""

    endpoint: str
    reason: str
    retry_in_s: float = 0.0


@payload("mcp.invoke", is_open=True, is_inherited=False, is_of_store=True)
class McpInvoked(Payload, frozen=True, kw_only=True):
    """A tool of a server was called; `error` is empty where it answered without one.

    `outcome` is `unknown` if the connection broke, or time ran out, after the call was sent.
    """

    endpoint: str
    tool: str
    call_id: str
    session_id: str
    outcome: Literal["answered", "error", "refused", "unknown"]
    duration_s: float
    error: str = ""


@payload("mcp.granted", is_open=True, is_inherited=False, is_of_store=True)
class McpGranted(Payload, frozen=True, kw_only=True):
    """A person let a server's program reach hosts, or took that back (`is_revoked`)."""

    endpoint: str
    hosts: tuple[str, ...]
    is_revoked: bool = False


@payload("mcp.elicited", is_open=True, is_inherited=False, is_of_store=True)
class McpElicited(Payload, frozen=True, kw_only=True):
    """A server asked the person who attends a call; what was answered is not kept here."""

    endpoint: str
    call_id: str
    session_id: str
    mode: Literal["form", "url"]
    action: Literal["accept", "decline", "cancel"]
    message: str = ""


__all__ = ["McpConnected", "McpElicited", "McpGranted", "McpInvoked", "McpLost"]
