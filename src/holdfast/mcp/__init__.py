"""Tools, resources and prompts of MCP servers become tools of ours.

A server is a program that we start in the sandbox, or an address. What it offers is foreign:
names, descriptions and schemas are checked and pinned, calls pass the one gate as calls that
may do anything, answers are data. The protocol itself is the official SDK's business, in
`wire/`, which is imported only when a server is to be reached (extra `mcp`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.mcp.definitions import LeftOut as LeftOut
    from holdfast.mcp.definitions import RemoteTool as RemoteTool
    from holdfast.mcp.events import McpConnected as McpConnected
    from holdfast.mcp.events import McpElicited as McpElicited
    from holdfast.mcp.events import McpGranted as McpGranted
    from holdfast.mcp.events import McpInvoked as McpInvoked
    from holdfast.mcp.events import McpLost as McpLost
    from holdfast.mcp.failures import Refusal as Refusal
    from holdfast.mcp.grants import GrantBook as GrantBook
    from holdfast.mcp.logins import LoginBook as LoginBook
    from holdfast.mcp.manager import EndpointHealth as EndpointHealth
    from holdfast.mcp.manager import EndpointInfo as EndpointInfo
    from holdfast.mcp.manager import McpManager as McpManager
    from holdfast.mcp.manager import OfferedTool as OfferedTool
    from holdfast.mcp.needs import Needs as Needs
    from holdfast.mcp.needs import find_needs as find_needs
    from holdfast.mcp.opening import Opening as Opening
    from holdfast.mcp.pins import PinBook as PinBook
    from holdfast.mcp.readings import OfferedPrompt as OfferedPrompt
    from holdfast.mcp.readings import OfferedResource as OfferedResource
    from holdfast.mcp.schema import UnusableSchema as UnusableSchema
    from holdfast.mcp.schema import clean_schema as clean_schema
    from holdfast.mcp.schema import make_checkable as make_checkable
    from holdfast.mcp.server import Keeping as Keeping
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "definitions": "LeftOut RemoteTool",
            "events": "McpConnected McpElicited McpGranted McpInvoked McpLost",
            "failures": "Refusal",
            "grants": "GrantBook",
            "logins": "LoginBook",
            "manager": "EndpointHealth EndpointInfo McpManager OfferedTool",
            "needs": "Needs find_needs",
            "opening": "Opening",
            "pins": "PinBook",
            "readings": "OfferedPrompt OfferedResource",
            "schema": "UnusableSchema clean_schema make_checkable",
            "server": "Keeping",
        },
    )
