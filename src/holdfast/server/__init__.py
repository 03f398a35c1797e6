"""HTTP: the table of operations behind an address.

`create_app` makes the ASGI application, `holdfast serve` runs it. A face: it translates, and
never reaches around the table. Seams: `Authenticator` says who asks, `RuntimeProvider` on whose
records a caller works, `middleware=` and the entry points `holdfast.server_middleware` stand
around everything but the check of the address.

A *face* speaks another language than `/v1` on the same address (MCP, a dashboard): a module with
`make_face(app) -> Face`, listed by its prefix in `faces.FACES`, loaded with its first request. It
gets a `FaceRequest`: `await request.authenticate()` gives the `Caller` (done before, unless the
face `is_open`), `await request.perform(runs.start, message=…)` and `request.follow` ask the table
in that name, `send_events` sends a stream that drains with the server; raised errors are told by
the face's `explain`. What a face cannot lose: checks of Host and Origin, request id, middleware,
limits, metrics.

Browsers sign in (`logins`): `POST /login/links` with a key or the token of the state directory
gives a path for one use within two minutes, `app.logins.create_link(…)` does so inside the
process; following it sets an HttpOnly cookie and leads to `?to=` or the dashboard. `POST
/login` takes the form field `key`, `POST /login/end` signs out. A cookie stands for its key: it is
authenticated with each request, and void when the key is. With a cookie, what is not GET or HEAD
has to come from our own page (`Origin`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.server.acp.stdio import serve_acp as serve_acp
    from holdfast.server.app import HttpApplication as HttpApplication
    from holdfast.server.faces import Face as Face
    from holdfast.server.faces import FaceRequest as FaceRequest
    from holdfast.server.factory import create_app as create_app
    from holdfast.server.http import AsgiApp as AsgiApp
    from holdfast.server.http import Middleware as Middleware
    from holdfast.server.http import ServerRequest as ServerRequest
    from holdfast.server.http import ServerResponse as ServerResponse
    from holdfast.server.identity import Authenticator as Authenticator
    from holdfast.server.identity import FirstOf as FirstOf
    from holdfast.server.identity import LoopbackToken as LoopbackToken
    from holdfast.server.identity import RequestHead as RequestHead
    from holdfast.server.mcp.content import McpContent as McpContent
    from holdfast.server.mcp.content import McpPrompt as McpPrompt
    from holdfast.server.mcp.content import McpResource as McpResource
    from holdfast.server.mcp.face import offer_content as offer_content
    from holdfast.server.mcp.stdio import serve_stdio as serve_stdio
    from holdfast.server.process import load_agents as load_agents
    from holdfast.server.process import serve as serve
    from holdfast.server.tenancy import RuntimeProvider as RuntimeProvider
    from holdfast.server.tenancy import SingleTenant as SingleTenant
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "acp.stdio": "serve_acp",
            "app": "HttpApplication",
            "faces": "Face FaceRequest",
            "factory": "create_app",
            "http": "AsgiApp ServerRequest ServerResponse Middleware",
            "identity": "Authenticator FirstOf LoopbackToken RequestHead",
            "mcp.content": "McpContent McpPrompt McpResource",
            "mcp.face": "offer_content",
            "mcp.stdio": "serve_stdio",
            "process": "load_agents serve",
            "tenancy": "RuntimeProvider SingleTenant",
        },
    )
