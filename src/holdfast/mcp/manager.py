"""All configured MCP servers of a client: which may be used, what they offer, how they are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from holdfast.canonical import JsonObject, digest
from holdfast.errors import (
    AlreadyExists,
    HoldfastError,
    McpToolMissing,
    McpUntrusted,
    NotFound,
    UsageError,
)
from holdfast.journal import Origin
from holdfast.mcp.definitions import LeftOut, RemoteTool
from holdfast.mcp.events import McpGranted
from holdfast.mcp.opening import Opening
from holdfast.mcp.pins import Verdict
from holdfast.mcp.readings import OfferedPrompt, OfferedResource
from holdfast.mcp.results import render_error
from holdfast.mcp.server import Keeping, Server, Trust, format_where
from holdfast.observability import Logger
from holdfast.settings import McpEndpoint
from holdfast.tools import ToolRegistry

_log = Logger("holdfast.mcp")
_ADDRESS_WAIT_S: Final = 3.0
"""How long the start of a run waits for a server that is an address."""

_LATER = frozenset({"env", "headers", "hosts"})

Status: TypeAlias = Literal["ok", "failed", "disabled", "untrusted"]


class EndpointInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How a server is configured; the token is named, never shown."""

    name: str
    transport: str
    where: str
    enabled: bool
    trusted: bool
    source: str
    sandbox: str = ""
    hosts: tuple[str, ...] = ()
    """What its program may reach through the proxy, as granted now."""
    auth_token_env: str = ""
    rate_limit_per_minute: int | None = None


class EndpointHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How a server is right now; `latency_ms` is how long it took to list its tools."""

    name: str
    status: Status
    latency_ms: float | None = None
    authenticated: bool = False
    throttled: bool = False
    invocations: int = 0
    last_error: str = ""
    tools: int = 0
    held_back: tuple[str, ...] = ()
    server: str = ""
    protocol: str = ""
    sandbox: str = ""


class OfferedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of a server, with our name for it, and whether it is what was accepted."""

    name: str
    tool: str
    endpoint: str
    effect: str
    verdict: Verdict
    description: str
    parameters: JsonObject


class McpManager:
    """Connects to servers when a caller needs them, and to each only once.

    A server that a project's file names is used only after a person vouched for it, as it is
    configured now: a project of another author could start any program otherwise.
    """

    def __init__(
        self,
        openings: Sequence[Opening],
        keeping: Keeping,
        *,
        trust: Trust,
        project: str,
    ) -> None:
        """Prepare; nothing is started."""
        self._servers = {one.name: Server(one, keeping) for one in openings}
        self._trust = trust
        self._project = project
        self._keeping = keeping
        self._registered: dict[str, tuple[str, str]] = {}
        self._told: set[str] = set()
        self._looking: dict[str, asyncio.Task[None]] = {}

    # --- configuration ----------------------------------------------------------------

    def infos(self) -> list[EndpointInfo]:
        """Return how all servers are configured."""
        return [self._describe_endpoint(server) for server in self._servers.values()]

    def trust(self, name: str, *, revoke: bool = False) -> EndpointInfo:
        """Vouch for a server of the project as it is configured now, or take that back.

        Raises:
            NotFound: there is no such server.
        """
        server = self._find_server(name)
        server.is_barred = revoke and server.endpoint.is_of_project
        if revoke:
            self._trust.revoke(self._project, _trust_name(name))
        else:
            self._trust.trust(self._project, _trust_name(name), _digest_of(server.endpoint))
        return self._describe_endpoint(server)

    async def grant(self, name: str, hosts: Sequence[str], *, revoke: bool = False) -> EndpointInfo:
        """Let a server's program reach hosts, or take that back; holds from its next request on.

        To revoke without naming hosts is to revoke all.

        Raises:
            NotFound: there is no such server.
            UsageError: it is no filtered program, a host is none, or none is named.
            StorageError: it could not be written; nothing has changed.
        """
        server = self._find_server(name)
        if not server.endpoint.is_filtered:
            raise UsageError(
                detail=f"Hosts are granted to programs whose sandbox is filtered; that of {name} "
                f"is {server.endpoint.sandbox}."
                if server.endpoint.transport == "stdio"
                else f"{name} is an address, not a program: network.yaml allows its host."
            )
        book = self._keeping.grants
        if revoke and not hosts:
            hosts = await asyncio.to_thread(book.list_granted_hosts, name, server.endpoint)
        elif not hosts:
            raise UsageError(detail="Name the hosts to grant.")
        change = book.revoke if revoke else book.grant
        await asyncio.to_thread(change, name, server.endpoint, tuple(hosts))
        fact = McpGranted(endpoint=name, hosts=tuple(hosts), is_revoked=revoke)
        await self._keeping.note(fact, Origin())
        return self._describe_endpoint(server)

    def forget(self, name: str) -> None:
        """Forget what was accepted of a server, and that the user vouched for it.

        It need not be configured any more.
        """
        self._keeping.pins.forget(name)
        self._keeping.grants.forget(name)
        if self._keeping.logins is not None:
            self._keeping.logins.forget(name)
        self._trust.revoke(self._project, _trust_name(name))

    async def log_in(self, name: str, visit: Callable[[str], Awaitable[None]]) -> EndpointInfo:
        """Log in at a server; `visit` shows a person the page, also when it asks again later.

        What was kept of an earlier login is forgotten first.

        Raises:
            NotFound: there is no such server.
            UsageError: it is switched off, or takes no login.
            McpUntrusted: it is a project's, and the user has not vouched for it.
            McpFailed: it cannot be reached, or the login failed.
        """
        server = self._make_usable(name)
        if not server.endpoint.takes_login or self._keeping.logins is None:
            raise UsageError(
                detail=f"{name} takes no login: it is a program, or has a token of its own."
            )
        await asyncio.to_thread(self._keeping.logins.forget_tokens, name)
        server.connection.opening.visit = visit
        await server.connection.renew()
        await server.look(anew=True)
        return self._describe_endpoint(server)

    async def log_out(self, name: str) -> bool:
        """Forget the login at a server, and its connection; says whether there was one.

        Raises:
            NotFound: there is no such server.
        """
        server = self._find_server(name)
        logins = self._keeping.logins
        was_known = logins is not None and await asyncio.to_thread(logins.forget, name)
        server.connection.opening.visit = None
        await server.connection.renew()
        return was_known

    # --- tools ------------------------------------------------------------------------

    async def prepare(self, registry: ToolRegistry, *, has_network: bool = False) -> None:
        """Put the tools of all servers that may be used into a layer of tools.

        A server whose program reaches the network by itself is not started for a run whose
        sandbox cannot (`has_network`).

        Servers are asked at the same time, each at most as long as its limit. One that fails
        is left out, and logged; its tools stay known, so that calls say what is wrong.
        """
        usable = [
            one
            for one in self._servers.values()
            if self._is_usable(one) and one.is_for(has_network=has_network)
        ]
        await asyncio.gather(*(self._prepare(server, registry) for server in usable))

    async def list_tools_of(self, name: str) -> tuple[list[OfferedTool], tuple[LeftOut, ...]]:
        """Return what a server offers now, and what of it cannot be taken.

        Raises:
            NotFound: there is no such server.
            UsageError: it is switched off.
            McpUntrusted: it is a project's, and the user has not vouched for it.
            McpFailed: it cannot be asked.
        """
        server = self._make_usable(name)
        offer = await server.look(anew=True)
        return [_make_offered(server, one) for one in offer.tools], offer.left_out

    async def list_resources_of(self, name: str) -> list[OfferedResource]:
        """Return what can be read from a server now; raises as `list_tools_of`."""
        return await self._make_usable(name).list_resources()

    async def list_prompts_of(self, name: str) -> list[OfferedPrompt]:
        """Return the prompts of a server now; raises as `list_tools_of`."""
        return await self._make_usable(name).list_prompts()

    async def accept(self, name: str, tools: Sequence[str] = ()) -> list[OfferedTool]:
        """Accept what a server offers now, or the tools that are named; raises as `list_tools_of`.

        Raises:
            McpToolMissing: the server has no tool of this name.
        """
        server = self._make_usable(name)
        known = {one.remote for one in (await server.look(anew=True)).tools}
        for wanted in tools:
            if wanted not in known:
                raise McpToolMissing(endpoint=name, value=wanted)
        offer = await server.accept(tuple(tools))
        return [_make_offered(server, one) for one in offer.tools]

    async def name_of(self, name: str, tool: str, registry: ToolRegistry) -> str:
        """Return our name for a server's tool, then in the layer; raises as `list_tools_of`.

        Raises:
            McpToolMissing: the server has no tool of this name.
        """
        server = self._make_usable(name)
        offer = await server.look()
        self._register(server, registry)
        for remote in (*offer.tools, *server.readers):
            if remote.remote == tool or remote.name == tool:
                return remote.name
        raise McpToolMissing(endpoint=name, value=tool)

    # --- health -----------------------------------------------------------------------

    async def health(self, counts: Mapping[str, int]) -> list[EndpointHealth]:
        """Ask every server that may be used, at the same time, and say how each one is.

        `counts` are the calls so far.
        """
        asked = [
            self._describe_health(one, counts.get(one.name, 0)) for one in self._servers.values()
        ]
        return list(await asyncio.gather(*asked))

    async def aclose(self) -> None:
        """End all connections, and the programs with them; safe to repeat."""
        looking = list(self._looking.values())
        self._looking.clear()
        for task in looking:
            task.cancel()
        await asyncio.gather(*looking, return_exceptions=True)
        await asyncio.gather(*(server.aclose() for server in self._servers.values()))

    # --- inside -----------------------------------------------------------------------

    def _find_server(self, name: str) -> Server:
        found = self._servers.get(name)
        if found is None:
            raise NotFound(kind="MCP server", value=name)
        return found

    def _make_usable(self, name: str) -> Server:
        server = self._find_server(name)
        if not server.endpoint.enabled:
            raise UsageError(detail=f"The MCP server {name} is switched off (`enabled = false`).")
        if not self._is_trusted(server):
            raise McpUntrusted(endpoint=name, what=format_where(server.endpoint))
        server.connection.hurry()
        return server

    def _is_usable(self, server: Server) -> bool:
        return server.endpoint.enabled and self._is_trusted(server)

    def _is_trusted(self, server: Server) -> bool:
        endpoint = server.endpoint
        return not endpoint.is_of_project or self._trust.is_trusted(
            self._project, _trust_name(server.name), _digest_of(endpoint)
        )

    async def _prepare(self, server: Server, registry: ToolRegistry) -> None:
        """Register what a server offers; one that is only an address is not waited for long.

        It answers at once or is not there, while a program may have to be fetched first. What
        answers later is offered to later runs.
        """
        if server.connection.pause_s > 0:
            return
        looking = self._looking.get(server.name)
        if looking is not None and not looking.done():
            return
        looking = asyncio.create_task(self._look(server, registry))
        self._looking[server.name] = looking
        try:
            wait_s = _ADDRESS_WAIT_S if server.endpoint.transport == "http" else None
            await asyncio.wait({looking}, timeout=wait_s)
        except asyncio.CancelledError:
            looking.cancel()
            raise
        if looking.done():
            await looking
        elif server.name not in self._told:
            self._told.add(server.name)
            _log.warning(
                "mcp.not_waited_for",
                endpoint=server.name,
                error=f"no answer within {_ADDRESS_WAIT_S:g} s; the run begins without its tools",
            )

    async def _look(self, server: Server, registry: ToolRegistry) -> None:
        try:
            await server.look()
        except HoldfastError as error:
            if f"{server.name} {error}" not in self._told:
                # Said once: a server that is not allowed, or not installed, stays so.
                self._told.add(f"{server.name} {error}")
                _log.warning("mcp.not_available", endpoint=server.name, error=str(error))
            return
        self._register(server, registry)

    def _register(self, server: Server, registry: ToolRegistry) -> None:
        """Let the layer hold what the server offers now; what did not change stays as it is."""
        wanted = {tool.name: tool for tool in server.tools()}
        gone = [name for name, (owner, _) in self._registered.items() if owner == server.name]
        for name in gone:
            if name not in wanted:
                del self._registered[name]
                registry.unregister(name)
        for name, tool in wanted.items():
            mark = f"{tool.source_hash} {' '.join(tool.tags)}"
            owner, known = self._registered.get(name, ("", ""))
            if (owner, known) == (server.name, mark):
                continue
            try:
                registry.register(tool, replace=owner == server.name)
            except AlreadyExists:
                _log.warning("mcp.name_taken", endpoint=server.name, tool=name)
                continue
            self._registered[name] = (server.name, mark)

    async def _describe_health(self, server: Server, invocations: int) -> EndpointHealth:
        if not self._is_usable(server):
            status: Status = "untrusted" if server.endpoint.enabled else "disabled"
            return EndpointHealth(name=server.name, status=status, invocations=invocations)
        begun = self._keeping.clock.monotonic()
        error = ""
        server.connection.hurry()
        try:
            session = await server.connection.session()
            begun = self._keeping.clock.monotonic()
            await server.look(anew=True)
        except HoldfastError as failed:
            error = str(failed)
        took_ms = (self._keeping.clock.monotonic() - begun) * 1000
        opening = server.connection.opening
        return EndpointHealth(
            name=server.name,
            status="failed" if error else "ok",
            latency_ms=None if error else round(took_ms, 3),
            authenticated=bool(server.endpoint.auth_token_env)
            and not error
            and not opening.is_unauthorized,
            throttled=server.is_throttled or opening.is_throttled,
            invocations=invocations,
            last_error=error or server.connection.last_error,
            tools=len(server.offer.tools),
            held_back=tuple(server.held_back),
            server="" if error else render_error(session.server)[:200],
            protocol="" if error else session.protocol,
            sandbox=opening.sandbox,
        )

    def _describe_endpoint(self, server: Server) -> EndpointInfo:
        endpoint = server.endpoint
        return EndpointInfo(
            name=server.name,
            transport=endpoint.transport,
            where=format_where(endpoint),
            enabled=endpoint.enabled,
            trusted=self._is_trusted(server),
            source=endpoint.source,
            sandbox=endpoint.sandbox if endpoint.transport == "stdio" else "",
            hosts=self._keeping.grants.list_granted_hosts(server.name, endpoint),
            auth_token_env=endpoint.auth_token_env,
            rate_limit_per_minute=endpoint.rate_limit_per_minute,
        )


def _trust_name(name: str) -> str:
    return f"mcp:{name}"


def _digest_of(endpoint: McpEndpoint) -> str:
    """What was vouched for: everything that is said about the server.

    What came later counts where it is said, so that older words go on to hold.
    """
    said = endpoint.model_dump(mode="json")
    return digest({key: value for key, value in said.items() if value or key not in _LATER})


def _make_offered(server: Server, remote: RemoteTool) -> OfferedTool:
    return OfferedTool(
        name=remote.name,
        tool=remote.remote,
        endpoint=server.name,
        effect=remote.effect,
        verdict=server.verdicts.get(remote.remote, "new"),
        description=remote.description,
        parameters=remote.schema,
    )


__all__ = ["EndpointHealth", "EndpointInfo", "McpManager", "OfferedTool", "Status"]
