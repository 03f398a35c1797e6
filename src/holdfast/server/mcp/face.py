"""MCP over HTTP, below `/mcp`: the SDK's streamable transport behind our authentication."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken

from holdfast.observability import INCOMING_TRACE
from holdfast.operations import Caller
from holdfast.runtime import Runtime
from holdfast.server.faces import Face, FaceRequest
from holdfast.server.http import ServerResponse
from holdfast.server.mcp.content import McpContent
from holdfast.server.mcp.offer import McpOffer
from holdfast.server.mcp.replay import ReplayingManager
from holdfast.server.mcp.requests import Context
from holdfast.server.problems import problem_response

if TYPE_CHECKING:
    from holdfast.server.app import HttpApplication

_ASKED: Final = "holdfast.asked"
_MOST_SESSIONS: Final = 1_000
METADATA: Final = "/.well-known/oauth-protected-resource"


def make_face(app: HttpApplication, content: McpContent | None = None) -> Face:
    """Return the face of an application, with resources and prompts of its own."""
    face = McpFace(app, content)
    return Face(answer=face.answer, explain=face.explain, close=face.close)


def make_metadata_face(app: HttpApplication) -> Face:
    """Return what tells OAuth clients where to get a token (RFC 9728)."""

    async def answer(asked: FaceRequest) -> ServerResponse:
        headers = asked.headers
        resource = f"{asked.request.head.scheme}://{headers.get('host', '')}/mcp"
        issuer = app.options.jwt.issuer
        told = {
            "resource": resource,
            "authorization_servers": [str(issuer)] if issuer else [],
            "bearer_methods_supported": ["header"],
            "scopes_supported": ["runs:write", "runs:read", "agents:read", "sessions:read"],
            "resource_name": "Holdfast",
        }
        return ServerResponse(200, msgspec.json.encode(told))

    return Face(answer=answer, is_open=True)


def offer_content(app: HttpApplication, content: McpContent) -> None:
    """Offer resources and prompts of an application to MCP clients of its server, below `/mcp`."""
    app.faces.mount("/mcp", make_face(app, content))


class McpFace:
    """Answers MCP clients over HTTP; connections of the older era are bound to their caller."""

    def __init__(self, app: HttpApplication, content: McpContent | None = None) -> None:
        """Answer for this application."""
        self._app = app
        offer = McpOffer(_find, content=content)
        self._manager = ReplayingManager(
            offer.server,
            max_request_body_size=app.options.max_body_bytes,
            max_sessions=_MOST_SESSIONS,
        )
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._stop = asyncio.Event()

    def explain(self, error: Exception, request_id: str) -> ServerResponse:
        """Tell an error; one without a key is told where keys come from."""
        response = problem_response(error, request_id)
        if response.status != 401:
            return response
        challenge = f'Bearer realm="holdfast", resource_metadata="{METADATA}/mcp"'
        return msgspec.structs.replace(response, headers=(("www-authenticate", challenge),))

    async def answer(self, asked: FaceRequest) -> None:
        """Let the SDK answer, in the name of the caller of this very request."""
        caller, runtime = await asked.authenticate(), await asked.open_runtime()
        await self._open()
        scope = dict(asked.request.scope)
        scope[_ASKED] = (runtime, caller, INCOMING_TRACE.get())
        owner = f"{caller.tenant}/{caller.subject}"
        token = AccessToken(token="", client_id=owner, scopes=sorted(caller.scopes))
        scope["user"] = AuthenticatedUser(token)
        await self._manager.handle_request(scope, asked.request.receive, asked.send)

    async def _open(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._live(), name="mcp-face")
        await self._ready.wait()

    async def _live(self) -> None:
        """Hold what all connections live in; opened and closed by one task."""
        async with self._manager.run():
            self._ready.set()
            await self._stop.wait()

    async def close(self) -> None:
        """End all connections."""
        self._stop.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)


async def _find(context: Context) -> tuple[Runtime, Caller]:
    runtime, caller, trace = context.request.scope[_ASKED]  # type: ignore[union-attr]
    # Answered in a task of the connection, which has begun with another request.
    INCOMING_TRACE.set(trace)
    return runtime, caller


__all__ = ["METADATA", "McpFace", "make_face", "make_metadata_face", "offer_content"]
