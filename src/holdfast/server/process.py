"""The process behind `holdfast serve`: uvicorn, with limits that hold against slow clients."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast.agents import Agent
from holdfast.errors import MissingExtra, UsageError
from holdfast.server.app import HttpApplication
from holdfast.server.guard import bracketed

try:
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as _error:
    raise MissingExtra(what="holdfast serve", package="uvicorn", extra="server") from _error


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 in which the head of a request has to come in time (against slowloris)."""

    header_timeout_s = 10.0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_timer()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Look at what came; a head that is whole ends the waiting, a part of one does not."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._stop_timer()

    def data_received(self, data: bytes) -> None:
        """Wait for the head of a further request from its first byte on."""
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and self._head_timer is None:
            self._await_head()
        super().data_received(data)

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self.header_timeout_s, self._give_up)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.close()


class HoldfastServer(uvicorn.Server):
    """uvicorn, whose shutdown first lets the application drain."""

    def __init__(self, config: uvicorn.Config, app: HttpApplication) -> None:
        """Run this application."""
        super().__init__(config)
        self._app = app
        self.bound: asyncio.Event | None = None

    async def shutdown(self, sockets: list[Any] | None = None) -> None:
        """Stop accepting, let streams say goodbye and turns end, then close."""
        self._app.drain()
        await super().shutdown(sockets)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.servers[0].sockets[0].getsockname()[1])


def make_server(app: HttpApplication) -> HoldfastServer:
    """Return a server for an application, with the limits of its settings."""
    options = app.options
    protocol = type("_Protocol", (BoundedProtocol,), {"header_timeout_s": options.header_timeout_s})
    config = uvicorn.Config(
        app,
        host=options.host,
        port=options.port,
        http=protocol,
        ws="none",
        lifespan="on",
        loop="auto",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        # Whom to believe is decided by the application, by its list.
        proxy_headers=False,
        h11_max_incomplete_event_size=options.max_header_bytes,
        limit_concurrency=options.max_connections,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(options.grace_s) + 1,
    )
    return HoldfastServer(config, app)


async def serve(app: HttpApplication, on_ready: Callable[[str], None] = lambda url: None) -> None:
    """Serve an application until the process is told to stop (SIGINT, SIGTERM).

    `on_ready` is told the address as soon as requests are taken.
    """
    server = make_server(app)

    async def tell() -> None:
        while not server.started:
            await asyncio.sleep(0.005)
        on_ready(f"http://{bracketed(app.options.host)}:{server.port}")

    telling = asyncio.create_task(tell())
    try:
        await server.serve()
    finally:
        telling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await telling


def load_agents(target: str, *, directory: Path) -> Sequence[Agent]:
    """Return the agents that `module:name` means: one, or several.

    The module is looked for in the directory first.

    Raises:
        UsageError: there is no such module or name, or it holds no agents.
    """
    name, _, attribute = target.partition(":")
    if not name or not attribute:
        raise UsageError(detail=f"Say module:name, such as app:agents, not {target!r}.")
    module = _load_module(name, directory)
    found: object = getattr(module, attribute, None)
    agents = list(found) if isinstance(found, Iterable) else [found]
    if not agents or not all(isinstance(one, Agent) for one in agents):
        raise UsageError(detail=f"{target} is neither an Agent nor a list of them.")
    return agents


def _load_module(name: str, directory: Path) -> ModuleType:
    place = str(directory)
    if place not in sys.path:
        sys.path.insert(0, place)
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(detail=f"The module {name!r} cannot be imported: {error}") from error


__all__ = ["BoundedProtocol", "HoldfastServer", "load_agents", "make_server", "serve"]
