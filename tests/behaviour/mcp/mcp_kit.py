"""Clients with MCP servers: programs in the sandbox, and an address on this machine."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import uvicorn

from holdfast import AsyncClient
from holdfast.settings import load_settings
from holdfast.tools.gate import AutoConfirm

HERE = Path(__file__).parent
READABLE = sorted({sys.prefix, sys.base_prefix, str(HERE)})


def program(file: str, *args: str, **options: Any) -> dict[str, Any]:
    """An endpoint that is a program of this directory."""
    return {
        "transport": "stdio",
        "command": sys.executable,
        "args": [str(HERE / file), *args],
        "readable": READABLE,
        "connect_timeout_s": 120,  # a busy machine takes its time to start a program
        **options,
    }


@contextlib.asynccontextmanager
async def client_for(
    folder: Path, endpoints: dict[str, Any], **overrides: Any
) -> AsyncIterator[AsyncClient]:
    """A client whose person says yes to everything that is asked."""
    workspace = folder / "ws"
    workspace.mkdir(exist_ok=True)
    chosen = load_settings(
        overrides={"workspace": workspace, "mcp_endpoints": endpoints, **overrides},
        cwd=folder,
        environ={"HOME": str(folder)},
    ).settings
    async with AsyncClient(folder / "state", settings=chosen) as client:
        client.approver = AutoConfirm()
        yield client


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()


@contextlib.contextmanager
def served(app: Any) -> Iterator[int]:
    """Serve an application on 127.0.0.1, in a thread, and give its port."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = _Server(uvicorn.Config(app, log_level="critical", lifespan="auto", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        assert server.is_up.wait(30)
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join(30)
        listener.close()


def answering(status: int, body: bytes = b"", **headers: str) -> Any:
    """An application that gives the same answer to everything."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise ValueError("there is no life to span")
        told = [
            (name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()
        ]
        await send({"type": "http.response.start", "status": status, "headers": told})
        await send({"type": "http.response.body", "body": body})

    return app
