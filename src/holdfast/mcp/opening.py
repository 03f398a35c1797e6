"""How a server is reached: its program in the sandbox, or its address on the network."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

from holdfast.errors import HoldfastError, McpAuthFailed, MissingExtra
from holdfast.mcp.callback import open_callback
from holdfast.mcp.causes import check_program, find_cause
from holdfast.mcp.grants import Grants, list_no_grants
from holdfast.mcp.logins import LoginBook
from holdfast.mcp.network import check_process, resolve_endpoint, resolve_login
from holdfast.mcp.results import render_error
from holdfast.policy import PolicyBundle
from holdfast.settings import McpEndpoint, references
from holdfast.tools import (
    EgressProxy,
    Lookup,
    Profile,
    SandboxLimits,
    SandboxRunner,
    SandboxStream,
    ServesEgress,
    look_up_host,
)

if TYPE_CHECKING:
    from holdfast.mcp.wire.http import HttpLogin, Watched
    from holdfast.mcp.wire.session import Hearing, WireSession
    from holdfast.mcp.wire.stdio import Stray

_GIB: Final = 1024**3
# A server stays: it has no time limit, and programs with virtual machines of their own reserve
# far more memory than they use.
_LIMITS: Final = SandboxLimits(cpu_s=0, memory_bytes=64 * _GIB, timeout_s=0.0)
_LAST_LINES: Final = 600
_FIRST_ERROR: Final = 400
_END_S: Final = 2.0
_LOGGERS: Final = ("mcp", "client")
_UNHEARD: Final = logging.NullHandler()


class OpensProcess(Protocol):
    """Confines programs that stay, as `runtime.ProcessEnvironment.open_process` does."""

    def __call__(
        self,
        workspace: str,
        *,
        profile: Profile,
        limits: SandboxLimits,
        environment: Mapping[str, str],
        readable: tuple[str, ...] = (),
        writable: tuple[str, ...] = (),
        egress: ServesEgress | None = None,
    ) -> SandboxRunner:
        """Return what runs a program in a directory."""
        ...


@dataclass(kw_only=True)
class Opening:
    """Everything that it takes to reach one server, and what was noticed on the way."""

    name: str
    endpoint: McpEndpoint
    workspace: str
    token: Callable[[str], str]
    """Gives the token that a variable holds, else nothing."""
    policies: Callable[[], PolicyBundle]
    open_process: OpensProcess
    """Gives what confines the program; what no tool may see or change, it may not either."""
    open_egress: Callable[[str, Grants], EgressProxy] | None = None
    """Gives the proxy of a filtered program; without one such a program is not started."""
    grants: Grants = list_no_grants
    """Says which hosts were granted to the program, as things are now."""
    lookup: Lookup = look_up_host
    logins: LoginBook | None = None
    """Where we are logged in; without one, a server that wants a login is given up."""
    visit: Callable[[str], Awaitable[None]] | None = None
    """Shows a person the page of a login; without it none is begun."""
    secrets: set[str] = field(default_factory=set, repr=False)
    sandbox: str = ""
    """What confines its program, once it runs."""
    refusal: HoldfastError | None = None
    """Why the last attempt was given up before anything was sent, if it was."""
    _runner: SandboxRunner | None = field(default=None, repr=False)
    _proxy: EgressProxy | None = field(default=None, repr=False)
    _stream: SandboxStream | None = field(default=None, repr=False)
    _stray: Stray | None = field(default=None, repr=False)
    _watched: Watched | None = field(default=None, repr=False)

    @property
    def is_unauthorized(self) -> bool:
        """Whether the server's last answer asked for a token, or another one."""
        return self._watched is not None and self._watched.is_unauthorized

    @property
    def is_throttled(self) -> bool:
        """Whether the server's last answer was: too many requests."""
        return self._watched is not None and self._watched.is_throttled

    async def explain(self, told: str) -> str:
        """Add to a failure what the program said before, and what of it was no message."""
        if self._watched is not None and self._watched.status >= _FIRST_ERROR:
            told += f" (HTTP {self._watched.status})"
        if self._stray is not None and self._stray.count:
            told += f"; {self._stray.count} of its lines were no messages of the protocol"
        if self._stray is not None and self._stray.is_flood:
            told += "; it wrote more than can be read"
        if self._stream is not None:
            said = render_error(await self._stream.read_complaints(), self.secrets)
            if said:
                told += f"; it said: {said[-_LAST_LINES:]}"
            told += find_cause(self.endpoint, said, self._proxy.refusals if self._proxy else ())
        return told

    def read_token(self) -> str:
        """Return the token; empty if the endpoint needs none.

        Raises:
            McpAuthFailed: the variable that the endpoint names is not set.
        """
        if not self.endpoint.auth_token_env:
            return ""
        found = self.token(self.endpoint.auth_token_env)
        if not found:
            detail = f"the variable {self.endpoint.auth_token_env} holds no token"
            raise McpAuthFailed(endpoint=self.name, detail=detail)
        self.secrets.add(found)
        return found

    def fill_in(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Return texts with the values of the variables that they name.

        Raises:
            McpAuthFailed: a variable is not set.
        """
        filled: dict[str, str] = {}
        for name, text in texts.items():
            for variable in references(text):
                value = self.token(variable)
                if not value:
                    detail = f"{name} needs the variable {variable}, which is not set"
                    raise McpAuthFailed(endpoint=self.name, detail=detail)
                self.secrets.add(value)
                text = text.replace(f"${{{variable}}}", value)
            filled[name] = text
        return filled

    def read_headers(self) -> dict[str, str]:
        """Return the headers of every request, the token among them; raises McpAuthFailed."""
        token = self.read_token()
        own = {"Authorization": f"Bearer {token}"} if token else {}
        return {**self.fill_in(self.endpoint.headers), **own}

    async def start_program(self, line_bytes: int) -> SandboxStream:
        """Start the program, confined as the endpoint says and in no case less.

        Its environment is the sandbox's own, the variables that the endpoint names, and the
        token if it needs one.

        Raises:
            McpFailed: there is no such program, or the sandbox cannot read it.
            SandboxFailed: it cannot be confined here, so it was not started.
            PermissionDenied: it needs a network that programs may not have.
            UsageError: a variable cannot be given under that name.
        """
        endpoint = self.endpoint
        check_process(self.name, endpoint, self.policies())
        await asyncio.to_thread(check_program, self.name, endpoint, self.workspace)
        token = self.read_token()
        self._proxy = None
        if endpoint.is_filtered and self.open_egress is not None:
            self._proxy = self.open_egress(self.name, self.grants)
        self._runner = self.open_process(
            self.workspace,
            profile=endpoint.sandbox,
            limits=_LIMITS,
            # Refused for variables that make programs load or run something.
            environment={
                **self.fill_in(endpoint.env),
                **({endpoint.auth_token_env: token} if token else {}),
            },
            readable=endpoint.readable,
            writable=endpoint.writable,
            egress=self._proxy.serve if self._proxy is not None else None,
        )
        self._stream = await self._runner.open_program(
            (str(endpoint.command), *endpoint.args), line_bytes=line_bytes
        )
        self.sandbox = self._stream.level_name
        return self._stream

    async def end_program(self) -> None:
        """Remove what the sandbox of the program needed; the program has ended."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.aclose()

    @contextlib.asynccontextmanager
    async def open_login(self) -> AsyncIterator[HttpLogin | None]:
        """Give what logs in, as long as this is open; nothing where there is no need or way.

        Raises:
            McpAuthFailed: a variable that the endpoint names is not set.
            StorageError: logins cannot be read.
        """
        from holdfast.mcp.wire import http, login  # noqa: PLC0415 - an extra, and large

        endpoint, book = self.endpoint, self.logins
        if book is None or not endpoint.takes_login:
            yield None
            return
        kept = await asyncio.to_thread(book.read, self.name, str(endpoint.url))
        is_machine = endpoint.oauth.grant == "client_credentials"
        if kept.tokens is None and self.visit is None and not is_machine:
            yield None
            return
        known = (kept.client or {}).get("redirect_uris") or [""]
        wanted = urlsplit(str(known[0])).port or 0
        opened = open_callback(wanted) if self.visit is not None else contextlib.nullcontext()
        async with opened as callback:
            auth = login.make_login(
                self.name,
                endpoint,
                book,
                read_secret=self.read_secret,
                visit=self._show,
                callback=callback,
            )
            yield http.HttpLogin(auth, self.resolve_login)

    async def _show(self, url: str) -> None:
        """Show the page of a login; raises McpAuthFailed where no browser can be sent there."""
        if self.visit is None:
            self.refusal = McpAuthFailed(endpoint=self.name, detail="it wants you to log in")
            raise self.refusal
        await self.visit(url)

    def read_secret(self, variable: str) -> str:
        """Return what a variable holds, kept out of sight from now on; else nothing."""
        found = self.token(variable)
        if found:
            self.secrets.add(found)
        return found

    async def resolve_login(self, url: str) -> str:
        """Return the address for a request of a login, checked anew; remember a refusal."""
        try:
            return await resolve_login(self.endpoint, url, self.policies(), self.lookup)
        except HoldfastError as error:
            self.refusal = error
            raise

    async def resolve(self) -> str:
        """Return the address to connect to, checked anew; remember a refusal."""
        try:
            return await resolve_endpoint(self.endpoint, self.policies(), self.lookup)
        except HoldfastError as error:
            self.refusal = error
            raise


def connect_by_sdk(
    opening: Opening, on_end: Callable[[], None], hearing: Hearing
) -> AbstractAsyncContextManager[WireSession]:
    """Connect through the official SDK.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        from holdfast.mcp.wire import http, session, stdio  # noqa: PLC0415 - an extra, and large
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("holdfast"):
            raise
        raise MissingExtra(what="MCP", package="mcp", extra="mcp") from error
    for name in _LOGGERS:
        # Where no caller set a log up, Python prints warnings; what they say is in our errors.
        logging.getLogger(name).addHandler(_UNHEARD)

    @asynccontextmanager
    async def connected() -> AsyncIterator[WireSession]:
        endpoint = opening.endpoint
        opening.refusal = None
        async with contextlib.AsyncExitStack() as stack:

            async def end() -> None:
                await asyncio.shield(opening.end_program())

            stack.push_async_callback(end)
            if endpoint.transport == "stdio":
                opening._stray = stdio.Stray()

                async def start() -> SandboxStream:
                    return await opening.start_program(stdio.MOST_LINE_BYTES)

                transport = stdio.open_stdio_transport(start, opening._stray, on_end)
            else:
                opening._watched = http.Watched()
                login = await stack.enter_async_context(opening.open_login())
                transport = http.open_http_transport(
                    str(endpoint.url),
                    resolve=opening.resolve,
                    headers=opening.read_headers(),
                    timeout_s=endpoint.timeout_s + _END_S,
                    connect_timeout_s=endpoint.connect_timeout_s,
                    watched=opening._watched,
                    login=login,
                )
            yield await stack.enter_async_context(
                session.open_session(
                    transport,
                    timeout_s=endpoint.timeout_s,
                    hearing=hearing,
                    # An address elsewhere need not know how directories are called here.
                    root=opening.workspace if endpoint.transport == "stdio" else None,
                    samples=endpoint.sampling,
                )
            )

    return connected()


__all__ = ["Opening", "connect_by_sdk"]
