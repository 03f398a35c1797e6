"""Tools of MCP servers become tools of ours.

A server is a program that we start in the sandbox, or an address. What it offers is foreign:
names, descriptions and schemas are checked and pinned, calls pass the one gate as calls that
may do anything, answers are data. The protocol itself is the official SDK's business, in
`wire/`, which is imported only when a server is to be reached (extra `mcp`).
"""

from holdfast.mcp.definitions import LeftOut, RemoteTool
from holdfast.mcp.events import McpConnected, McpInvoked, McpLost
from holdfast.mcp.manager import EndpointHealth, EndpointInfo, McpManager, OfferedTool

__all__ = [
    "EndpointHealth",
    "EndpointInfo",
    "LeftOut",
    "McpConnected",
    "McpInvoked",
    "McpLost",
    "McpManager",
    "OfferedTool",
    "RemoteTool",
]
