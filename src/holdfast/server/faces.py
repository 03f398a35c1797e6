"""Faces: what speaks another language than `/v1` on the same address, such as MCP or a dashboard.

A face owns the paths below its prefix. It is given a `FaceRequest`, which knows who asks, and
asks the runtime through operations as everything else does; it can neither reach around their
rights nor around the checks of the address, the ids of requests and the middleware, which all
lie before it. Its code is loaded with its first request.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from holdfast.errors import RequestInvalid
from holdfast.operations import Caller, Operation, StreamOperation
from holdfast.runtime import Runtime
from holdfast.server.endpoints import check_depth
from holdfast.server.http import Send, ServerRequest, ServerResponse, read_pairs
from holdfast.server.open_requests import find_bounds
from holdfast.server.problems import problem_response
from holdfast.server.streams import EventStream, StreamEvent

if TYPE_CHECKING:
    from holdfast.server.app import HttpApplication

T = TypeVar("T")

FACES: Final[dict[str, str]] = {
    "/.well-known/agent-card-keys.json": "holdfast.server.a2a.card",
    "/.well-known/agent-card.json": "holdfast.server.a2a.card",
    "/.well-known/oauth-protected-resource": "holdfast.server.mcp.metadata",
    "/a2a": "holdfast.server.a2a.face",
    "/agui": "holdfast.server.agui.face",
    "/mcp": "holdfast.server.mcp.face",
    "/dashboard": "holdfast.server.dashboard",
    "/openai/v1": "holdfast.server.openai.face",
}
"""The module that has `make_face(app)` for each prefix, such as `/mcp`."""


class FaceRequest:
    """A request to a face: who asks, what, and how to answer."""

    def __init__(
        self, app: HttpApplication, request: ServerRequest, send: Send, *, prefix: str
    ) -> None:
        """Ask for what is below a prefix."""
        self.app = app
        self.request = request
        """Its head, its query, its body; `scope` and `receive` for who speaks ASGI itself."""
        self.send = send
        """For answers that are sent in parts: return `None` then."""
        self.words = request.segments[len(_words(prefix)) :]
        """The parts of the path below the prefix, decoded."""
        self.id: str = request.scope["holdfast.request_id"]
        self._caller: Caller | None = None

    @property
    def method(self) -> str:
        """GET, POST, …"""
        return self.request.head.method

    @property
    def headers(self) -> Mapping[str, str]:
        """By lower-case name."""
        return self.request.headers

    def name_operation(self, name: str) -> None:
        """Say under which name this request is counted in the metrics; of few different ones."""
        self.request.scope["holdfast.name"] = name

    async def authenticate(self) -> Caller:
        """Return who asks; asked for again, the same.

        Raises:
            Unauthenticated: it is none that is known.
            RateLimitError: it, its tenant, or failures from its address came too often.
        """
        if self._caller is None:
            self._caller = await self.app.authenticate(self.request)
        return self._caller

    async def open_runtime(self) -> Runtime:
        """Return the runtime of the caller's tenant, open until this request has ended."""
        return await self.app.runtimes.runtime_for(await self.authenticate())

    async def perform(self, operation: Operation[..., T], /, **values: Any) -> T:  # noqa: ANN401 - fields of a request
        """Perform an operation in the caller's name, no longer than a request may take."""
        caller, runtime = await self.authenticate(), await self.open_runtime()
        work = operation.perform(runtime, caller, **values)
        answer: T = await self.app.bound(work, **find_bounds(operation, self.request))
        return answer

    async def follow(
        self,
        operation: StreamOperation[..., T],
        /,
        **values: Any,  # noqa: ANN401 - fields of a request
    ) -> AsyncGenerator[T, None]:
        """Return the items of an operation, in the caller's name; to be closed by who asked.

        Raises:
            NotPermitted: the caller may not, which is known before the first item.
        """
        caller, runtime = await self.authenticate(), await self.open_runtime()
        return await self.app.begin_stream(operation, runtime, caller, values)

    async def send_events(
        self, events: AsyncGenerator[StreamEvent, None], *, media_type: str = "text/event-stream"
    ) -> None:
        """Answer with a stream of events: with heartbeats, bounded, with a goodbye at the end."""
        stream = EventStream(
            events,
            media_type=media_type,
            heartbeat_s=self.app.options.heartbeat_s,
            request_id=self.id,
        )
        await self.app.send_stream(stream, self.request, self.send)

    async def read_body(self, *, limit: int | None = None) -> bytes:
        """Return the body; raises RequestTooLarge, RequestTimeout."""
        options = self.app.options
        most = options.max_body_bytes if limit is None else limit
        return await self.request.read_body(limit=most, timeout_s=options.body_timeout_s)

    async def read_json(self) -> Any:  # noqa: ANN401 - whatever JSON holds
        """Return the body as JSON, no deeper than bodies may be.

        Raises:
            RequestInvalid: it is none.
        """
        body = await self.read_body()
        check_depth(body, self.app.options.max_depth)
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise RequestInvalid(detail=f"the body is no JSON: {error}") from error

    async def read_form(self) -> list[tuple[str, str]]:
        """Return the pairs of a form as browsers send it.

        Raises:
            RequestInvalid: it is none.
        """
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            raise RequestInvalid(detail="send a form (application/x-www-form-urlencoded)")
        return read_pairs(await self.read_body(), "form")


class Face(msgspec.Struct, frozen=True, kw_only=True):
    """What answers below a prefix, and how it tells errors."""

    answer: Callable[[FaceRequest], Awaitable[ServerResponse | None]]
    """Returns the answer, or `None` where it was sent by the request's `send`."""
    explain: Callable[[Exception, str], ServerResponse] = problem_response
    """Tells an error, with the id of the request, in the form of the protocol."""
    is_open: bool = False
    """Whether a caller is only known where `answer` asks for one. Else nobody is answered who is
    not known: the face cannot forget it."""
    close: Callable[[], Awaitable[None]] | None = None
    """Called once when the application closes, before its runtimes are."""


class FaceTable:
    """The faces of an application by prefix, each loaded with its first request."""

    def __init__(self, app: HttpApplication) -> None:
        """Know those of `FACES`."""
        self._app = app
        self._modules = {_words(prefix): (prefix, module) for prefix, module in FACES.items()}
        self._loaded: dict[tuple[str, ...], tuple[str, Face]] = {}

    def mount(self, prefix: str, face: Face) -> None:
        """Let a face answer below a prefix, rather than the one that was there."""
        self._loaded[_words(prefix)] = (prefix, face)

    def find(self, words: tuple[str, ...]) -> tuple[str, Face] | None:
        """Return the face with the longest prefix of a path, and that prefix."""
        for length in range(min(len(words), 3), 0, -1):
            key = words[:length]
            if key not in self._loaded and key in self._modules:
                prefix, module = self._modules[key]
                make = importlib.import_module(module).make_face
                self._loaded[key] = (prefix, make(self._app))
            if key in self._loaded:
                return self._loaded[key]
        return None

    async def close(self) -> None:
        """Close those that were loaded."""
        for _, face in self._loaded.values():
            if face.close is not None:
                await face.close()


def _words(prefix: str) -> tuple[str, ...]:
    return tuple(word for word in prefix.split("/") if word)


__all__ = ["FACES", "Face", "FaceRequest", "FaceTable"]
