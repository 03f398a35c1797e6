"""The HTTP application: the table of operations, projected onto ASGI.

Every request passes the same way: how it addresses us, which id it has, who asks, which
operation, its arguments, the operation itself, its answer. `create_app` gives an ASGI application
that any server can run and any other application can mount.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from email.utils import formatdate
from typing import IO, Any, Final, TypeVar

from holdfast.errors import HoldfastError, NotPermitted, RequestTimeout, ServerDraining
from holdfast.ids import make_id
from holdfast.observability import INCOMING_TRACE, Logger, bind_log_fields, parse_traceparent
from holdfast.operations import (
    OWNER,
    Caller,
    HttpRoute,
    Operation,
    StreamOperation,
    perform_again,
    runs,
)
from holdfast.runtime import Runtime
from holdfast.server.answers import encode_response
from holdfast.server.endpoints import HttpEndpoint, Router, list_endpoints
from holdfast.server.faces import Face, FaceRequest, FaceTable
from holdfast.server.guard import AddressGuard
from holdfast.server.http import (
    AsgiApp,
    Disconnected,
    Middleware,
    Receive,
    Scope,
    Send,
    ServerRequest,
    ServerResponse,
    send_response,
)
from holdfast.server.idempotency import Idempotency, KeyedRequest
from holdfast.server.identity import Authenticator
from holdfast.server.logins import BrowserLogins, make_login_face
from holdfast.server.open_requests import OpenRequest, OpenRequests, find_bounds
from holdfast.server.problems import ProblemRaised, problem_response
from holdfast.server.redaction import Redaction, hold_pieces
from holdfast.server.streams import (
    NDJSON,
    SSE,
    EventStream,
    HeardPieces,
    SentStream,
    merge_run,
    only_kinds,
    read_kinds,
    read_last_id,
    send_download,
    to_events,
)
from holdfast.server.tenancy import RuntimeProvider
from holdfast.settings import Settings

_log = Logger("holdfast.server")
_PROBES = frozenset({"/health", "/ready", "/metrics"})
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_EXPOSED: Final = b"X-Request-Id, Location, Retry-After, Deprecation, Sunset"
_ENDLESS: Final = frozenset({"events.watch", "events.stream", "runs.watch_family", "state.watch"})
_PATIENCE_S: Final = 1.0
"""Whether its client is still there is asked only of a request that takes longer."""
_OF_SESSION: Final = frozenset({"runs.events"})

T = TypeVar("T")
Handler = Callable[[ServerRequest, Caller | None, str], Awaitable[ServerResponse]]
"""Answers a path that is no operation: health, metrics, the description of the API."""


class HttpApplication:
    """Answers requests over HTTP; an ASGI application.

    Middleware stands between the checks of the address and the authentication: it sees every
    request that addresses us, and every answer.
    """

    def __init__(
        self,
        runtimes: RuntimeProvider,
        authenticator: Authenticator,
        *,
        settings: Settings,
        middleware: Sequence[Middleware] = (),
        pages: dict[tuple[str, str], Handler] | None = None,
    ) -> None:
        """Answer with the operations of these runtimes, to callers that this one knows."""
        self.runtimes = runtimes
        self.logins = BrowserLogins(authenticator, runtimes.operator.control.logins)
        self.authenticator: Authenticator = self.logins
        self.settings = settings
        self.setting_sources: Mapping[str, str] = {}
        """Where each setting came from, as far as that is known."""
        self.options = settings.server
        self.pages = dict(pages or {})
        """Paths that need no caller, and answer for themselves."""
        self.streams: set[SentStream] = set()
        self.is_draining = False
        self._has_settled = False
        self.observers: list[Callable[[str, int, float], None]] = []
        """Told of each answer: the operation or path, the status, the seconds it took."""
        self._guard = AddressGuard(
            host=self.options.host,
            allowed_hosts=self.options.allowed_hosts,
            allowed_origins=self.options.allowed_origins,
            trusted_proxies=self.options.trusted_proxies,
        )
        self._router = Router(list_endpoints())
        self.faces = FaceTable(self)
        self.faces.mount("/login", make_login_face(self))
        self._idempotency = Idempotency()
        self._open = OpenRequests(self.authenticator, recheck_s=self.options.recheck_s)
        self._detached: set[asyncio.Task[Any]] = set()
        inner: AsgiApp = self._answer
        for wrap in reversed(middleware):
            inner = wrap(inner)
        self._inner = Redaction(settings, runtimes.operator.redactor).wrap(inner)

    # --- ASGI -------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or open and close with the server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._check(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.open()
                except Exception as error:  # noqa: BLE001 - told to the server, which then ends
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def open(self) -> None:
        """Open the records, and go on with what was under way when the last process ended."""
        await self.runtimes.open()
        for runtime in self.runtimes.list_open():
            runtime.recovery.follow_answers()
            runtime.recovery.follow_outages()
            await runtime.recovery.resume_all()

    def check_operator(self, caller: Caller, scope: str) -> None:
        """Return if a caller has a scope that concerns the whole process, not one tenant.

        Raises:
            NotPermitted: it lacks the scope, or is of another tenant than the operator's.
        """
        if caller is not OWNER and caller.tenant != self.settings.tenant:
            raise NotPermitted(subject=caller.subject, scope=scope)
        caller.check(scope)

    def drain(self) -> None:
        """Take nothing new: `/ready` says no, and streams say goodbye."""
        self.is_draining = True
        for stream in tuple(self.streams):
            stream.drain()

    async def settle(self) -> None:
        """Drain, give running turns their time, then let go: what is left goes on later."""
        self.drain()
        if not self._has_settled:
            self._has_settled = True
            opened = self.runtimes.list_open()
            await asyncio.gather(*(one.recovery.let_go(self.options.grace_s) for one in opened))
        for task in tuple(self._detached):
            task.cancel()
        await asyncio.gather(*self._detached, return_exceptions=True)

    async def close(self) -> None:
        """Settle, and close the records."""
        await self.settle()
        await self._open.close()
        await self.faces.close()
        await self.runtimes.close()

    # --- the way of a request ---------------------------------------------------------

    async def _check(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Give the request an id, and refuse it if it does not address us."""
        self._guard.apply_proxy(scope)
        given = _header(scope, b"x-request-id")
        request_id = given if _REQUEST_ID.fullmatch(given) else make_id("req")
        started = asyncio.get_running_loop().time()
        status = 500

        async def sending(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = [*message.get("headers", ()), *scope.get("holdfast.headers", ())]
                named = {name for name, _ in own}
                common = self._common(scope, request_id)
                message["headers"] = [*own, *(one for one in common if one[0] not in named)]
            await send(message)

        scope.setdefault("state", {})
        scope["holdfast.request_id"] = request_id
        scope["holdfast.name"] = ""
        is_head = scope["method"] == "HEAD"
        passing = scope["holdfast.open"] = OpenRequest(receive, sending, is_head=is_head)
        trace = _header(scope, b"traceparent")
        incoming = INCOMING_TRACE.set(trace if parse_traceparent(trace) is not None else "")
        try:
            with bind_log_fields(request_id=request_id), self._open.hold(passing):
                await self._pass(scope, passing.receive, passing.send)
        finally:
            INCOMING_TRACE.reset(incoming)
            taken = asyncio.get_running_loop().time() - started
            name = scope["holdfast.name"]
            say = _log.debug if name in _PROBES and status < 400 else _log.note
            say(
                "request.ended",
                operation=name or scope["method"],
                status_code=status,
                duration_s=taken,
                request_id=request_id,
            )
            for observe in self.observers:
                observe(name, status, taken)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on if the guard lets it in."""
        try:
            self._guard.check(ServerRequest(scope, receive))
        except (HoldfastError, ProblemRaised) as error:
            response = problem_response(error, scope["holdfast.request_id"])
            await send_response(send, response, is_head=False, common=[])
            return
        await self._inner(scope, receive, send)

    def _common(self, scope: Scope, request_id: str) -> list[tuple[bytes, bytes]]:
        """Return the headers of every answer."""
        headers = [
            (b"x-request-id", request_id.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"cache-control", b"no-store"),
            (b"referrer-policy", b"no-referrer"),
        ]
        trace = _header(scope, b"traceparent")
        if parse_traceparent(trace) is not None:
            headers.append((b"traceparent", trace.encode()))
        origin = _header(scope, b"origin")
        if origin and self._guard.is_known_origin(origin):
            headers += [
                (b"access-control-allow-origin", origin.encode("latin-1")),
                (
                    b"access-control-expose-headers",
                    b"X-Request-Id, Location, Retry-After, Deprecation, Sunset",
                ),
                (b"vary", b"Origin"),
            ]
        return headers

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id: str = scope["holdfast.request_id"]
        is_head = scope["method"] == "HEAD"
        try:
            request = ServerRequest(scope, receive)
            response = await self._respond(request, request_id, send)
        except Disconnected:
            return
        except (HoldfastError, ProblemRaised) as error:
            response = problem_response(error, request_id)
            if response.status >= 500:
                _log.warning("request failed", status=response.status, error=str(error))
        except Exception as error:  # noqa: BLE001 - a door: the client learns where to look
            _log.exception("request failed", path=scope["path"])
            response = problem_response(error, request_id)
        if response is not None:
            await send_response(send, response, is_head=is_head, common=[])

    async def _respond(
        self, request: ServerRequest, request_id: str, send: Send
    ) -> ServerResponse | None:
        """Return the answer; `None` if it was sent as a stream."""
        method = request.head.method
        page = self.pages.get(("GET" if method == "HEAD" else method, request.head.path))
        if page is not None:
            request.scope["holdfast.name"] = request.head.path
            return await page(request, None, request_id)
        if method == "OPTIONS":
            return self._preflight(request)
        face = self.faces.find(request.segments)
        if face is not None:
            return await self._show(*face, request, send)
        caller = await self.authenticate(request)
        endpoint = self._router.find(method, request.segments)
        request.scope["holdfast.name"] = endpoint.name
        if endpoint.route.deprecated_at:
            request.scope["holdfast.headers"] = make_deprecation_headers(endpoint.route)
        if self.is_draining:
            raise ServerDraining
        with (
            tempfile.TemporaryFile() if endpoint.route.upload else contextlib.nullcontext() as file
        ):
            return await self._ask(endpoint, request, send, caller, file)

    async def authenticate(self, request: ServerRequest) -> Caller:
        """Return who asks, who is looked at again as long as the request lasts.

        Raises:
            Unauthenticated: it is none that is known.
            RateLimitError: it, its tenant, or failures from its address came too often.
        """
        caller = await self.authenticator.authenticate(request.head)
        self.note_caller(request)
        return caller

    def note_caller(self, request: ServerRequest) -> None:
        """Look again, as long as this request lasts, whether who made it is still let in."""
        request.scope["holdfast.open"].head = request.head

    @property
    def active(self) -> int:
        """How many requests are being answered now."""
        return self._open.count

    async def _show(
        self, prefix: str, face: Face, request: ServerRequest, send: Send
    ) -> ServerResponse | None:
        """Let a face answer, and tell in its words what went wrong."""
        asked = FaceRequest(self, request, send, prefix=prefix)
        asked.name_operation(prefix)
        try:
            if not face.is_open:
                await asked.authenticate()
            if self.is_draining:
                raise ServerDraining
            return await face.answer(asked)
        except Disconnected:
            raise
        except (HoldfastError, ProblemRaised) as error:
            return face.explain(error, asked.id)
        except Exception as error:  # noqa: BLE001 - a door: the client learns where to look
            _log.exception("request failed", path=request.head.path)
            return face.explain(error, asked.id)

    async def _ask(
        self,
        endpoint: HttpEndpoint,
        request: ServerRequest,
        send: Send,
        caller: Caller,
        file: IO[bytes] | None,
    ) -> ServerResponse | None:
        """Read the arguments, perform the operation, and return its answer."""
        request_id: str = request.scope["holdfast.request_id"]
        request.scope["holdfast.open"].shows_secret = endpoint.route.is_secret
        values = await self._read_values(endpoint, request, file)
        runtime = await self.runtimes.runtime_for(caller)
        key = request.headers.get("idempotency-key", "") if endpoint.method == "POST" else ""
        kept = self._idempotency
        if endpoint.operation.is_stream:
            if key:
                asked = KeyedRequest(runtime, caller, endpoint, key, request_id)
                values = await kept.find_run(asked, values)
            await self._stream(endpoint, request, send, runtime, caller, values, request_id)
            return None

        async def perform(values: dict[str, Any], is_again: bool) -> ServerResponse:
            assert isinstance(endpoint.operation, Operation)
            operation = endpoint.operation
            asked = perform_again if is_again else perform_once
            work = asked(operation, runtime, caller, values)
            answer = await self.bound(work, **find_bounds(operation, request))
            return encode_response(endpoint, answer, values)

        if not key or file is not None:
            return await perform(values, False)
        asked = KeyedRequest(runtime, caller, endpoint, key, request_id)
        return await kept.perform(asked, values, perform)

    async def _read_values(
        self, endpoint: HttpEndpoint, request: ServerRequest, file: IO[bytes] | None
    ) -> dict[str, Any]:
        encoding = request.headers.get("content-encoding", "identity").lower()
        if encoding != "identity":
            # Unpacked, a small body could be larger than all memory.
            raise ProblemRaised(415, "request.encoding", "send the body as it is, not packed")
        values = endpoint.read_parameters(request.segments)
        pairs = request.read_query()
        if file is not None:
            values |= endpoint.read_query(pairs)
            limit, pause = self.options.max_upload_bytes, self.options.body_timeout_s
            await request.spool_body(file, limit=limit, timeout_s=pause)
            return values | {endpoint.route.upload: file}
        if not endpoint.has_body:
            return values | endpoint.read_query(pairs)
        if pairs and not (endpoint.operation.is_stream and all(n == "kinds" for n, _ in pairs)):
            raise endpoint.refuse_query(pairs[0][0])
        body = await request.read_body(
            limit=self.options.max_body_bytes, timeout_s=self.options.body_timeout_s
        )
        media_type = request.headers.get("content-type", "")
        return values | endpoint.read_body(body, media_type, max_depth=self.options.max_depth)

    async def bound(
        self,
        asked: Coroutine[Any, Any, T],
        *,
        goes_on: bool,
        reader: ServerRequest | None = None,
    ) -> T:
        """Return what work answers, no later than a request may take; raises RequestTimeout.

        What `goes_on` is not given up then, nor with the request. What only reads, for a `reader`,
        is given up as soon as that one has gone.

        Raises:
            Disconnected: the reader has gone.
        """
        work = asyncio.ensure_future(asked)
        self._detached.add(work)
        work.add_done_callback(self._forget)
        try:
            async with asyncio.timeout(self.options.request_timeout_s):
                if reader is not None:
                    await _wait_or_leave(work, reader)
                return await asyncio.shield(work)
        except TimeoutError:
            if work.done():
                raise  # the operation's own
            if not goes_on:
                work.cancel()
            raise RequestTimeout(seconds=self.options.request_timeout_s) from None
        except Disconnected:
            work.cancel()
            raise
        except asyncio.CancelledError:
            if work.cancelled():
                raise ServerDraining from None
            if not goes_on:
                work.cancel()
            raise

    def _forget(self, work: asyncio.Future[Any]) -> None:
        self._detached.discard(work)
        if not work.cancelled():
            work.exception()

    # --- streams ----------------------------------------------------------------------

    async def _stream(
        self,
        endpoint: HttpEndpoint,
        request: ServerRequest,
        send: Send,
        runtime: Runtime,
        caller: Caller,
        values: dict[str, Any],
        request_id: str,
    ) -> None:
        operation = endpoint.operation
        assert isinstance(operation, StreamOperation)
        if endpoint.route.media_type:
            items = await self.begin_stream(operation, runtime, caller, values)
            async with contextlib.aclosing(items):
                await send_download(
                    items, request, send, headers=[], media_type=endpoint.route.media_type
                )
            return
        if caller is not OWNER:
            await operation.admit(runtime, caller, (), dict(values))
        last = read_last_id(request)
        if last is not None and "after" in endpoint.fields:
            values["after"] = last
        events = self._events(endpoint, runtime, caller, values, last or 0)
        kinds = read_kinds(request.read_query())
        if kinds:
            events = only_kinds(events, kinds)
        stream = EventStream(
            events,
            media_type=_stream_type(request.headers.get("accept", "")),
            heartbeat_s=self.options.heartbeat_s,
            request_id=request_id,
        )
        longest = self.options.stream_timeout_s
        ending = longest and asyncio.get_running_loop().call_later(longest, stream.drain)
        try:
            await self.send_stream(stream, request, send)
        finally:
            if ending:
                ending.cancel()

    async def begin_stream(
        self,
        operation: StreamOperation[..., Any],
        runtime: Runtime,
        caller: Caller,
        values: dict[str, Any],
    ) -> AsyncGenerator[Any, None]:
        """Return the items of an operation; who may not have them is refused before the first."""
        if caller is not OWNER:
            # Refused with a status of its own, before the stream says that it is open.
            await operation.admit(runtime, caller, (), dict(values))
        return operation.perform(runtime, caller, **values)

    async def send_stream(self, stream: SentStream, request: ServerRequest, send: Send) -> None:
        """Send a stream to its end; it says goodbye when the server stops."""
        self.streams.add(stream)
        try:
            await stream.send_all(request, send, [])
        finally:
            self.streams.discard(stream)

    def _events(
        self,
        endpoint: HttpEndpoint,
        runtime: Runtime,
        caller: Caller,
        values: dict[str, Any],
        last: int,
    ) -> Any:
        """Return the events of a stream; a run is followed whether or not it was begun by it."""
        name, operation = endpoint.name, endpoint.operation
        if name == "runs.follow":
            return merge_run(runtime, caller, values["run_id"], after=last)
        if name == "runs.stream" and not values.get("with_children"):
            return self._start_and_follow(runtime, caller, values)
        assert isinstance(operation, StreamOperation)
        items = hold_pieces(operation.perform(runtime, caller, **values))
        return to_events(items, of_session=name in _OF_SESSION, is_endless=name in _ENDLESS)

    async def _start_and_follow(
        self, runtime: Runtime, caller: Caller, values: dict[str, Any]
    ) -> Any:
        asked = {name: value for name, value in values.items() if name != "with_children"}
        heard = HeardPieces()
        run = await runs.start.perform(runtime, caller, **asked, listener=heard.hear)
        pieces = heard.items(runtime, caller, run.id)
        follow = merge_run(runtime, caller, run.id, pieces=pieces)
        async with contextlib.aclosing(follow):
            async for event in follow:
                yield event

    def _preflight(self, request: ServerRequest) -> ServerResponse:
        """Tell a browser what a page on the list may ask."""
        origin = request.headers.get("origin", "")
        if not origin or not self._guard.is_known_origin(origin):
            raise ProblemRaised(403, "request.origin", "scripts of this page may not ask")
        allowed = (
            ("access-control-allow-methods", "GET, HEAD, POST, PUT, PATCH, DELETE"),
            (
                "access-control-allow-headers",
                "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, Traceparent, "
                "X-Request-Id",
            ),
            ("access-control-max-age", "600"),
        )
        return ServerResponse(204, headers=allowed)


async def _wait_or_leave(work: asyncio.Future[Any], request: ServerRequest) -> None:
    """Wait for work that may take long; raises Disconnected as soon as the client has gone."""
    await asyncio.wait({work}, timeout=_PATIENCE_S)
    if work.done():
        return
    leaving = asyncio.ensure_future(request.wait_gone())
    try:
        await asyncio.wait({work, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise Disconnected
    finally:
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)


async def perform_once(
    operation: Operation[Any, T], runtime: Runtime, caller: Caller, values: dict[str, Any]
) -> T:
    """Perform an operation that was not performed before."""
    return await operation.perform(runtime, caller, **values)


def _stream_type(accept: str) -> str:
    wanted = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    return NDJSON if NDJSON in wanted or "application/ndjson" in wanted else SSE


def make_deprecation_headers(route: HttpRoute) -> list[tuple[bytes, bytes]]:
    """Say since when a route should not be used (RFC 9745), and when it goes (RFC 8594)."""
    headers = [(b"deprecation", f"@{int(route.deprecated_at)}".encode())]
    if route.sunset_at:
        headers.append((b"sunset", formatdate(route.sunset_at, usegmt=True).encode()))
    return headers


def _header(scope: Scope, name: bytes) -> str:
    for found, value in scope["headers"]:
        if found.lower() == name:
            return str(value.decode("latin-1"))
    return ""


__all__ = ["Handler", "HttpApplication"]
