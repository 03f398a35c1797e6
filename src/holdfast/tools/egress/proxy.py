"""The proxy that a sandboxed program reaches instead of a network.

CONNECT and plain HTTP, to hosts that are allowed by name. A name is resolved once, every address
is checked (SSRF, DNS rebinding), and the connection goes to a checked one. In a tunnel the name
that TLS asks for (SNI) has to be the one that the tunnel was opened for. Everything is counted,
bounded and kept. What the proxy cannot see: what is inside TLS, and so the Host of a request to
a server that serves several (domain fronting behind an allowed name).

A program learns why a name is not allowed, which is written in lists that it may know; it does
not learn whether a name has an address, a private one, or nothing that listens (one answer).
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeAlias

import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import HoldfastError, PermissionDenied, RateLimitError
from holdfast.ids import make_id
from holdfast.journal import Payload
from holdfast.policy import BadHost, normalize_host
from holdfast.tools.egress.client_hello import BadHello, ClientHello
from holdfast.tools.egress.events import EgressClosed, EgressOpened, EgressRefused
from holdfast.tools.egress.http_head import MAX_HEAD, BadHead, ProxyRequest, parse_head
from holdfast.tools.egress.relay import ConnectionEnd, Exhausted, Relay, read_hello
from holdfast.tools.egress.rules import EgressRules, is_literal
from holdfast.tools.host_rates import HostRates
from holdfast.tools.safe_http import Lookup, look_up_host

_MIB: Final = 1024 * 1024
_MAX_ADDRESSES: Final = 16
_MOST_REASONS: Final = 200
_TENS: Final = frozenset(10**power for power in range(10))
_UNREACHABLE: Final = "the host cannot be reached"
# Fatal alert `unrecognized_name`: what a TLS client understands.
_ALERT: Final = b"\x15\x03\x01\x00\x02\x02\x70"
_REASONS: Final = {
    400: "Bad Request",
    403: "Forbidden",
    405: "Method Not Allowed",
    408: "Request Timeout",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    502: "Bad Gateway",
    503: "Service Unavailable",
}

Note: TypeAlias = Callable[[Payload], Awaitable[None]]
"""Keeps a fact; a connection of which no fact can be kept is not made."""


class EgressLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of everything that goes over one proxy."""

    connections: int = 64
    requests: int = 20_000
    bytes_up: int = 1024 * _MIB
    bytes_down: int = 8 * 1024 * _MIB
    head_s: float = 10.0
    connect_s: float = 15.0
    idle_s: float = 300.0


class EgressRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """What a program was kept from, and why; for whoever has to explain its failure."""

    target: str
    because: str


class _Refused(Exception):
    """The request is refused: what the program is told, and what is the truth."""

    def __init__(self, status: int, because: str, *, told: str = "") -> None:
        super().__init__(because)
        self.status = status
        self.told = told or because


class EgressProxy:
    """One proxy on the account of one principal, behind any number of listeners.

    Limits hold for all that goes over it. `refusals` are the latest, oldest first.
    """

    def __init__(
        self,
        rules: EgressRules,
        *,
        principal: str,
        note: Note,
        rates: HostRates | None = None,
        lookup: Lookup = look_up_host,
        limits: EgressLimits | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        """Prepare; nothing is opened before `serve`."""
        self._rules = rules
        self._principal = principal
        self._note = note
        self._rates = rates or HostRates(clock)
        self._lookup = lookup
        self._limits = limits or EgressLimits()
        self._clock = clock
        self._refused: Counter[tuple[str, int, str]] = Counter()
        self._busy = 0
        self.requests = 0
        self.bytes_up = 0
        self.bytes_down = 0
        self.refusals: list[EgressRefusal] = []

    async def serve(self, listener: socket.socket) -> ProxyListener:
        """Answer on a listening socket, which is closed with what is returned."""
        listening = ProxyListener()
        listening.server = await asyncio.start_server(
            lambda reader, writer: listening.track(self._serve_connection(reader, writer)),
            sock=listener,
            limit=MAX_HEAD,
        )
        return listening

    # --- one connection ---------------------------------------------------------------

    async def _serve_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        program = ConnectionEnd(reader, writer)
        if self._busy >= self._limits.connections:
            writer.write(_write_answer(503, "too many connections at once"))
            program.abort()
            return
        self._busy += 1
        try:
            await self._serve_one(program)
        except (OSError, EOFError, TimeoutError):
            pass  # the program went away, or waits for nothing
        finally:
            await program.aclose()
            self._busy -= 1

    async def _serve_one(self, program: ConnectionEnd) -> None:
        try:
            request = await self._read_request(program)
        except BadHead as error:
            await self._refuse("", 0, str(error))
            await self._answer(program, error.status, str(error))
            return
        try:
            name, addresses = await self._admit(request)
            fact = EgressOpened(
                egress_id=make_id("egr"),
                principal=self._principal,
                protocol="connect" if request.is_tunnel else "http",
                host=name,
                port=request.port,
                addresses=addresses,
            )
            # Before the connection: what cannot be kept does not happen.
            await self._keep(fact)
        except _Refused as error:
            await self._refuse(request.host, request.port, str(error))
            await self._answer(program, error.status, error.told)
            return
        await self._carry(program, request, fact)

    async def _read_request(self, program: ConnectionEnd) -> ProxyRequest:
        try:
            async with asyncio.timeout(self._limits.head_s):
                head = await program.reader.readuntil(b"\r\n\r\n")
        except TimeoutError as error:
            raise BadHead("the head did not come in time", 408) from error
        except asyncio.LimitOverrunError as error:
            raise BadHead("the head is too long", 431) from error
        return parse_head(head)

    async def _admit(self, request: ProxyRequest) -> tuple[str, tuple[str, ...]]:
        """Return the name and the addresses that the connection may go to; raises _Refused."""
        self.requests += 1
        if self.requests > self._limits.requests:
            raise _Refused(429, f"more than {self._limits.requests} requests")
        try:
            # Before the name is resolved: a question to the resolver tells its owner something.
            name = self._rules.check(request.host, request.port)
            await self._rates.count(name, self._rules.network())
        except PermissionDenied as error:
            raise _Refused(403, _explain_failure(error)) from error
        except RateLimitError as error:
            raise _Refused(429, str(error)) from error
        except HoldfastError as error:
            # What is granted cannot be read: nothing is.
            raise _Refused(503, str(error), told="try later") from error
        return name, await self._resolve(name, request.port)

    async def _resolve(self, name: str, port: int) -> tuple[str, ...]:
        """Look a name up once and check every address; raises _Refused, always the same."""
        try:
            async with asyncio.timeout(self._limits.connect_s):
                found = [name] if is_literal(name) else await self._lookup(name, port)
            if not found:
                raise _Refused(502, f"{name} has no address", told=_UNREACHABLE)
            for address in found:
                # One bad address spoils the name: whoever answers so is up to something.
                self._rules.check_address(name, address)
        except PermissionDenied as error:
            raise _Refused(502, _explain_failure(error), told=_UNREACHABLE) from error
        except (OSError, TimeoutError, UnicodeError) as error:
            because = f"{name} cannot be resolved: {error}"
            raise _Refused(502, because, told=_UNREACHABLE) from error
        return tuple(dict.fromkeys(found))[:_MAX_ADDRESSES]

    async def _carry(
        self, program: ConnectionEnd, request: ProxyRequest, fact: EgressOpened
    ) -> None:
        """Connect and carry, and write down how it ended, however it does."""
        begun = self._clock.monotonic()
        passed = [0, 0]
        error = "it was cut off"
        server: ConnectionEnd | None = None
        try:
            try:
                server = await self._connect(fact)
            except (OSError, TimeoutError) as failed:
                error = f"{_UNREACHABLE}: {str(failed) or type(failed).__name__}"
                await self._answer(program, 502, _UNREACHABLE)
                return
            relay = Relay(
                program,
                server,
                up=lambda count: self._count(passed, 0, count),
                down=lambda count: self._count(passed, 1, count),
                idle_s=self._limits.idle_s,
            )
            if request.is_tunnel:
                await self._tunnel(program, relay, fact.host)
            else:
                await relay.exchange(request, fact.host)
            error = ""
        except BadHello as failed:
            error = f"refused: {failed}"
            await self._refuse(fact.host, fact.port, str(failed))
            with suppress(OSError):
                await program.send(_ALERT)
                await program.end()
        except TimeoutError:
            error = f"nothing was sent for {self._limits.idle_s:g} s"
        except BadHead as failed:
            error = str(failed)
            await self._answer(program, failed.status, error)
        except (Exhausted, OSError, EOFError, asyncio.LimitOverrunError) as failed:
            error = str(failed) or type(failed).__name__
        finally:
            if server is not None:
                await asyncio.shield(server.aclose())
            closed = EgressClosed(
                egress_id=fact.egress_id,
                principal=self._principal,
                host=fact.host,
                bytes_up=passed[0],
                bytes_down=passed[1],
                duration_s=round(self._clock.monotonic() - begun, 3),
                error=error[:300],
            )
            await asyncio.shield(self._keep_quietly(closed))

    async def _connect(self, fact: EgressOpened) -> ConnectionEnd:
        failure: OSError | TimeoutError = OSError("no address")
        async with asyncio.timeout(self._limits.connect_s):
            for address in fact.addresses:
                try:
                    return ConnectionEnd(
                        *await asyncio.open_connection(
                            address,
                            fact.port,
                            family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                            flags=socket.AI_NUMERICHOST,
                            limit=MAX_HEAD,
                        )
                    )
                except OSError as error:
                    failure = error
        raise failure

    async def _tunnel(self, program: ConnectionEnd, relay: Relay, name: str) -> None:
        await program.send(b"HTTP/1.1 200 Connection established\r\n\r\n")

        def check(hello: ClientHello) -> None:
            _check_name(hello, name)

        try:
            async with asyncio.timeout(self._limits.head_s):
                hello, data = await read_hello(program.reader, b"")
        except TimeoutError as error:
            raise BadHello("the first message of TLS did not come in time") from error
        check(hello)
        await relay.tunnel(data[: hello.size], data[hello.size :], check)

    # --- counting and keeping ---------------------------------------------------------

    def _count(self, passed: list[int], way: int, count: int) -> None:
        passed[way] += count
        if way == 0:
            self.bytes_up += count
        else:
            self.bytes_down += count
        if self.bytes_up > self._limits.bytes_up:
            raise Exhausted(f"more than {self._limits.bytes_up} bytes were sent")
        if self.bytes_down > self._limits.bytes_down:
            raise Exhausted(f"more than {self._limits.bytes_down} bytes were received")

    async def _refuse(self, host: str, port: int, because: str) -> None:
        """Write a refusal down; one that repeats only now and then, so that it floods nothing."""
        self.refusals = [
            *self.refusals[-9:],
            EgressRefusal(target=f"{host}:{port}" if host else "", because=because),
        ]
        key = (host[:253], port, because[:300])
        if key not in self._refused and len(self._refused) >= _MOST_REASONS:
            key = ("*", 0, "further hosts were refused")
        self._refused[key] += 1
        if self._refused[key] in _TENS:
            fact = EgressRefused(
                principal=self._principal,
                host=key[0],
                port=key[1],
                because=key[2],
                count=self._refused[key],
            )
            await self._keep_quietly(fact)

    async def _keep(self, fact: Payload) -> None:
        try:
            await self._note(fact)
        except HoldfastError as error:
            raise _Refused(503, f"it cannot be recorded: {error}", told="try later") from error

    async def _keep_quietly(self, fact: Payload) -> None:
        with suppress(HoldfastError):  # the journal is closed or full: who writes next is told
            await self._note(fact)

    async def _answer(self, program: ConnectionEnd, status: int, text: str) -> None:
        with suppress(OSError):
            await program.send(_write_answer(status, text))
            await program.end()


class ProxyListener:
    """A listener that a proxy answers on."""

    def __init__(self) -> None:
        """Use `EgressProxy.serve`."""
        self.server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def track(self, connection: Awaitable[None]) -> None:
        """Carry a connection, as long as the listener is open."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await connection
        except asyncio.CancelledError:
            if self.server is not None:
                raise
        finally:
            self._tasks.discard(task)

    async def aclose(self) -> None:
        """Stop listening, and end what is under way; safe to repeat."""
        server, self.server = self.server, None
        if server is not None:
            server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _check_name(hello: ClientHello, name: str) -> None:
    """Refuse a ClientHello that asks for another name than the tunnel was opened for."""
    if hello.hides_name:
        raise BadHello("it hides the name that it asks for (ECH)")
    wanted = "" if is_literal(name) else name
    try:
        found = normalize_host(hello.server_name) if hello.server_name else ""
    except BadHost as error:
        raise BadHello(f"the name in it is none: {error}") from error
    if found != wanted:
        told = found or "no name"
        raise BadHello(f"TLS asks for {told}, and the tunnel is for {name} (SNI)")


def _write_answer(status: int, text: str) -> bytes:
    body = f"holdfast: {text}\n".encode()
    head = (
        f"HTTP/1.1 {status} {_REASONS.get(status, 'Refused')}\r\n"
        f"Content-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body


def _explain_failure(error: PermissionDenied) -> str:
    return str(error.context.get("because", "")) or str(error)


__all__ = ["EgressLimits", "EgressProxy", "EgressRefusal", "Note", "ProxyListener"]
