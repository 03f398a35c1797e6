"""Which clients want to hear when a resource reads otherwise, in both eras of the protocol.

A conversation changes with every message. Who asks for an address is checked for it once, when it
subscribes: what it is told later is that there is something to read, which is checked again.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

import mcp_types as types
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError

from holdfast.errors import HoldfastError
from holdfast.hooks import BusEvent
from holdfast.observability import Logger
from holdfast.operations import Caller, sessions
from holdfast.runtime import Runtime
from holdfast.server.mcp.content import McpContent
from holdfast.server.mcp.requests import Context

_log = Logger("holdfast.server.mcp")
SCHEME: Final = "holdfast://"
_SESSIONS: Final = f"{SCHEME}sessions/"
_LISTS: Final[dict[str, type[ToolsListChanged | PromptsListChanged | ResourcesListChanged]]] = {
    "tools": ToolsListChanged,
    "prompts": PromptsListChanged,
    "resources": ResourcesListChanged,
}
_MOST_URIS: Final = 200
_MOST_STREAMS: Final = 256


class Subscriptions:
    """Tells clients of changes."""

    def __init__(self, content: McpContent) -> None:
        """No client has subscribed yet."""
        self._content = content
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus, max_subscriptions=_MOST_STREAMS)
        self._wanted: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()
        """The addresses of each connection of the older era."""
        self._sessions: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self._heard: WeakSet[Runtime] = WeakSet()
        self._telling: set[asyncio.Task[None]] = set()
        content.listeners.append(self._tell)

    async def subscribe(
        self, context: Context, caller: Caller, runtime: Runtime, uri: str
    ) -> types.EmptyResult:
        """Let a connection hear of an address.

        Raises:
            MCPError: it cannot be read by the caller, or there are too many.
        """
        await self._check(caller, runtime, uri)
        connection = context.session._connection
        wanted = self._wanted.setdefault(connection, set())
        if len(wanted) >= _MOST_URIS:
            raise MCPError(types.INVALID_PARAMS, f"More than {_MOST_URIS} subscriptions")
        wanted.add(uri)
        self._sessions[connection] = context.session
        return types.EmptyResult()

    async def unsubscribe(self, context: Context, uri: str) -> types.EmptyResult:
        """Let a connection hear no more of an address."""
        self._wanted.get(context.session._connection, set()).discard(uri)
        return types.EmptyResult()

    async def listen(
        self,
        context: Context,
        caller: Caller,
        runtime: Runtime,
        params: types.SubscriptionsListenRequestParams,
    ) -> types.SubscriptionsListenResult:
        """Send what a client wants to hear, until it goes; what it may not read is left out."""
        asked = params.notifications
        readable = []
        for uri in (asked.resource_subscriptions or [])[:_MOST_URIS]:
            try:
                await self._check(caller, runtime, uri)
            except MCPError:
                continue
            readable.append(uri)
        told = asked.model_copy(update={"resource_subscriptions": readable or None})
        return await self._listen(context, params.model_copy(update={"notifications": told}))

    # --- inside -----------------------------------------------------------------------

    async def _check(self, caller: Caller, runtime: Runtime, uri: str) -> None:
        if self._content.find(uri) is not None and caller.may("artifacts:read"):
            return
        id = uri.removeprefix(_SESSIONS)
        if not uri.startswith(_SESSIONS) or not id:
            raise MCPError(types.INVALID_PARAMS, f"Nothing is told of {uri:.200}")
        try:
            await sessions.get.perform(runtime, caller, id)
        except HoldfastError as error:
            raise MCPError(types.INVALID_PARAMS, f"Resource not found: {uri:.200}") from error
        if runtime not in self._heard:
            self._heard.add(runtime)
            await runtime.hooks.bus.subscribe("message.created", self._on_message)

    async def _on_message(self, event: BusEvent) -> None:
        self._tell(_SESSIONS + event.session_id)

    def _tell(self, uri: str) -> None:
        told = [
            self._sessions[connection]
            for connection, uris in self._wanted.items()
            if uri in uris and connection in self._sessions
        ]
        task = asyncio.ensure_future(self._send(uri, told))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _send(self, uri: str, told: list[Any]) -> None:
        await self._bus.publish(_LISTS[uri]() if uri in _LISTS else ResourceUpdated(uri=uri))
        for session in told:
            try:
                await session.send_resource_updated(uri)
            except Exception as error:  # noqa: BLE001 - the connection of one client
                _log.debug("mcp.not_told", uri=uri, error=str(error))


__all__ = ["SCHEME", "Subscriptions"]
