"""MCP servers: whose tools agents may use, what they offer, how they are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from holdfast.canonical import JsonObject
from holdfast.mcp import (
    EndpointHealth,
    EndpointInfo,
    LeftOut,
    McpManager,
    OfferedPrompt,
    OfferedResource,
    OfferedTool,
)
from holdfast.operations.caller import Caller
from holdfast.operations.operation import local, operation
from holdfast.policy import OnAsk
from holdfast.runtime import Runtime, ToolCallResult


@local("use the operations of `mcp`")
async def manager(runtime: Runtime, /) -> McpManager:
    """Return what connects to MCP servers, for what the client does not cover.

    Raises:
        PolicyInvalid: a policy file is wrong.
    """
    return await runtime.mcp.manager()


@operation("mcp:read")
async def endpoints(runtime: Runtime, caller: Caller, /) -> list[EndpointInfo]:
    """Return how the MCP servers are configured; none is asked."""
    return (await runtime.mcp.manager()).infos()


@operation("mcp:admin")
async def trust(
    runtime: Runtime, caller: Caller, /, name: str, *, revoke: bool = False
) -> EndpointInfo:
    """Vouch for an MCP server of the project as it is configured now, or take that back.

    Raises:
        NotFound: there is no such server.
    """
    manager = await runtime.mcp.manager()
    return await asyncio.to_thread(manager.trust, name, revoke=revoke)


@operation("mcp:admin")
async def forget(runtime: Runtime, caller: Caller, /, name: str) -> None:
    """Forget what was accepted of an MCP server, and that the user vouched for it."""
    manager = await runtime.mcp.manager()
    await asyncio.to_thread(manager.forget, name)


@operation("mcp:admin")
async def grant(
    runtime: Runtime,
    caller: Caller,
    /,
    name: str,
    hosts: Sequence[str] = (),
    *,
    revoke: bool = False,
) -> EndpointInfo:
    """Let the program of an MCP server reach hosts through the proxy, or take that back.

    Raises:
        NotFound: there is no such server.
        UsageError: its sandbox is not filtered, or a host is none.
    """
    return await (await runtime.mcp.manager()).grant(name, hosts, revoke=revoke)


@local("log in on the machine of the runtime: `holdfast mcp login`")
async def log_in(
    runtime: Runtime, /, name: str, visit: Callable[[str], Awaitable[None]]
) -> EndpointInfo:
    """Log in at an MCP server by OAuth; `visit` shows a person the page.

    The page leads back to an address of this machine. Tokens are kept, refreshed, and sent to
    this server only. Where it asks for more later, `visit` is called again.

    Raises:
        NotFound: there is no such server.
        UsageError: it takes no login.
        McpUntrusted: it is a project's, and the user has not vouched for it.
        McpFailed: it cannot be reached, or the login failed.
    """
    return await (await runtime.mcp.manager()).log_in(name, visit)


@operation("mcp:admin")
async def log_out(runtime: Runtime, caller: Caller, /, name: str) -> bool:
    """Forget the login at an MCP server; says whether there was one.

    Raises:
        NotFound: there is no such server.
    """
    return await (await runtime.mcp.manager()).log_out(name)


@operation("mcp:read")
async def tools(
    runtime: Runtime, caller: Caller, /, endpoint: str
) -> tuple[list[OfferedTool], tuple[LeftOut, ...]]:
    """Return what an MCP server offers now, and what of it cannot be taken.

    Raises:
        NotFound: there is no such server.
        McpUntrusted: it is a project's, and the user has not vouched for it.
        McpFailed: it cannot be asked.
    """
    return await (await runtime.mcp.manager()).list_tools_of(endpoint)


@operation("mcp:read")
async def list_resources(
    runtime: Runtime, caller: Caller, /, endpoint: str
) -> list[OfferedResource]:
    """Return what can be read from an MCP server; `invoke` with `read_resource` reads one.

    Raises:
        NotFound: there is no such server.
        McpUntrusted: it is a project's, and the user has not vouched for it.
        McpFailed: it cannot be asked.
    """
    return await (await runtime.mcp.manager()).list_resources_of(endpoint)


@operation("mcp:read")
async def list_prompts(runtime: Runtime, caller: Caller, /, endpoint: str) -> list[OfferedPrompt]:
    """Return the prompts of an MCP server; `invoke` with `get_prompt` fills one in.

    Raises:
        NotFound: there is no such server.
        McpUntrusted: it is a project's, and the user has not vouched for it.
        McpFailed: it cannot be asked.
    """
    return await (await runtime.mcp.manager()).list_prompts_of(endpoint)


@operation("mcp:admin")
async def accept(
    runtime: Runtime, caller: Caller, /, endpoint: str, tools: Sequence[str] = ()
) -> list[OfferedTool]:
    """Accept what an MCP server offers now, or the named tools of it.

    Raises:
        NotFound, McpToolMissing: there is no such server, or no such tool.
        McpUntrusted: it is a project's, and the user has not vouched for it.
        McpFailed: it cannot be asked.
    """
    return await (await runtime.mcp.manager()).accept(endpoint, tools)


@operation("mcp:read")
async def health(runtime: Runtime, caller: Caller, /) -> list[EndpointHealth]:
    """Ask every MCP server that may be used, and return how each one is."""
    manager = await runtime.mcp.manager()
    return await manager.health(await runtime.mcp.count_invocations())


@operation("tools:call")
async def invoke(
    runtime: Runtime,
    caller: Caller,
    /,
    endpoint: str,
    tool: str,
    arguments: JsonObject,
    *,
    session_id: str = "",
    run_id: str = "",
    on_ask: OnAsk = "deny",
) -> ToolCallResult:
    """Call a tool of an MCP server by the server's own name for it, as `tools.call` does.

    Raises:
        NotFound, McpToolMissing: there is no such server, or no such tool.
        McpUntrusted: the server is a project's, and the user has not vouched for it.
        McpFailed: it cannot be asked what it offers.
    """
    registry = runtime.toolbox.registry
    manager = await runtime.mcp.manager()
    name = await manager.name_of(endpoint, tool, runtime.mcp.layer or registry)
    return await runtime.hand_calls.call(
        name, arguments, session_id=session_id, run_id=run_id, on_ask=on_ask
    )
