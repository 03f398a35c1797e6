"""An address that takes webhooks, on a free port of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web


class Receiver:
    """Notes what comes, and answers with the statuses that it is given, then with 200."""

    def __init__(self) -> None:
        self.seen: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[int] = []
        self.url = ""
        self._came = asyncio.Condition()

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        async with self._came:
            self.seen.append((headers, body))
            self._came.notify_all()
        return web.Response(status=self.answers.pop(0) if self.answers else 200)

    async def wait_for(self, count: int) -> list[tuple[dict[str, str], bytes]]:
        async with asyncio.timeout(30), self._came:
            await self._came.wait_for(lambda: len(self.seen) >= count)
        return self.seen


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_post("/hook", receiver.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    sockets: Any = site._server
    receiver.url = f"http://127.0.0.1:{sockets.sockets[0].getsockname()[1]}/hook"
    try:
        yield receiver
    finally:
        await runner.cleanup()
