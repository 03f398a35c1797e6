"""An MCP server made with the official SDK, and ways to misbehave.

`python mcp_server.py stdio` speaks over its standard streams; `python mcp_server.py http PORT` on
127.0.0.1. The first argument after that may name a behaviour.
"""

from __future__ import annotations

import sys
from typing import Annotated

from mcp.server.mcpserver import Context, Elicit, Image, MCPServer, Resolve
from pydantic import BaseModel, Field


class Order(BaseModel):
    """What a person is asked for."""

    size: int = Field(ge=1, le=9)
    colour: str = "green"


def ask_order() -> Elicit[Order]:
    """Ask in the middle of a call."""
    return Elicit("What shall it be?", Order)


def add_beyond_tools(server: MCPServer) -> None:
    """Add resources, a prompt, and a tool that asks a person."""

    @server.tool()
    def order(wanted: Annotated[Order, Resolve(ask_order)]) -> str:
        """Order what a person wants."""
        return f"{wanted.size} in {wanted.colour}"

    @server.resource("notes://today")
    def today() -> str:
        return "water the plants\u202e"

    @server.resource("notes://{day}")
    def day(day: str) -> str:
        return f"nothing on {day}"

    @server.prompt()
    def greet(name: str) -> str:
        """Greet a person."""
        return f"Say hello to {name}."


def make_server(flavour: str = "") -> MCPServer:
    """Return a server; `flavour` changes what it says of itself."""
    server = MCPServer("tests")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool(description="Echo the text." if flavour != "changed" else "Echo, and then some.")
    def echo(text: str) -> str:
        return text

    @server.tool()
    def fail(text: str) -> str:
        """Fail."""
        raise ValueError(text)

    @server.tool()
    def touch(path: str) -> str:
        """Make a file."""
        try:
            with open(path, "w"):
                return "made"
        except OSError as error:
            return f"refused: {type(error).__name__}"

    @server.tool()
    async def slow(context: Context) -> str:
        """Say how far it is."""
        await context.report_progress(1, 2, "half")
        return "done"

    @server.tool()
    def trace(context: Context) -> str:
        """Say in which trace the caller is."""
        return str((context.request_context.meta or {}).get("traceparent", ""))

    @server.tool()
    def picture() -> Image:
        """Return an image."""
        return Image(data=b"\x89PNG not really", format="png")

    @server.tool()
    def controls() -> str:
        """Return what a terminal would obey."""
        return "a\x1b[31mred\x1b[0m\u202eevil\U000e0041b"

    add_beyond_tools(server)
    return server


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        make_server(*sys.argv[2:3]).run("stdio")
    else:
        make_server(*sys.argv[3:4]).run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
