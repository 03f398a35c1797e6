"""A real server on a free port of this machine, in the loop of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from holdfast.client import find_token
from holdfast.server import create_app
from holdfast.server.process import HoldfastServer, make_server
from holdfast.settings import load_settings


class Running:
    """A server that runs, and a client of it that has the token."""

    def __init__(self, server: HoldfastServer, app: Any, base_dir: Path) -> None:
        self.server = server
        self.app = app
        self.base_dir = base_dir
        self.url = server.url
        self.token = find_token(base_dir)
        self.http = aiohttp.ClientSession(headers={"Authorization": f"Bearer {self.token}"})

    async def ask(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, Any]:
        """Send a request; returns the status, and the body as JSON."""
        async with self.http.request(method, self.url + path, json=body, **more) as response:
            text = await response.read()
            kind = response.headers.get("content-type", "")
            is_json = kind in ("application/json", "application/problem+json")
            return response.status, (await response.json(content_type=None)) if is_json else text

    async def raw(self, data: bytes, *, timeout_s: float = 10.0) -> bytes:
        """Send bytes as they are, and return all that comes back until the server closes."""
        port = int(self.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(data)
            await writer.drain()
            async with asyncio.timeout(timeout_s):
                return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()

    async def run(self, message: str = "What is 15 times 23?", **more: Any) -> str:
        """Run the default agent to its end; returns the id of the run."""
        status, found = await self.ask("POST", "/v1/runs/wait", {"user_message": message, **more})
        assert status == 200, found
        return str(found["run_id"])


@asynccontextmanager
async def running(base_dir: Path, **more: Any) -> AsyncIterator[Running]:
    """Serve a state directory until the block ends."""
    app_options = {
        name: more.pop(name)
        for name in ("agents", "middleware", "authenticator", "runtimes")
        if name in more
    }
    work = base_dir.with_name(f"{base_dir.name}-work")
    for place in (base_dir, work):
        place.mkdir(exist_ok=True)
    given = more.pop("settings", {})
    overrides = {
        "storage.state_dir": str(base_dir),
        "workspace": str(work),
        "server.port": 0,
        "server.grace_s": 2.0,
        **{f"server.{name}": value for name, value in more.items()},
        **given,
    }
    app = create_app(load_settings(overrides=overrides), **app_options)
    server = make_server(app)
    task = asyncio.create_task(server._serve())
    async with asyncio.timeout(20):
        while not server.started:
            assert not task.done(), task.exception()
            await asyncio.sleep(0.005)
    found = Running(server, app, base_dir)
    try:
        yield found
    finally:
        await found.http.close()
        server.should_exit = True
        async with asyncio.timeout(20):
            await task


async def until(condition: Callable[[], bool], *, timeout_s: float = 10.0) -> None:
    """Wait until something holds that nobody tells of."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - seen from outside only
            await asyncio.sleep(0.005)
