"""What a request of an MCP client is to the rest of this room."""

from __future__ import annotations

from typing import Any, TypeAlias

from mcp.server.context import ServerRequestContext

Context: TypeAlias = ServerRequestContext[Any, Any]

__all__ = ["Context"]
