"""Holdfast as an MCP server: agents and tools, sessions and artifacts, templates.

`offer.py` says what a client sees, `calls.py` how an agent or a tool is called for it; `face.py`
serves that over HTTP below `/mcp`, `stdio.py` on standard input and output (`holdfast mcp
serve`). The official SDK speaks the protocol, in both of its eras; all that a client asks for
goes through operations in the name of its caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.server.mcp.content import McpContent as McpContent
    from holdfast.server.mcp.content import McpPrompt as McpPrompt
    from holdfast.server.mcp.content import McpResource as McpResource
    from holdfast.server.mcp.face import offer_content as offer_content
    from holdfast.server.mcp.offer import McpOffer as McpOffer
    from holdfast.server.mcp.stdio import serve_stdio as serve_stdio
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "content": "McpContent McpPrompt McpResource",
            "face": "offer_content",
            "offer": "McpOffer",
            "stdio": "serve_stdio",
        },
    )
