"""A server that takes connections and never answers does not hold up the work."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast import Agent, AsyncClient
from holdfast.settings import load_settings
from holdfast.testing import ScriptedModel


async def test_a_run_begins_without_an_address_that_does_not_answer(tmp_path: Path) -> None:
    met: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _reader, writer: met.append(writer), "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    endpoint = {
        "transport": "http",
        "url": f"http://127.0.0.1:{port}/mcp",
        "connect_timeout_s": 300,
    }
    overrides = {"storage.state_dir": tmp_path / "state", "mcp_endpoints": {"dead": endpoint}}
    settings = load_settings(overrides=overrides).settings
    try:
        async with asyncio.timeout(60):
            async with AsyncClient(settings=settings) as client:
                agent = Agent(
                    "talker", model=ScriptedModel("One.", "Two."), allowed_tools=["dead_*"]
                )
                first = await agent.run("Begin.", client=client)
                second = await agent.run("Go on.", client=client)
    finally:
        server.close()
        for writer in met:
            writer.close()
    assert (first.response, second.response) == ("One.", "Two.")
    assert met, "it was asked"
