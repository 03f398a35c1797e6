"""The process behind `holdfast serve`: uvicorn, with limits that hold against slow clients."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import signal
import socket
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from types import FrameType, ModuleType

from holdfast.agents import Agent
from holdfast.errors import MissingExtra, UsageError
from holdfast.policy import Reload
from holdfast.server.app import HttpApplication
from holdfast.server.guard import bracketed
from holdfast.server.http import LEAST_BYTES_PER_S

try:
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
except ImportError as _error:
    raise MissingExtra(what="holdfast serve", package="uvicorn", extra="server") from _error


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 with clients that keep up: slow ones hold no connection for ever.

    The head of a request has to come in time (against slowloris), and what is sent has to be
    taken, at a kilobyte a second at least, also what is left when the connection closes.
    """

    header_timeout_s = 10.0
    write_timeout_s = 30.0
    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        # Every byte that waits is noticed, however few they are.
        transport.set_write_buffer_limits(high=0)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_timer()
        self._stop_write_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Begin to wait until the client has taken what was sent."""
        super().pause_writing()
        self._stop_write_timer()
        self._await_taking()

    def resume_writing(self) -> None:
        """It has."""
        self._stop_write_timer()
        super().resume_writing()

    def _await_taking(self) -> None:
        left = self.transport.get_write_buffer_size()
        after = self.write_timeout_s
        self._write_timer = self.loop.call_later(after, self._check_taking, left)

    def _check_taking(self, before: int) -> None:
        taken = before - self.transport.get_write_buffer_size()
        if taken < LEAST_BYTES_PER_S * self.write_timeout_s:
            self.transport.abort()
        else:
            self._await_taking()

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def handle_events(self) -> None:
        """Look at what came; a head that is whole ends the waiting, a part of one does not."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._stop_timer()

    def data_received(self, data: bytes) -> None:
        """Wait for the head of a further request from its first byte on."""
        cycle: RequestResponseCycle | None = self.cycle
        is_idle = cycle is None or cycle.response_complete
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

    def __init__(
        self,
        config: uvicorn.Config,
        app: HttpApplication,
        on_ready: Callable[[str], None] = lambda url: None,
    ) -> None:
        """Run this application; `on_ready` is told its address."""
        super().__init__(config)
        self._app = app
        self._on_ready = on_ready
        self._stopping: asyncio.Task[None] | None = None
        self._reloading: asyncio.Task[Reload] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the records, then listen."""
        await super().startup(sockets)
        if self.started:
            self._on_ready(self.url)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, let streams say goodbye and turns end, then close."""
        self._app.drain()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Stop in order on the first SIGINT or SIGTERM, at once on the second.

        SIGHUP has the policies read again, here and in every other process on the records.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        loop.add_signal_handler(signal.SIGHUP, self._reload_policies)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGHUP)
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop: `/ready` says no, turns go on for a while; a second time, stop now."""
        if self._stopping is not None:
            self.should_exit = self.force_exit = True
            return
        self._stopping = asyncio.get_running_loop().create_task(self._stop())

    def _reload_policies(self) -> None:
        """Have the first runtime, the operator's, read its policies; the others follow it."""
        for runtime in self._app.runtimes.list_open()[:1]:
            self._reloading = asyncio.create_task(runtime.policies.reload(asked_by="SIGHUP"))

    async def _stop(self) -> None:
        try:
            await self._app.settle()
        finally:
            self.should_exit = True

    @property
    def url(self) -> str:
        """The address that it listens on."""
        port = self.servers[0].sockets[0].getsockname()[1]
        return f"http://{bracketed(self.config.host)}:{port}"


def make_server(
    app: HttpApplication, on_ready: Callable[[str], None] = lambda url: None
) -> HoldfastServer:
    """Return a server for an application, with the limits of its settings."""
    options = app.options
    times = {"header_timeout_s": options.header_timeout_s}
    times["write_timeout_s"] = options.write_timeout_s
    protocol = type("_Protocol", (BoundedProtocol,), times)
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
        # Turns have had their time by then; this is for answers that are being sent.
        timeout_graceful_shutdown=5,
    )
    return HoldfastServer(config, app, on_ready)


async def serve(app: HttpApplication, on_ready: Callable[[str], None] = lambda url: None) -> None:
    """Serve an application until the process is told to stop (SIGINT, SIGTERM).

    `on_ready` is told the address as soon as requests are taken.
    """
    await make_server(app, on_ready).serve()


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
    given = list(found) if isinstance(found, Iterable) else [found]
    agents = [one for one in given if isinstance(one, Agent)]
    if not agents or len(agents) < len(given):
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
