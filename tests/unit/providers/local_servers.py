"""Real servers on free ports of this machine, with whatever answers a test needs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(**paths: object) -> AsyncIterator[str]:
    """A real server on a free port; `v1_models={...}` answers `/v1/models`."""
    app = web.Application()
    for name, body in paths.items():
        path = "/" + name.replace("_", "/")

        def make(body: object) -> Handler:
            async def answer(request: web.Request) -> web.StreamResponse:
                if callable(body):
                    return await body(request)  # type: ignore[no-any-return]
                return web.json_response(body)

            return answer

        app.router.add_route("*", path, make(body))
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}/v1"
    finally:
        await runner.cleanup()
